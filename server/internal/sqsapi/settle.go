package sqsapi

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// deleteMessage deletes a received message.
func (r *request) deleteMessage(ctx context.Context, in *sqswire.DeleteMessageInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	receipts := [1]string{in.ReceiptHandle}
	var failures [1]error
	if err := r.remove(ctx, q, receipts[:], failures[:]); err != nil {
		return nil, err
	}
	if failures[0] != nil {
		return nil, failures[0]
	}
	return new(sqswire.DeleteMessageOutput), nil
}

// deleteMessageBatch deletes up to ten.
func (r *request) deleteMessageBatch(ctx context.Context, in *sqswire.DeleteMessageBatchInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := in.CheckEntries(); err != nil {
		return nil, err
	}
	receipts, failures := make([]string, len(in.Entries)), make([]error, len(in.Entries))
	for i := range in.Entries {
		receipts[i] = in.Entries[i].ReceiptHandle
	}
	if err := r.remove(ctx, q, receipts, failures); err != nil {
		return nil, err
	}
	out := &sqswire.DeleteMessageBatchOutput{Successful: make([]sqswire.DeleteMessageBatchResultEntry, 0, len(failures))}
	for i, failure := range failures {
		if failure != nil {
			out.Failed = append(out.Failed, faultOf(failure, r).Entry(in.Entries[i].ID))
			continue
		}
		out.Successful = append(out.Successful, sqswire.DeleteMessageBatchResultEntry{ID: in.Entries[i].ID})
	}
	return out, nil
}

// remove deletes messages, and sets the errors in failures. Standard queues accept a
// receipt that has expired, and one of a deleted message; FIFO queues do not.
func (r *request) remove(ctx context.Context, q *queue, receipts []string, failures []error) error {
	good, at := r.receiptsOf(q, receipts, failures)
	if len(good) == 0 {
		// A caller without permission gets that error, and not one about receipts.
		return r.caller.Ack(ctx, q.Queue, nil)
	}
	ack := r.caller.AckLate
	if q.FIFO {
		ack = r.caller.Ack
	}
	err := ack(ctx, q.Queue, good)
	strict := q.FIFO
	if errors.Is(err, driver.ErrUnsupported) && !q.FIFO {
		err, strict = r.caller.Ack(ctx, q.Queue, good), true
	}
	if whole := wholeError(err); whole != nil {
		return whole
	}
	for i := range good {
		failure := driver.At(err, i)
		switch {
		case failure == nil:
		case !errors.Is(failure, driver.ErrReceiptExpired):
			failures[at[i]] = failure
		case q.FIFO:
			failures[at[i]] = expiredHandle(good[i])
		case strict:
			failures[at[i]] = sqswire.UnsupportedOperation.Withf("The backend of this service cannot delete with a receipt handle that has expired.")
		}
	}
	return nil
}

// receiptsOf returns the well-formed receipts and their positions.
func (r *request) receiptsOf(q *queue, receipts []string, failures []error) (good []string, at []int) {
	good, at = make([]string, 0, len(receipts)), make([]int, 0, len(receipts))
	for i, receipt := range receipts {
		if failure := r.checkReceipt(q, receipt); failure != nil {
			failures[i] = failure
			continue
		}
		good, at = append(good, receipt), append(at, i)
	}
	return good, at
}

func (r *request) checkReceipt(q *queue, receipt string) error {
	if receipt == "" {
		return missing("ReceiptHandle")
	}
	if _, ok := r.caller.Taken(q.Queue, receipt); !ok {
		return sqswire.ReceiptHandleIsInvalid.Withf("The input receipt handle \"%s\" is not a valid receipt handle.", receipt)
	}
	return nil
}

func expiredHandle(receipt string) *sqswire.Error {
	return invalidValue("ReceiptHandle", receipt, "The receipt handle has expired.")
}

// changeMessageVisibility changes the visibility timeout of a message.
func (r *request) changeMessageVisibility(ctx context.Context, in *sqswire.ChangeMessageVisibilityInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	entries := [1]sqswire.ChangeMessageVisibilityBatchRequestEntry{{ReceiptHandle: in.ReceiptHandle, VisibilityTimeout: in.VisibilityTimeout}}
	var failures [1]error
	if err := r.extend(ctx, q, entries[:], failures[:]); err != nil {
		return nil, err
	}
	if failures[0] != nil {
		return nil, failures[0]
	}
	return new(sqswire.ChangeMessageVisibilityOutput), nil
}

