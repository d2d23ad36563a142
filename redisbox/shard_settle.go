package redisbox

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func packDeadLetter(reason driver.Reason, failure, kind string) string {
	return packShort(string(reason)) + packLong(driver.TrimCause(failure)) + packLong(driver.TrimCause(kind))
}

// packShort and packLong pack texts as struct.pack does for 'Bc0' and 'Hc0'.
func packShort(text string) string { return string([]byte{byte(len(text))}) + text }

func packLong(text string) string {
	return string(binary.LittleEndian.AppendUint16(nil, uint16(len(text)))) + text
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

func (o *settleOp) context() context.Context { return o.ctx }
