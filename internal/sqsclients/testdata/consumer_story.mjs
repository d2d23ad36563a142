// What a program does with sqs-consumer against the endpoint in SQS_ENDPOINT: handlers
// that succeed, fail, and take so long that their messages need a heartbeat.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const require = createRequire(process.env.CLIENTS + '/')
const { SQSClient, CreateQueueCommand, DeleteQueueCommand, GetQueueAttributesCommand, SendMessageBatchCommand } = require('@aws-sdk/client-sqs')
const { Consumer } = require('sqs-consumer')

const sqs = new SQSClient({ endpoint: process.env.SQS_ENDPOINT, region: process.env.AWS_REGION })
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
const count = Number(process.env.COUNT)

async function create(name, Attributes) {
  const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: process.env.PREFIX + name, Attributes }))
  return QueueUrl
}

const attributes = async QueueUrl =>
  (await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['All'] }))).Attributes

async function send(QueueUrl, bodies) {
  for (let i = 0; i < bodies.length; i += 10) {
    const Entries = bodies.slice(i, i + 10).map((MessageBody, n) => ({ Id: `${n}`, MessageBody }))
    const { Failed } = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }))
    assert.equal(Failed, undefined)
  }
}

// consume runs a consumer until it is done, and stops it in good order.
async function consume(options, done) {
  const errors = []
  const consumer = Consumer.create({ sqs, batchSize: 10, waitTimeSeconds: 5, ...options })
  for (const event of ['error', 'timeout_error']) consumer.on(event, e => errors.push(e))
  consumer.start()
  for (const until = Date.now() + 60_000; !(await done());) {
    assert(Date.now() < until, 'the consumer does not finish: ' + errors)
    await pause(20)
  }
  await new Promise(resolve => { consumer.once('stopped', resolve); consumer.stop({ abort: true }) })
  return errors
}

const empty = async queue => {
  const a = await attributes(queue)
  return a.ApproximateNumberOfMessages === '0' && a.ApproximateNumberOfMessagesNotVisible === '0'
}

const dead = await create('dead')
const queueUrl = await create('jobs', {
  VisibilityTimeout: '3',
  RedrivePolicy: JSON.stringify({ deadLetterTargetArn: (await attributes(dead)).QueueArn, maxReceiveCount: 2 }),
})
const bodies = Array.from({ length: count }, (_, i) => `job ${i}`)

// One at a time: each is handled once, what fails twice is a dead letter.
await send(queueUrl, [...bodies, 'poison', 'slow'])
const seen = new Map()
await consume({
  queueUrl, visibilityTimeout: 3, heartbeatInterval: 1, terminateVisibilityTimeout: true,
  handleMessage: async message => {
    seen.set(message.Body, (seen.get(message.Body) ?? 0) + 1)
    if (message.Body === 'poison') throw new Error('no')
    if (message.Body === 'slow') await pause(5000) // longer than the visibility
    return message
  },
}, async () => seen.size === count + 2 && await empty(queueUrl))
assert.deepEqual([...seen].filter(([body, times]) => times !== (body === 'poison' ? 2 : 1)), [])
assert.equal((await attributes(dead)).ApproximateNumberOfMessages, '1')

// In batches.
await send(queueUrl, bodies)
const batched = []
const errors = await consume({
  queueUrl, handleMessageBatch: async messages => { batched.push(...messages.map(m => m.Body)); return messages },
}, async () => batched.length >= count && await empty(queueUrl))
assert.deepEqual(errors, [])
assert.deepEqual(batched.sort(), [...bodies].sort())

// A queue that is not there is an error event, and no crash.
const failures = []
const lost = Consumer.create({ sqs, queueUrl: queueUrl + '-nobody', handleMessage: async m => m, shouldDeleteMessages: true, pollingWaitTimeMs: 100 })
lost.on('error', e => failures.push(e))
lost.start()
while (failures.length === 0) await pause(20)
await new Promise(resolve => { lost.once('stopped', resolve); lost.stop({ abort: true }) })
assert.match(failures[0].code ?? failures[0].name, /QueueDoesNotExist|NonExistentQueue/)

for (const QueueUrl of [queueUrl, dead]) await sqs.send(new DeleteQueueCommand({ QueueUrl }))
console.log(`sqs-consumer: ${2 * count + 2} jobs, all as it should be`)
sqs.destroy()
