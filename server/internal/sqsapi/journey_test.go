package sqsapi_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// A journey is a random sequence of actions on a queue, and what the client knows of
// each message: a message that was sent and not deleted must be found at the end, a
// deleted one must not come back, and groups must be in order.
type journey struct {
	*client
	backend *membox.Backend
	random  *rand.Rand
	// fifo: the queue is a FIFO queue; mortal: its messages may be dead-lettered.
	fifo, mortal bool
	suffix       string
	urls         map[string]*string // by "work" and "dead"
	arns         map[string]string
	sent         int
	travellers   []*sentMessage
	known        map[string]*sentMessage // by the id of the message
	receipts     []heldReceipt
	task         *string
	sleep        func(time.Duration)
	diary        []string
}

// A sentMessage is a message of the journey.
type sentMessage struct {
	name, group string
	place       int
	gone        bool // its deletion was confirmed
	doubtful    bool // likewise, but it may have been in another queue then
}

// A heldReceipt is the receipt of a delivery.
type heldReceipt struct {
	*sentMessage
	queue, receipt string
}

func (j *journey) note(format string, args ...any) {
	j.diary = append(j.diary, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (j *journey) fail(format string, args ...any) {
	j.t.Helper()
	j.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(j.diary[max(0, len(j.diary)-40):], "\n"))
}

// start starts the daemon.
func (j *journey) start(ring *keyring.Ring) {
	j.client = serve(j.t, setup{opener: j.backend, ring: ring}).client("")
}

// build creates the missing queues.
func (j *journey) build() {
	for _, name := range []string{"work", "dead"} {
		var attributes []string
		if j.fifo {
			attributes = []string{"FifoQueue", "true"}
		}
		j.urls[name] = j.create(name+j.suffix, attributes...)
		j.arns[name] = j.attributes(j.urls[name])["QueueArn"]
	}
}

// setMaxReceives sets the receives after which messages are dead-lettered; 0 is never.
func (j *journey) setMaxReceives(count int) {
	policy := ""
	if count > 0 {
		policy = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, j.arns["dead"], count)
	}
	j.note("messages die after %d receives", count)
	if err := j.set(j.urls["work"], "RedrivePolicy", policy); err != nil {
		j.fail("policy: %v", err)
	}
}

// sendSome sends a batch, of which some entries are refused or were sent before.
func (j *journey) sendSome() {
	entries := make([]types.SendMessageBatchRequestEntry, 1+j.random.IntN(10))
	for i := range entries {
		e := &entries[i]
		j.sent++
		e.Id, e.MessageBody = aws.String(strconv.Itoa(i)), aws.String(strconv.Itoa(j.sent))
		if j.random.IntN(8) == 0 {
			e.MessageBody = aws.String("\x01")
		}
		switch {
		case j.fifo:
			e.MessageGroupId = aws.String(strconv.Itoa(j.random.IntN(3)))
			e.MessageDeduplicationId = aws.String(strconv.Itoa(j.sent - j.random.IntN(2)*j.random.IntN(2)))
		case j.random.IntN(3) == 0:
			e.DelaySeconds = int32(j.random.IntN(10))
		}
	}
	out, err := j.SendMessageBatch(j.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: j.urls["work"], Entries: entries})
	if err != nil || len(out.Successful)+len(out.Failed) != len(entries) {
		j.fail("send: %v", err)
	}
	for _, done := range out.Successful {
		i, _ := strconv.Atoi(*done.Id)
		if j.known[*done.MessageId] == nil {
			m := &sentMessage{name: *entries[i].MessageBody, place: len(j.travellers), group: aws.ToString(entries[i].MessageGroupId)}
			j.known[*done.MessageId], j.travellers = m, append(j.travellers, m)
			j.note("sent %s to group %q", m.name, m.group)
		}
	}
}

// take receives messages and checks them.
func (j *journey) take(from string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	messages := j.receive(j.urls[from], change...)
	together := make(map[*sentMessage]bool)
	for _, got := range messages {
		m := j.known[*got.MessageId]
		if m == nil || m.gone {
			j.fail("%s came from %s, which was deleted or never sent", *got.Body, from)
		}
		j.note("%s came from %s for the %s. time", m.name, from, got.Attributes["ApproximateReceiveCount"])
		for _, other := range j.travellers[:m.place] {
			if j.fifo && !j.mortal && other.group == m.group && !other.gone && !together[other] {
				j.fail("%s came before %s", m.name, other.name)
			}
		}
		together[m] = true
		j.receipts = append(j.receipts, heldReceipt{m, from, *got.ReceiptHandle})
	}
	return messages
}

// anyReceipt returns one of the latest receipts, valid or not.
func (j *journey) anyReceipt() (heldReceipt, bool) {
	if len(j.receipts) == 0 {
		return heldReceipt{}, false
	}
	return j.receipts[max(0, len(j.receipts)-1-j.random.IntN(15))], true
}

