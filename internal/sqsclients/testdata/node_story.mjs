// What a program does with @aws-sdk/client-sqs, the SDK of AWS for JavaScript, against
// the endpoint in SQS_ENDPOINT. The SDK itself checks the MD5 of every body.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'

const sdk = createRequire(process.env.CLIENTS + '/')('@aws-sdk/client-sqs')
const client = new sdk.SQSClient({ endpoint: process.env.SQS_ENDPOINT, region: process.env.AWS_REGION })
const prefix = process.env.PREFIX
const call = (action, input = {}) => client.send(new sdk[action + 'Command'](input))

// fails checks that a call is rejected with an error of a class, by its name.
async function fails(name, action, input) {
  const failure = await call(action, input).then(() => assert.fail(`${action} did not fail with ${name}`), e => e)
  if (sdk[name]) assert(failure instanceof sdk[name], `${action}: ${failure.name}: ${failure.message}, want ${name}`)
  else assert.equal(failure.name, name, failure.message)
  assert(failure instanceof sdk.SQSServiceException)
  assert.equal(failure.$fault, 'client')
  assert(failure.$metadata.requestId)
  return failure
}

const receive = async (QueueUrl, more = {}) =>
  (await call('ReceiveMessage', { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, ...more })).Messages ?? []
const remove = (QueueUrl, m) => call('DeleteMessage', { QueueUrl, ReceiptHandle: m.ReceiptHandle })
const attributes = async QueueUrl => (await call('GetQueueAttributes', { QueueUrl, AttributeNames: ['All'] })).Attributes

const typed = {
  text: { DataType: 'String', StringValue: 'grüße <&> "q"\n' },
  count: { DataType: 'Number.float', StringValue: '-12.5' },
  raw: { DataType: 'Binary.bytes', BinaryValue: new Uint8Array(256).map((_, i) => i) },
}
const plain = attributes => Object.fromEntries(Object.entries(attributes).map(([name, a]) =>
  [name, [a.DataType, a.StringValue, a.BinaryValue && Buffer.from(a.BinaryValue).toString('hex')]]))

async function queues() {
  const QueueName = prefix + 'orders'
  const { QueueUrl } = await call('CreateQueue', { QueueName, Attributes: { VisibilityTimeout: '45' }, tags: { team: 'shop' } })
  assert.equal((await call('GetQueueUrl', { QueueName })).QueueUrl, QueueUrl)
  await fails('QueueNameExists', 'CreateQueue', { QueueName, Attributes: { VisibilityTimeout: '46' } })
  const missing = await fails('QueueDoesNotExist', 'GetQueueUrl', { QueueName: prefix + 'nobody' })
  assert.equal(missing.Code ?? missing.name, missing.Code ? 'AWS.SimpleQueueService.NonExistentQueue' : 'QueueDoesNotExist')
  await call('TagQueue', { QueueUrl, Tags: { cost: '7' } })
  await call('UntagQueue', { QueueUrl, TagKeys: ['team'] })
  assert.deepEqual((await call('ListQueueTags', { QueueUrl })).Tags, { cost: '7' })
  await call('SetQueueAttributes', { QueueUrl, Attributes: { ReceiveMessageWaitTimeSeconds: '2' } })
  const got = await attributes(QueueUrl)
  assert.equal(got.VisibilityTimeout, '45')
  assert.equal(got.ReceiveMessageWaitTimeSeconds, '2')
  await fails('InvalidAttributeName', 'SetQueueAttributes', { QueueUrl, Attributes: { Nonsense: '1' } })
  await call('AddPermission', { QueueUrl, Label: 'partner', AWSAccountIds: ['123456789012'], Actions: ['SendMessage'] })
  await call('RemovePermission', { QueueUrl, Label: 'partner' })
  return QueueUrl
}

