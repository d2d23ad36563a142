package redisbox

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if answer, ok := ctx.Value(linkedAnswerKey{}).(*linkedAnswer); ok && !answer.tried && len(receipts) == 1 {
		return h.ackWithAnswer(ctx, receipts, answer)
	}
	return h.settle(ctx, "ack", len(receipts), acks(receipts))
}

// acks returns the elements of an ack, see settle.
func acks(receipts []driver.Receipt) func(i int) (receipt driver.Receipt, what, detail string, err error) {
	return func(i int) (driver.Receipt, string, string, error) { return receipts[i], "a", "", nil }
}

// AckLate removes messages like Ack, and accepts expired receipts too; see
// driver.Queue. It is one call for a batch, as Ack is.
func (h *handle) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return h.settle(ctx, "ack late", len(receipts), func(i int) (driver.Receipt, string, string, error) {
		if shard.IsOldReceipt(receipts[i]) { // it does not contain the place of the message
			return receipts[i], "a", "", nil
		}
		return receipts[i], "l", shard.PackDoubles(shard.PlaceOfReceipt(receipts[i])), nil
	})
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	traits := h.Traits()
	return h.settle(ctx, "nack", len(nacks), func(i int) (driver.Receipt, string, string, error) {
		nack := &nacks[i]
		return nack.Receipt, nackModes[nack.Mode], shard.PackNack(nack), nack.Check(&traits)
	})
}

// nackModes are the operations of settle.lua.
var nackModes = map[driver.NackMode]string{driver.NackFailed: "n", driver.NackRelease: "r", driver.NackPutBack: "p"}

func (h *handle) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return h.extend(ctx, extensions, "e")
}

// ExtendLate moves deadlines like Extend, and leases messages again whose latest
// delivery has just expired; see driver.Queue.
func (h *handle) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	_, err := h.extend(ctx, extensions, "g")
	return err
}

func (h *handle) extend(ctx context.Context, extensions []driver.Extension, what string) ([]time.Duration, error) {
	traits := h.Traits()
	cuts := make(map[int]time.Duration)
	err := h.settleParts(ctx, "extend", len(extensions), func(i int) (driver.Receipt, string, string, error) {
		extension := &extensions[i]
		err := extension.Check(&traits)
		return extension.Receipt, what, shard.PackDoubles(shard.Micros(extension.Visibility)), err
	}, func(*shard.SettleOp) {}, func(part *shard.SettleOp) { part.CutsInto(cuts) })
	granted := driver.GrantedAsAsked(extensions, err)
	for i, cut := range cuts {
		if i < len(granted) {
			granted[i] = cut
		}
	}
	return granted, err
}

func (h *handle) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return h.settle(ctx, "dead-letter", len(requests), func(i int) (driver.Receipt, string, string, error) {
		request := &requests[i]
		if !request.Reason.Valid() {
			return request.Receipt, "", "", &driver.Error{
				Code: driver.ErrInvalid, Field: "Reason",
				Detail: fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", request.Reason),
			}
		}
		return request.Receipt, "b", shard.PackDeadLetter(request.Reason, request.Error, request.ErrorType), nil
	})
}

// settle settles a batch. each returns the receipt of an element, the operation and its
// details, or an error.
func (h *handle) settle(ctx context.Context, op string, n int, each func(i int) (receipt driver.Receipt, what, detail string, err error)) error {
	return h.settleParts(ctx, op, n, each, func(*shard.SettleOp) {}, func(*shard.SettleOp) {})
}

// settleParts is settle, and calls begin with each part before it is sent, and done when the shard has
// answered it.
func (h *handle) settleParts(ctx context.Context, op string, n int, each func(i int) (receipt driver.Receipt, what, detail string, err error), begin, done func(*shard.SettleOp)) error {
	if err := h.check(ctx, op); err != nil {
		return err
	}
	var failed []error
	var parts []*shard.SettleOp
	for i := range n {
		receipt, what, detail, err := each(i)
		if err != nil {
			failed = driver.FailAt(failed, n, i, h.named(err, op))
			continue
		}
		s := h.ShardOfReceipt(receipt)
		if s == nil {
			failed = driver.FailAt(failed, n, i, h.expired(op, receipt))
			continue
		}
		parts = shard.AddSettleOp(ctx, parts, s)
		parts[len(parts)-1].Add(i, what, receipt, detail)
	}
	for _, part := range parts {
		begin(part)
		part.Shard.Shared.Submit(ctx, part)
	}
	for _, part := range parts {
		select {
		case <-part.Done:
		case <-ctx.Done(): // operations that were submitted are completed
			return ctx.Err()
		}
		if part.Err != nil {
			return h.outcome(part.Err, op)
		}
		done(part)
		for k, i := range part.Positions {
			if err := h.settleError(op, part, k); err != nil {
				failed = driver.FailAt(failed, n, i, err)
			}
		}
	}
	return driver.NewBatchError(failed)
}

// settleError returns the error of the k-th element of a part; see settle.lua for the
// codes.
func (q *queue) settleError(op string, part *shard.SettleOp, k int) error {
	if part.Codes == "" {
		return nil
	}
	switch part.Codes[k] {
	case 's', 'c':
		return nil
	case 'f':
		return &driver.Error{
			Code: driver.ErrFull, Op: op, Queue: q.Name, MessageID: part.Settlements[k].ID,
			Detail: "the dead letters are full", RetryAfter: driver.DeadRetry,
		}
	}
	return q.expired(op, driver.Receipt{Handle: part.Settlements[k].ID})
}

func (q *queue) expired(op string, receipt driver.Receipt) error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: q.Name, MessageID: receipt.Handle}
}
