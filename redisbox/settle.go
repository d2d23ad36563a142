package redisbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return h.settle(ctx, "ack", len(receipts), func(i int) (driver.Receipt, string, string, error) {
		return receipts[i], "a", "", nil
	})
}

// AckLate removes messages like Ack, and accepts expired receipts too; see
// driver.Queue. It is one call for a batch, as Ack is.
func (h *handle) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return h.settle(ctx, "ack late", len(receipts), func(i int) (driver.Receipt, string, string, error) {
		if isOldReceipt(receipts[i]) { // it does not contain the place of the message
			return receipts[i], "a", "", nil
		}
		return receipts[i], "l", packDoubles(placeOfReceipt(receipts[i])), nil
	})
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	traits := h.Traits()
	return h.settle(ctx, "nack", len(nacks), func(i int) (driver.Receipt, string, string, error) {
		nack := &nacks[i]
		err := driver.CheckVisibility("nack", "Delay", nack.Delay, &traits)
		return nack.Receipt, "n", packDoubles(micros(nack.Delay)) + packLong(driver.TrimCause(nack.Cause)), err
	})
}

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
		err := driver.CheckVisibility("extend", "Visibility", extension.Visibility, &traits)
		return extension.Receipt, what, packDoubles(micros(extension.Visibility)), err
	}, func(part *settleOp) { part.cutsInto(cuts) })
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
		return request.Receipt, "b", packDeadLetter(request.Reason, request.Error, request.ErrorType), nil
	})
}

func packDeadLetter(reason driver.Reason, failure, kind string) string {
	return packShort(string(reason)) + packLong(driver.TrimCause(failure)) + packLong(driver.TrimCause(kind))
}

// packShort and packLong pack texts as struct.pack does for 'Bc0' and 'Hc0'.
func packShort(text string) string { return string([]byte{byte(len(text))}) + text }

func packLong(text string) string {
	return string(binary.LittleEndian.AppendUint16(nil, uint16(len(text)))) + text
}

// settle settles a batch. each returns the receipt of an element, the operation and its
// details, or an error.
func (h *handle) settle(ctx context.Context, op string, n int, each func(i int) (receipt driver.Receipt, what, detail string, err error)) error {
	return h.settleParts(ctx, op, n, each, func(*settleOp) {})
}

// settleParts is settle, and calls done with each part that the shard has answered.
func (h *handle) settleParts(ctx context.Context, op string, n int, each func(i int) (receipt driver.Receipt, what, detail string, err error), done func(*settleOp)) error {
	if err := h.check(ctx, op); err != nil {
		return err
	}
	var failed failures
	var parts []*settleOp
	for i := range n {
		receipt, what, detail, err := each(i)
		if err != nil {
			failed.add(n, i, h.named(err, op))
			continue
		}
		s := h.shardOfReceipt(receipt)
		if s == nil {
			failed.add(n, i, h.expired(op, receipt))
			continue
		}
		parts = addSettleOp(ctx, parts, s)
		parts[len(parts)-1].add(i, what, receipt, detail)
	}
	for _, part := range parts {
		part.shard.shared.submit(ctx, part)
	}
	for _, part := range parts {
		select {
		case <-part.done:
		case <-ctx.Done(): // operations that were submitted are completed
			return ctx.Err()
		}
		if part.err != nil {
			return h.outcome(part.err, op)
		}
		done(part)
		for k, i := range part.positions {
			if err := h.settleError(op, part, k); err != nil {
				failed.add(n, i, err)
			}
		}
	}
	return failed.err()
}

// settleError returns the error of the k-th element of a part; see settle.lua for the
// codes.
func (q *queue) settleError(op string, part *settleOp, k int) error {
	if part.codes == "" {
		return nil
	}
	switch part.codes[k] {
	case 's', 'c':
		return nil
	case 'f':
		return &driver.Error{
			Code: driver.ErrFull, Op: op, Queue: q.name, MessageID: part.settlements[k].id,
			Detail: "the dead letters are full", RetryAfter: driver.DeadRetry,
		}
	}
	return q.expired(op, driver.Receipt{Handle: part.settlements[k].id})
}