async function messages(QueueUrl) {
  const MessageBody = '<a>&amp;ä 📬\t\r\n]]>'
  const sent = await call('SendMessage', { QueueUrl, MessageBody, MessageAttributes: typed })
  assert.equal(sent.MD5OfMessageBody, createHash('md5').update(MessageBody).digest('hex'))
  let [got] = await receive(QueueUrl, { MessageSystemAttributeNames: ['All'], MessageAttributeNames: ['All'] })
  assert.equal(got.MessageId, sent.MessageId)
  assert.equal(got.Body, MessageBody)
  assert.equal(got.MD5OfMessageAttributes, sent.MD5OfMessageAttributes)
  assert.deepEqual(plain(got.MessageAttributes), plain(typed))
  assert.equal(got.Attributes.ApproximateReceiveCount, '1')
  await call('ChangeMessageVisibility', { QueueUrl, ReceiptHandle: got.ReceiptHandle, VisibilityTimeout: 0 })
  ;[got] = await receive(QueueUrl, { MessageSystemAttributeNames: ['ApproximateReceiveCount'] })
  assert.deepEqual(got.Attributes, { ApproximateReceiveCount: '2' })
  assert.equal(got.MessageAttributes, undefined)
  await remove(QueueUrl, got)
  const nothing = await call('ReceiveMessage', { QueueUrl, WaitTimeSeconds: 0 })
  assert.equal(nothing.Messages, undefined)
  await fails('ReceiptHandleIsInvalid', 'DeleteMessage', { QueueUrl, ReceiptHandle: 'garbage' })
  await fails('InvalidMessageContents', 'SendMessage', { QueueUrl, MessageBody: '\u0001' })
  await call('SendMessage', { QueueUrl, MessageBody: 'x'.repeat(1 << 20) })
  ;[got] = await receive(QueueUrl)
  assert.equal(got.Body.length, 1 << 20)
  await remove(QueueUrl, got)
}

async function batches(QueueUrl) {
  const entries = Array.from({ length: 9 }, (_, i) => ({ Id: `e${i}`, MessageBody: `m${i}` }))
  const sent = await call('SendMessageBatch', { QueueUrl, Entries: [...entries, { Id: 'bad', MessageBody: '\u0001' }] })
  assert.equal(sent.Successful.length, 9)
  assert.deepEqual(sent.Failed.map(f => [f.Id, f.SenderFault]), [['bad', true]])
  const got = []
  while (got.length < 9) got.push(...await receive(QueueUrl))
  assert.deepEqual(got.map(m => m.Body).sort(), entries.map(e => e.MessageBody))
  const held = await call('ChangeMessageVisibilityBatch', {
    QueueUrl, Entries: got.map((m, i) => ({ Id: `${i}`, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 60 })),
  })
  assert.equal(held.Successful.length, 9)
  const gone = await call('DeleteMessageBatch', { QueueUrl, Entries: got.map((m, i) => ({ Id: `${i}`, ReceiptHandle: m.ReceiptHandle })) })
  assert.equal(gone.Successful.length, 9)
  assert.equal(gone.Failed, undefined)
  await fails('BatchEntryIdsNotDistinct', 'SendMessageBatch', { QueueUrl, Entries: [entries[0], entries[0]] })
  await fails('EmptyBatchRequest', 'SendMessageBatch', { QueueUrl, Entries: [] })
  await fails('TooManyEntriesInBatchRequest', 'SendMessageBatch', { QueueUrl, Entries: Array(11).fill().map((_, i) => ({ Id: `${i}`, MessageBody: 'x' })) })
}

async function longPoll(QueueUrl) {
  const waiting = receive(QueueUrl, { WaitTimeSeconds: 20 })
  await new Promise(resolve => setTimeout(resolve, 300))
  const began = performance.now()
  await call('SendMessage', { QueueUrl, MessageBody: 'wake' })
  const [got] = await waiting
  assert(performance.now() - began < 10_000, 'the send does not wake who waits')
  await remove(QueueUrl, got)
}