// changeMessageVisibilityBatch does so for up to ten.
func (r *request) changeMessageVisibilityBatch(ctx context.Context, in *sqswire.ChangeMessageVisibilityBatchInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := in.CheckEntries(); err != nil {
		return nil, err
	}
	failures := make([]error, len(in.Entries))
	if err := r.extend(ctx, q, in.Entries, failures); err != nil {
		return nil, err
	}
	out := new(sqswire.ChangeMessageVisibilityBatchOutput)
	for i, failure := range failures {
		if failure != nil {
			out.Failed = append(out.Failed, faultOf(failure, r).Entry(in.Entries[i].ID))
			continue
		}
		out.Successful = append(out.Successful, sqswire.ChangeMessageVisibilityBatchResultEntry{ID: in.Entries[i].ID})
	}
	return out, nil
}

// extend changes deadlines, and sets the errors in failures. On a standard queue a
// receipt that has just expired leases its message again.
func (r *request) extend(ctx context.Context, q *queue, entries []sqswire.ChangeMessageVisibilityBatchRequestEntry, failures []error) error {
	extensions := make([]broker.Extension, 0, len(entries))
	at := make([]int, 0, len(entries))
	now := time.Now()
	for i := range entries {
		extension, err := r.extension(q, &entries[i], now)
		if err != nil {
			failures[i] = err
			continue
		}
		extensions, at = append(extensions, extension), append(at, i)
	}
	if len(extensions) == 0 {
		_, err := r.caller.Extend(ctx, q.Queue, nil)
		return err
	}
	var err error
	if !q.FIFO {
		err = r.caller.ExtendLate(ctx, q.Queue, extensions)
	}
	if q.FIFO || errors.Is(err, driver.ErrUnsupported) {
		_, err = r.caller.Extend(ctx, q.Queue, extensions)
	}
	if whole := wholeError(err); whole != nil {
		return whole
	}
	for i := range extensions {
		failure := driver.At(err, i)
		if errors.Is(failure, driver.ErrReceiptExpired) {
			failure = r.expired(ctx, q, extensions[i].Receipt)
		}
		failures[at[i]] = failure
	}
	return nil
}

// extension checks one entry.
func (r *request) extension(q *queue, entry *sqswire.ChangeMessageVisibilityBatchRequestEntry, now time.Time) (broker.Extension, error) {
	if entry.ReceiptHandle == "" {
		return broker.Extension{}, missing("ReceiptHandle")
	}
	if entry.VisibilityTimeout == nil {
		return broker.Extension{}, missing("VisibilityTimeout")
	}
	seconds := *entry.VisibilityTimeout
	if seconds < 0 || seconds > maxVisibilitySeconds {
		return broker.Extension{}, outOfRange("VisibilityTimeout", seconds, "VisibilityTimeout must be an integer between 0 and 43200.")
	}
	if err := r.checkReceipt(q, entry.ReceiptHandle); err != nil {
		return broker.Extension{}, err
	}
	taken, _ := r.caller.Taken(q.Queue, entry.ReceiptHandle)
	visibility := time.Duration(seconds) * time.Second
	// The receipt was made with the answer, a moment after the lease.
	if held := now.Sub(taken.At).Truncate(time.Second); held > 0 && held+visibility > maxVisibilitySeconds*time.Second {
		return broker.Extension{}, outOfRange("VisibilityTimeout", seconds, "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].")
	}
	return broker.Extension{Receipt: entry.ReceiptHandle, Visibility: visibility}, nil
}

// expired returns the error of a change with an expired receipt. On a standard queue
// there is none as long as the message exists.
func (r *request) expired(ctx context.Context, q *queue, receipt string) error {
	if q.FIFO {
		return expiredHandle(receipt)
	}
	taken, _ := r.caller.Taken(q.Queue, receipt)
	daemon, err := r.service.daemon(q.Tenant)
	if err != nil {
		return err
	}
	query := driver.Query{ID: taken.Message, States: []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight}, Limit: 1}
	for _, err := range daemon.Peek(ctx, q.Queue, query) {
		if errors.Is(err, driver.ErrUnsupported) {
			return nil
		}
		return err
	}
	return invalidValue("ReceiptHandle", receipt, "Message does not exist or is not available for visibility timeout change.")
}
