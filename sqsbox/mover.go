package sqsbox

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// A mover moves messages by receiving, sending and deleting them.
type mover struct {
	*handle
	to      string            // the target; empty: each message goes to its source
	targets map[string]*queue // open queues by name; nil: there is no such queue
	// staying are messages that could not be moved. They stay hidden until the end,
	// so that they are not received again, and are then given back.
	staying []types.Message
}

func (m *mover) end(ctx context.Context) {
	m.unseen(m.staying)
	for chunk := range slices.Chunk(m.staying, maxEntries) {
		m.giveBack(ctx, chunk)
	}
	for _, target := range m.targets {
		if target != nil {
			m.backend.release(target)
		}
	}
}

// forward sends messages to their targets, and deletes those that SQS accepted.
func (m *mover) forward(ctx context.Context, messages []types.Message) (moved int, err error) {
	arrived := make([]bool, len(messages))
	defer func() {
		for i, done := range arrived {
			if !done {
				m.staying = append(m.staying, messages[i])
			}
		}
	}()
	for from := 0; from < len(messages); {
		target, err := m.targetOf(ctx, &messages[from])
		if err != nil {
			return moved, err
		}
		next := from + 1
		for next < len(messages) {
			if other, err := m.targetOf(ctx, &messages[next]); err != nil || other != target {
				break // a failure occurs again in the next round
			}
			next++
		}
		if target != nil {
			n, err := m.forwardTo(ctx, target, messages[from:next], arrived[from:next])
			moved += n
			if err != nil {
				return moved, err
			}
		}
		from = next
	}
	return moved, nil
}

// targetOf returns the queue that a message goes to; nil means that it stays.
func (m *mover) targetOf(ctx context.Context, message *types.Message) (*queue, error) {
	to := m.to
	if to == "" {
		to = m.delivery(message).Attributes[driver.AttributeDeadSource]
	}
	if target, known := m.targets[to]; known {
		return target, nil
	}
	if driver.CheckName(to) != nil {
		return nil, nil
	}
	at, err := m.backend.find(ctx, to)
	if m.to == "" && (isCode(err, driver.ErrNotFound) || err == nil && at.physical == m.physical) {
		m.targets[to] = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	target, err := m.backend.acquire(ctx, to)
	if err == nil {
		m.targets[to] = target
	}
	return target, err
}

// forwardTo sends messages to one queue, deletes those that SQS accepted, and marks
// them in arrived.
func (m *mover) forwardTo(ctx context.Context, target *queue, messages []types.Message, arrived []bool) (moved int, err error) {
	entries := make([]sendEntry, len(messages))
	for i := range messages {
		if entries[i], err = m.entryFor(target, &messages[i]); err != nil {
			return 0, err
		}
	}
	sent, err := target.sends.do(ctx, entries, nil, func(int, *answer[sendResult]) {})
	if err != nil {
		return 0, err
	}
	var removals []deleteEntry
	for i, a := range sent {
		if a.err != nil {
			err = a.err
			continue
		}
		arrived[i] = true
		removals = append(removals, deleteEntry{ReceiptHandle: messages[i].ReceiptHandle})
		m.backend.local.moved(m.physical, target.physical, m.delivery(&messages[i]).ID)
	}
	removed, failure := m.acks.do(ctx, removals, nil, func(int, *answer[struct{}]) {})
	for _, a := range removed {
		if a.err != nil {
			failure = a.err // the message is in both queues, and becomes visible here again
			continue
		}
		moved++
	}
	if failure != nil {
		err = failure
	}
	return moved, err
}

// entryFor returns the entry of a received message for another queue, with all
// attributes of other producers.
func (m *mover) entryFor(target *queue, message *types.Message) (sendEntry, error) {
	d := m.delivery(message)
	_, _, s := decode(message)
	s.ID, s.Enqueued = d.ID, d.EnqueuedAt.UnixMilli()
	if d.Deliveries > 1 { // otherwise this is its first delivery
		s.FirstReceived = d.FirstReceivedAt.UnixMilli()
	}
	p := wireMessage{body: deref(message.Body), attributes: make(map[string]types.MessageAttributeValue)}
	for name, value := range message.MessageAttributes {
		_, _, isMetadata := readMetadata(value, p.body)
		switch {
		case isDeath(name), name == metadataName && isMetadata:
		case name == metadataName:
			s.put(name, valueText(value)) // another producer's attribute of that name
		default:
			p.attributes[name] = value
		}
	}
	for name := range s.Attributes {
		if isDeath(name) {
			delete(s.Attributes, name)
		}
	}
	strict := target.settings.Load().traits.StrictGroups
	group, same := token(d.Group)
	s.Group = nil
	if d.Group != "" && !(same && strict) {
		s.Group = aws.String(d.Group)
	}
	if err := p.attach(&s); err != nil {
		return sendEntry{}, &driver.Error{Code: driver.ErrEncoding, Err: err}
	}
	entry := sendEntry{MessageBody: aws.String(p.body), MessageAttributes: p.attributes}
	if d.Group != "" {
		entry.MessageGroupId = aws.String(group)
	}
	if strict {
		if d.Group == "" {
			entry.MessageGroupId = aws.String(noGroup)
		}
		entry.MessageDeduplicationId = aws.String("mailbox.moved." + deref(message.MessageId))
	}
	return entry, nil
}

func isDeath(name string) bool { return strings.HasPrefix(name, "mailbox.dead.") }