func (j *journey) deleteOne() {
	m, ok := j.anyReceipt()
	if !ok {
		return
	}
	_, err := j.DeleteMessage(j.t.Context(), &sqs.DeleteMessageInput{QueueUrl: j.urls[m.queue], ReceiptHandle: &m.receipt})
	j.note("deleted %s from %s: %v", m.name, m.queue, err)
	switch {
	case err != nil && !j.fifo:
		j.fail("a standard queue forgives receipts: %v", err)
	case err == nil && (j.fifo || !j.mortal):
		m.gone = true
	case err == nil:
		m.doubtful = true
	}
}

func (j *journey) changeOne() {
	if m, ok := j.anyReceipt(); ok {
		seconds := []int32{0, 0, 1, 3, 10, 43_199}[j.random.IntN(6)]
		_, err := j.ChangeMessageVisibility(j.t.Context(), &sqs.ChangeMessageVisibilityInput{
			QueueUrl: j.urls[m.queue], ReceiptHandle: &m.receipt, VisibilityTimeout: seconds,
		})
		j.note("%s is hidden for %d s: %v", m.name, seconds, err)
	}
}

// rule changes settings, starts or stops a move task, or deletes the dead-letter queue.
func (j *journey) rule() {
	switch n := j.random.IntN(8); {
	case n < 2:
		if err := j.set(j.urls["work"], "DelaySeconds", strconv.Itoa(j.random.IntN(3))); err != nil {
			j.fail("delay: %v", err)
		}
	case !j.mortal:
	case n < 4:
		j.setMaxReceives(j.random.IntN(4))
	case n < 6:
		input := &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(j.arns["dead"])}
		if j.random.IntN(2) == 0 {
			input.DestinationArn, input.MaxNumberOfMessagesPerSecond = aws.String(j.arns["work"]), aws.Int32(2)
		}
		if out, err := j.StartMessageMoveTask(j.t.Context(), input); err == nil {
			j.task = out.TaskHandle
			j.note("move task")
		}
	case n == 6 && j.task != nil:
		_, err := j.CancelMessageMoveTask(j.t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: j.task})
		j.note("cancel: %v", err)
	default:
		counts := j.attributes(j.urls["dead"])
		if counts["ApproximateNumberOfMessages"] == "0" && counts["ApproximateNumberOfMessagesNotVisible"] == "0" {
			j.note("the dead-letter queue is deleted")
			j.deleteQueue(j.urls["dead"])
			j.sleep(time.Duration(j.random.IntN(3)) * time.Second)
			j.build()
		}
	}
}

// step runs one random action.
func (j *journey) step() {
	short := func(in *sqs.ReceiveMessageInput) {
		in.MaxNumberOfMessages, in.VisibilityTimeout = int32(1+j.random.IntN(10)), int32(j.random.IntN(6))
		in.WaitTimeSeconds = int32(j.random.IntN(3))
		if j.fifo && j.random.IntN(4) == 0 {
			in.ReceiveRequestAttemptId = aws.String(strconv.Itoa(j.random.IntN(3)))
		}
	}
	switch n := j.random.IntN(20); {
	case n < 5:
		j.sendSome()
	case n < 10:
		j.take("work", short)
	case n == 10:
		j.take("dead", short)
	case n < 14:
		j.deleteOne()
	case n < 16:
		j.changeOne()
	case n < 18:
		j.sleep(time.Duration(j.random.IntN(5000)) * time.Millisecond)
	case n == 18:
		j.rule()
	case j.random.IntN(4) == 0:
		j.note("another daemon")
		j.d.close()
		j.start(j.d.ring)
	}
}

// arrive receives and deletes everything, and checks that nothing is missing.
func (j *journey) arrive() {
	if j.mortal {
		j.setMaxReceives(0)
	}
	j.sleep(13 * time.Hour)
	for _, from := range []string{"work", "dead", "work", "dead"} {
		for empty := 0; empty < 2; empty++ {
			for got := j.take(from, visible(30)); len(got) > 0; got = j.take(from, visible(30)) {
				for _, m := range got {
					j.delete(j.urls[from], m)
					j.known[*m.MessageId].gone = true
				}
			}
			j.sleep(2 * time.Minute)
		}
	}
	for _, m := range j.travellers {
		if !m.gone && !m.doubtful {
			j.fail("%s is lost", m.name)
		}
	}
}

func TestNoSequenceOfActionsLosesOrReordersMessages(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := membox.New(&membox.Options{MaxBodyBytes: sqsapi.MaxPayloadBytes})
				defer func() { _ = backend.Close() }()
				j := &journey{
					client: &client{t: t}, backend: backend, random: rand.New(rand.NewPCG(seed, 1)), fifo: seed%2 == 1, mortal: seed%4 >= 2,
					urls: make(map[string]*string), arns: make(map[string]string), known: make(map[string]*sentMessage), sleep: time.Sleep,
				}
				if j.fifo {
					j.suffix = ".fifo"
				}
				j.start(keyring.New(keyring.NewKey()))
				j.build()
				if j.mortal {
					j.setMaxReceives(2)
				}
				for range 150 {
					j.step()
				}
				j.arrive()
			})
		})
	}
}