func (q *queue) expired(op string, receipt driver.Receipt) error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: q.name, MessageID: receipt.Handle}
}

// settleOp is the part of an Ack, Nack, Extend or DeadLetter that goes to one shard; see
// batcher.
type settleOp struct {
	shard       *shard
	ctx         context.Context // of the caller
	positions   []int
	settlements []settlement

	done   chan struct{} // closed when the fields below are set
	codes  string
	grants string // times granted to extensions that were cut, packed
	err    error
}

// shareCodes gives each of settles its part of an answer; see settle.lua.
func shareCodes(settles []*settleOp, answer string) error {
	if answer == "" {
		return nil
	}
	total := 0
	for _, op := range settles {
		total += len(op.positions)
	}
	if len(answer) < total || len(answer) != total+8*strings.Count(answer[:total], "c") {
		return unreadableAnswer(nil)
	}
	codes, grants := answer[:total], answer[total:]
	for _, op := range settles {
		op.codes, codes = codes[:len(op.positions)], codes[len(op.positions):]
		n := 8 * strings.Count(op.codes, "c")
		op.grants, grants = grants[:n], grants[n:]
	}
	return nil
}

// cutsInto adds the times granted to extensions that were cut, by position.
func (o *settleOp) cutsInto(cuts map[int]time.Duration) {
	next := 0
	for k, code := range []byte(o.codes) {
		if code == 'c' {
			cuts[o.positions[k]] = time.Duration(doubleAt(o.grants, next)) * time.Microsecond
			next++
		}
	}
}

func newSettleOp(ctx context.Context, s *shard) *settleOp {
	return &settleOp{shard: s, ctx: ctx, done: make(chan struct{})}
}

// addSettleOp makes the last of parts one for the shard that has room. Receipts mostly
// come from one shard; a batch that alternates between shards makes more parts, which the
// batcher puts into one call again.
func addSettleOp(ctx context.Context, parts []*settleOp, s *shard) []*settleOp {
	if last := len(parts) - 1; last >= 0 && parts[last].shard == s && len(parts[last].positions) < maxElements {
		return parts
	}
	return append(parts, newSettleOp(ctx, s))
}

func (o *settleOp) add(i int, what string, receipt driver.Receipt, detail string) {
	o.positions = append(o.positions, i)
	o.settlements = append(o.settlements, settlement{what: what, id: receipt.Handle, nonce: receipt.Nonce, detail: detail})
}

// A settlement says how to settle one delivery; see settle.lua.
type settlement struct {
	what, id string
	nonce    uint64
	detail   string
}

// Deliveries are numbered by call, by bundle in the call and by message in the bundle;
// see bundle.lua.
const (
	bundleMax     = 16
	noncesPerCall = 1024
)

// together reports whether two settlements can be one argument: they ack messages of
// the same bundle.
func (s *settlement) together(next *settlement) bool {
	return s.what == "a" && next.what == "a" && s.nonce/bundleMax == next.nonce/bundleMax
}

// appendSettlements appends the arguments for settlements, and returns how many pairs
// they are. Acks of one bundle that follow each other are one pair.
func appendSettlements(args []string, settles []*settleOp) (_ []string, pairs int) {
	var ids, how []byte
	var last *settlement
	flush := func() {
		if last != nil {
			args = append(args, string(ids), string(append(how, last.detail...)))
			pairs++
		}
	}
	for _, op := range settles {
		for i := range op.settlements {
			next := &op.settlements[i]
			if last == nil || !last.together(next) {
				flush()
				first := next.nonce &^ (noncesPerCall - 1)
				ids, how = ids[:0], append(how[:0], next.what...)
				how = binary.LittleEndian.AppendUint64(how, math.Float64bits(float64(first)))
				how = append(how, byte((next.nonce-first)/bundleMax))
			}
			ids, how, last = append(ids, next.id...), append(how, byte(next.nonce%bundleMax)), next
		}
	}
	flush()
	return args, pairs
}

func (o *settleOp) size() (elements, bytes int) { return len(o.positions), 0 }
func (o *settleOp) context() context.Context    { return o.ctx }
