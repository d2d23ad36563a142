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
	uses := make([]keyUse, len(msgs)) // the caller may change a message when we are gone
	for i := range msgs {
		entry, err := h.address(&msgs[i])
		if err != nil {
			bad[i] = named(err, h.name, "send")
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
		a.err = named(a.err, h.name, "send")
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

// keyUse is what a dedup key is used for.
type keyUse struct {
	key  string
	body [sha256.Size]byte
}

// sent is the result of a message that SQS took, or had taken before. Another body
// under the same key SQS has dropped without a word.
func (q *queue) sent(uuid string, use keyUse, start time.Time) (driver.Sent, error) {
	result := driver.Sent{ID: messageID(uuid)}
	if use.key == "" {
		return result, nil
	}
	duplicate, conflict := q.backend.recall.sent(q.physical, use.key, use.body, result.ID, start)
	if conflict {
		return driver.Sent{}, conflictWith(result.ID)
	}
	result.Duplicate = duplicate
	return result, nil
}

func conflictWith(first string) error {
	return &driver.Error{Code: driver.ErrConflict, Field: "DedupKey", MessageID: first, Detail: "was used for another body"}
}

// address makes an entry of a message, or says why SQS could not take it.
func (q *queue) address(msg *driver.Outgoing) (sendEntry, error) {
	current := q.settings.Load()
	limits := current.traits
	if len(msg.Body) > limits.MaxBodyBytes && isText(string(msg.Body)) {
		limits.MaxBodyBytes = len(msg.Body) // text goes as it is, and may be as long as it fits
	}
	if err := msg.Check(&limits); err != nil {
		return sendEntry{}, err
	}
	group, same := token(msg.Group)
	p, err := pack(msg, msg.Group != "" && !(same && current.traits.StrictGroups))
	if err != nil {
		return sendEntry{}, &driver.Error{Code: driver.ErrEncoding, Field: "Attributes", Err: err}
	}
	if size := p.size(); size > current.maxMessage {
		return sendEntry{}, &driver.Error{Code: driver.ErrTooLarge, Field: "Body", Detail: fmt.Sprintf(
			"%d bytes with attributes, as SQS counts, at most %d are allowed", size, current.maxMessage)}
	}
	entry := sendEntry{MessageBody: aws.String(p.body)}
	if len(p.attributes) > 0 {
		entry.MessageAttributes = p.attributes
	}
	if msg.Delay > 0 {
		entry.DelaySeconds = int32(wholeSeconds(msg.Delay))
	}
	if msg.Group != "" {
		entry.MessageGroupId = aws.String(group) // on a standard queue: who shares it fairly
	}
	if current.traits.StrictGroups {
		return entry, q.line(&entry, msg)
	}
	return entry, nil
}

// line adds what messages of a FIFO queue must have: a group, and a dedup id. One
// that was not asked for is made up, so that the SDK can repeat a request.
func (q *queue) line(entry *sendEntry, msg *driver.Outgoing) error {
	if msg.Group == "" {
		entry.MessageGroupId = aws.String(noGroup)
	}
	if msg.DedupKey == "" {
		entry.MessageDeduplicationId = aws.String(ulid.Make().String())
		return nil
	}
	key, _ := token(msg.DedupKey)
	entry.MessageDeduplicationId = aws.String(key)
	if first, conflict := q.backend.recall.conflicts(q.physical, msg.DedupKey, msg.Body); conflict {
		return conflictWith(first)
	}
	return nil
}