async function fifo() {
  const { QueueUrl } = await call('CreateQueue', { QueueName: prefix + 'orders.fifo', Attributes: { FifoQueue: 'true' } })
  await fails('InvalidParameterValue', 'SendMessage', { QueueUrl, MessageBody: 'x', MessageGroupId: 'g' })
  for (let i = 0; i < 5; i++) {
    const message = { QueueUrl, MessageBody: `${i}`, MessageGroupId: 'g', MessageDeduplicationId: `d${i}` }
    const first = await call('SendMessage', message)
    const again = await call('SendMessage', { ...message, MessageBody: 'another' })
    assert.equal(again.MessageId, first.MessageId)
    assert.equal(again.SequenceNumber, first.SequenceNumber)
  }
  const bodies = []
  while (bodies.length < 5) {
    const got = await receive(QueueUrl, { MaxNumberOfMessages: 2, MessageSystemAttributeNames: ['All'] })
    assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [], 'the group has two batches out')
    for (const m of got) {
      assert.equal(m.Attributes.MessageGroupId, 'g')
      bodies.push(m.Body)
      await remove(QueueUrl, m)
    }
  }
  assert.deepEqual(bodies, ['0', '1', '2', '3', '4'])
  await call('DeleteQueue', { QueueUrl })
}

async function deadLetters(QueueUrl) {
  const { QueueUrl: dead } = await call('CreateQueue', { QueueName: prefix + 'dead' })
  const { QueueArn: deadLetterTargetArn } = await attributes(dead)
  await call('SetQueueAttributes', { QueueUrl, Attributes: { RedrivePolicy: JSON.stringify({ deadLetterTargetArn, maxReceiveCount: 1 }) } })
  assert.deepEqual((await call('ListDeadLetterSourceQueues', { QueueUrl: dead })).queueUrls, [QueueUrl])
  for (let i = 0; i < 3; i++) await call('SendMessage', { QueueUrl, MessageBody: `poison ${i}`, MessageAttributes: typed })
  for (let n = 0; n < 3;) {
    for (const m of await receive(QueueUrl)) {
      await call('ChangeMessageVisibility', { QueueUrl, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0 })
      n++
    }
  }
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 1 }), [])
  assert.equal((await attributes(dead)).ApproximateNumberOfMessages, '3')
  const { TaskHandle } = await call('StartMessageMoveTask', { SourceArn: deadLetterTargetArn, MaxNumberOfMessagesPerSecond: 500 })
  assert(TaskHandle)
  let task
  do {
    [task] = (await call('ListMessageMoveTasks', { SourceArn: deadLetterTargetArn })).Results
    await new Promise(resolve => setTimeout(resolve, 50))
  } while (task.Status === 'RUNNING')
  assert.deepEqual([task.Status, task.ApproximateNumberOfMessagesMoved], ['COMPLETED', 3])
  const home = []
  while (home.length < 3) home.push(...await receive(QueueUrl, { MessageAttributeNames: ['All'] }))
  assert.deepEqual(home.map(m => m.Body).sort(), ['poison 0', 'poison 1', 'poison 2'])
  assert.deepEqual(plain(home[0].MessageAttributes), plain(typed))
  await fails('ResourceNotFoundException', 'StartMessageMoveTask', { SourceArn: deadLetterTargetArn + '-nobody' })
  await call('DeleteQueue', { QueueUrl: dead })
}

async function end(QueueUrl) {
  await call('SendMessage', { QueueUrl, MessageBody: 'x' })
  await call('PurgeQueue', { QueueUrl })
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
  await call('DeleteQueue', { QueueUrl })
  await fails('QueueDoesNotExist', 'SendMessage', { QueueUrl, MessageBody: 'x' })
  await fails('QueueDoesNotExist', 'ReceiveMessage', { QueueUrl })
  assert.equal((await call('ListQueues', { QueueNamePrefix: prefix })).QueueUrls, undefined)
}

const url = await queues()
await messages(url)
await batches(url)
await longPoll(url)
await fifo()
await deadLetters(url)
await end(url)
console.log('@aws-sdk/client-sqs: all as it should be')
client.destroy()
