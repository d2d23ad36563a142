package sqsapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// wrongKind is the message of AWS for a parameter of the other kind of queue.
const wrongKind = "The request include parameter that is not valid for this queue type."

// sendMessage sends one message.
func (r *request) sendMessage(ctx context.Context, in *sqswire.SendMessageInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	var message [1]broker.Outgoing
	entry := sqswire.SendMessageBatchRequestEntry{
		MessageBody: in.MessageBody, DelaySeconds: in.DelaySeconds, MessageAttributes: in.MessageAttributes,
		MessageSystemAttributes: in.MessageSystemAttributes, MessageGroupID: in.MessageGroupID, MessageDeduplicationID: in.MessageDeduplicationID,
	}
	if err := r.prepare(&message[0], q, &entry); err != nil {
		return nil, err
	}
	sent, err := r.caller.Send(ctx, q.Queue, message[:])
	id, err := idOf(sent, err, 0)
	if err != nil {
		return nil, err
	}
	out := &sqswire.SendMessageOutput{
		MessageID: messageID(id), MD5OfMessageBody: sqswire.MD5OfBody(in.MessageBody),
		MD5OfMessageAttributes:       sqswire.MD5OfAttributes(in.MessageAttributes),
		MD5OfMessageSystemAttributes: sqswire.MD5OfAttributes(in.MessageSystemAttributes),
	}
	if q.FIFO {
		out.SequenceNumber = sequenceNumber(id)
	}
	return out, nil
}

// idOf returns the id of a sent message. A dedup key that was used for another body is a
// conflict in the engine; in SQS it returns the first message.
func idOf(sent []driver.Sent, err error, i int) (string, error) {
	if err == nil {
		return sent[i].ID, nil
	}
	if err = driver.At(err, i); err == nil {
		return sent[i].ID, nil
	}
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Code == driver.ErrConflict && e.MessageID != "" {
		return e.MessageID, nil
	}
	return "", err
}

// prepare checks a message for a queue, and converts it for the broker.
func (r *request) prepare(out *broker.Outgoing, q *queue, in *sqswire.SendMessageBatchRequestEntry) error {
	if err := q.checkContent(in); err != nil {
		return err
	}
	h := hidden{Trace: r.trace}
	if err := q.order(out, in, &h); err != nil {
		return err
	}
	return fill(out, in, h)
}

// checkContent checks the body and the attributes of a message.
func (q *queue) checkContent(in *sqswire.SendMessageBatchRequestEntry) error {
	if in.MessageBody == "" {
		return missing("MessageBody")
	}
	if err := sqswire.CheckBody(in.MessageBody); err != nil {
		return err
	}
	if err := sqswire.CheckAttributes(in.MessageAttributes); err != nil {
		return err
	}
	if err := sqswire.CheckSystemAttributes(in.MessageSystemAttributes); err != nil {
		return err
	}
	return sqswire.CheckMessageSize(in.MessageBody, in.MessageAttributes, q.MaxSize)
}

// order checks and sets the delay, the group and the dedup id of a message.
func (q *queue) order(out *broker.Outgoing, in *sqswire.SendMessageBatchRequestEntry, h *hidden) error {
	if err := q.prepareDelay(out, in.DelaySeconds); err != nil {
		return err
	}
	if in.MessageGroupID != nil {
		if err := sqswire.CheckGroupID(*in.MessageGroupID); err != nil {
			return err
		}
		out.Group = *in.MessageGroupID
	}
	return q.prepareDedup(out, in, h)
}

// fill sets the checked body and attributes of a message.
func fill(out *broker.Outgoing, in *sqswire.SendMessageBatchRequestEntry, h hidden) error {
	if trace, ok := in.MessageSystemAttributes[sqswire.TraceHeader]; ok && trace.StringValue != nil {
		h.Trace = *trace.StringValue
	}
	return wrap(&out.Outgoing, in.MessageBody, in.MessageAttributes, h)
}

// prepareDelay sets the delay: that of the message, or that of the queue.
func (q *queue) prepareDelay(out *broker.Outgoing, asked *int) error {
	seconds := q.Delay
	if asked != nil {
		switch {
		case *asked < 0 || *asked > maxDelaySeconds:
			return outOfRange("DelaySeconds", *asked, "DelaySeconds must be >= 0 and <= 900.")
		case q.FIFO && *asked > 0:
			return outOfRange("DelaySeconds", *asked, wrongKind)
		case !q.FIFO:
			seconds = *asked
		}
	}
	out.Delay = time.Duration(seconds) * time.Second
	return nil
}

