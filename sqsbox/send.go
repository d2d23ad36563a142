package sqsbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

type (
	sendEntry  = types.SendMessageBatchRequestEntry
	sendResult = types.SendMessageBatchResultEntry
)

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := h.check(ctx, "send"); err != nil {
		return nil, err
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	start := time.Now()
	bad := make([]error, len(msgs))
	entries, positions := make([]sendEntry, 0, len(msgs)), make([]int, 0, len(msgs))
	uses := make([]keyUse, len(msgs)) // copied: the caller may change a message after a cancelled call
	for i := range msgs {
		entry, err := h.entry(&msgs[i])
		if err != nil {
			bad[i] = driver.Annotate(err, h.name, "send")
			continue
		}
		if msgs[i].DedupKey != "" {
			uses[i] = keyUse{msgs[i].DedupKey, sha256.Sum256(msgs[i].Body)}
		}
		entries, positions = append(entries, entry), append(positions, i)
	}
	sent := make([]driver.Sent, len(msgs))
	answers, err := h.sends.do(ctx, entries, nil, func(n int, a *answer[sendResult]) {
		if a.err == nil {
			sent[positions[n]], a.err = h.sent(deref(a.result.MessageId), uses[positions[n]], start)
		}
		a.err = driver.Annotate(a.err, h.name, "send")
	})
	if err != nil {
		return nil, err
	}
	err = failuresOf(bad, positions, answers)
	if _, partly := errors.AsType[*driver.BatchError](err); err != nil && !partly {
		return nil, err
	}
	return sent, err
}

// keyUse is a dedup key and the hash of the body it is used for.
type keyUse struct {
	key  string
	body [sha256.Size]byte
}

// sent returns the result of a message that SQS accepted, now or earlier under the same
// dedup key. SQS silently drops another body under the same key.
func (q *queue) sent(uuid string, use keyUse, start time.Time) (driver.Sent, error) {
	result := driver.Sent{ID: messageID(uuid)}
	if use.key == "" {
		return result, nil
	}
	duplicate, conflict := q.backend.local.sent(q.physical, use.key, use.body, result.ID, start)
	if conflict {
		return driver.Sent{}, conflictWith(result.ID)
	}
	result.Duplicate = duplicate
	return result, nil
}

func conflictWith(first string) error {
	return &driver.Error{Code: driver.ErrConflict, Field: "DedupKey", MessageID: first, Detail: "was used for another body"}
}

// entry returns the batch entry of a message, or an error if SQS would refuse it.
func (q *queue) entry(msg *driver.Outgoing) (sendEntry, error) {
	current := q.settings.Load()
	limits := current.traits
	if len(msg.Body) > limits.MaxBodyBytes && isText(string(msg.Body)) {
		limits.MaxBodyBytes = len(msg.Body) // text is not encoded, so only the size below counts
	}
	if err := msg.Check(&limits); err != nil {
		return sendEntry{}, err
	}
	group, same := token(msg.Group)
	p, err := encode(msg, msg.Group != "" && !(same && current.traits.StrictGroups))
	if err != nil {
		return sendEntry{}, &driver.Error{Code: driver.ErrEncoding, Field: "Attributes", Err: err}
	}
	if size := p.size(); size > current.maxMessage {
		return sendEntry{}, &driver.Error{Code: driver.ErrTooLarge, Field: "Body", Detail: fmt.Sprintf(
			"%d bytes with attributes, as SQS counts; at most %d are allowed", size, current.maxMessage)}
	}
	entry := sendEntry{MessageBody: aws.String(p.body)}
	if len(p.attributes) > 0 {
		entry.MessageAttributes = p.attributes
	}
	delay := msg.Delay
	if !msg.DeliverAt.IsZero() {
		delay = min(time.Until(msg.DeliverAt.Round(0)), limits.MaxDelay)
	}
	if delay > 0 {
		entry.DelaySeconds = int32(wholeSeconds(delay))
	}
	if msg.Group != "" {
		entry.MessageGroupId = aws.String(group) // on a standard queue: for fair sharing
	}
	if current.traits.StrictGroups {
		return entry, q.addFIFO(&entry, msg)
	}
	return entry, nil
}

// addFIFO adds what messages of a FIFO queue must have: a group and a dedup id. Without
// a dedup key the id is random, so that the SDK can repeat a request safely.
func (q *queue) addFIFO(entry *sendEntry, msg *driver.Outgoing) error {
	if msg.Group == "" {
		entry.MessageGroupId = aws.String(noGroup)
	}
	if msg.DedupKey == "" {
		entry.MessageDeduplicationId = aws.String(ulid.Make().String())
		return nil
	}
	key, _ := token(msg.DedupKey)
	entry.MessageDeduplicationId = aws.String(key)
	if first, conflict := q.backend.local.conflicts(q.physical, msg.DedupKey, msg.Body); conflict {
		return conflictWith(first)
	}
	return nil
}