// prepareDedup sets the dedup key of a message.
func (q *queue) prepareDedup(out *broker.Outgoing, in *sqswire.SendMessageBatchRequestEntry, h *hidden) error {
	id := in.MessageDeduplicationID
	if !q.FIFO {
		if id != nil {
			return invalidValue("MessageDeduplicationId", *id, wrongKind)
		}
		return nil
	}
	if in.MessageGroupID == nil {
		return missing("MessageGroupId")
	}
	switch {
	case id != nil:
		if err := sqswire.CheckDeduplicationID(*id); err != nil {
			return err
		}
		out.DedupKey = *id
	case q.ContentDedup:
		sum := sha256.Sum256([]byte(in.MessageBody))
		out.DedupKey = hex.EncodeToString(sum[:])
	default:
		return sqswire.InvalidParameterValue.Withf("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	if q.DedupScope == scopeGroup {
		h.Dedup = out.DedupKey
		sum := sha256.Sum256([]byte(out.Group + "\x00" + out.DedupKey))
		out.DedupKey = hex.EncodeToString(sum[:])
	}
	return nil
}

// sendMessageBatch sends up to ten messages, each of which may fail alone.
func (r *request) sendMessageBatch(ctx context.Context, in *sqswire.SendMessageBatchInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := in.CheckEntries(); err != nil {
		return nil, err
	}
	if err := in.CheckBatchSize(); err != nil {
		return nil, err
	}
	out := new(sqswire.SendMessageBatchOutput)
	messages := make([]broker.Outgoing, 0, len(in.Entries))
	entries := make([]*sqswire.SendMessageBatchRequestEntry, 0, len(in.Entries))
	for i := range in.Entries {
		var message broker.Outgoing
		h := hidden{Trace: r.trace}
		err := q.order(&message, &in.Entries[i], &h)
		if err != nil && q.FIFO {
			return nil, wholeBatch(err)
		}
		if err == nil {
			err = q.checkContent(&in.Entries[i])
		}
		if err == nil {
			err = fill(&message, &in.Entries[i], h)
		}
		if err != nil {
			out.Failed = append(out.Failed, faultOf(err, r).Entry(in.Entries[i].ID))
			continue
		}
		messages = append(messages, message)
		entries = append(entries, &in.Entries[i])
	}
	if len(messages) == 0 {
		return out, nil
	}
	sent, err := r.caller.Send(ctx, q.Queue, messages)
	if err := wholeError(err); err != nil {
		return nil, err
	}
	out.Successful = make([]sqswire.SendMessageBatchResultEntry, 0, len(entries))
	for i, entry := range entries {
		id, err := idOf(sent, err, i)
		if err != nil {
			out.Failed = append(out.Failed, faultOf(err, r).Entry(entry.ID))
			continue
		}
		result := sqswire.SendMessageBatchResultEntry{
			ID: entry.ID, MessageID: messageID(id), MD5OfMessageBody: sqswire.MD5OfBody(entry.MessageBody),
			MD5OfMessageAttributes:       sqswire.MD5OfAttributes(entry.MessageAttributes),
			MD5OfMessageSystemAttributes: sqswire.MD5OfAttributes(entry.MessageSystemAttributes),
		}
		if q.FIFO {
			result.SequenceNumber = sequenceNumber(id)
		}
		out.Successful = append(out.Successful, result)
	}
	return out, nil
}

// wholeBatch returns the error of a batch for a FIFO queue in which one entry has an
// invalid group, dedup id or delay: AWS then sends no entry. The code is never that of a
// missing parameter.
func wholeBatch(err error) error {
	if e, ok := errors.AsType[*sqswire.Error](err); ok && e.Code == sqswire.MissingParameter {
		return sqswire.InvalidParameterValue.Withf("%s", e.Message)
	}
	return err
}

// wholeError returns err if it concerns the whole call, and not single entries.
func wholeError(err error) error {
	if err == nil {
		return nil
	}
	if _, positions := errors.AsType[*driver.BatchError](err); positions {
		return nil
	}
	return err
}
