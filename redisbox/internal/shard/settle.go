package shard

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// PackDeadLetter packs the detail of a settlement that dead-letters.
func PackDeadLetter(reason driver.Reason, failure, kind string) string {
	return packShort(string(reason)) + PackLong(driver.TrimCause(failure)) + PackLong(driver.TrimCause(kind))
}

// PackNack packs the detail of a settlement that gives a delivery back.
func PackNack(nack *driver.Nack) string {
	return PackDoubles(Micros(nack.Delay)) + PackLong(driver.TrimCause(nack.Cause))
}

// packShort and PackLong pack texts as struct.pack does for 'Bc0' and 'Hc0'.
func packShort(text string) string { return string([]byte{byte(len(text))}) + text }

func PackLong(text string) string {
	return string(binary.LittleEndian.AppendUint16(nil, uint16(len(text)))) + text
}

// SettleOp is the part of an Ack, Nack, Extend or DeadLetter that goes to one shard; see
// batcher.
type SettleOp struct {
	Shard       *Shard
	ctx         context.Context // of the caller
	Positions   []int
	Settlements []settlement
	Answer      *SlotWrite // stored with the only settlement, an ack; nil if there is none

	Done     chan struct{} // closed when the fields below are set
	Codes    string
	Answered string // the code of the answer, see reply_slot.lua
	grants   string // times granted to extensions that were cut, packed
	Err      error
}

// shareCodes gives each of settles its part of an answer; see settle.lua.
func shareCodes(settles []*SettleOp, answer string) error {
	if answer == "" {
		return nil
	}
	total := 0
	for _, op := range settles {
		total += len(op.Positions)
	}
	if len(answer) < total || len(answer) != total+8*strings.Count(answer[:total], "c") {
		return UnreadableAnswer(nil)
	}
	codes, grants := answer[:total], answer[total:]
	for _, op := range settles {
		op.Codes, codes = codes[:len(op.Positions)], codes[len(op.Positions):]
		n := 8 * strings.Count(op.Codes, "c")
		op.grants, grants = grants[:n], grants[n:]
	}
	return nil
}

// CutsInto adds the times granted to extensions that were cut, by position.
func (o *SettleOp) CutsInto(cuts map[int]time.Duration) {
	next := 0
	for k, code := range []byte(o.Codes) {
		if code == 'c' {
			cuts[o.Positions[k]] = time.Duration(DoubleAt(o.grants, next)) * time.Microsecond
			next++
		}
	}
}

// NewSettleOp returns a part without settlements.
func NewSettleOp(ctx context.Context, s *Shard) *SettleOp {
	return &SettleOp{Shard: s, ctx: ctx, Done: make(chan struct{})}
}

// AddSettleOp makes the last of parts one for the shard that has room. Receipts mostly
// come from one shard; a batch that alternates between shards makes more parts, which the
// batcher puts into one call again.
func AddSettleOp(ctx context.Context, parts []*SettleOp, s *Shard) []*SettleOp {
	if last := len(parts) - 1; last >= 0 && parts[last].Shard == s && len(parts[last].Positions) < maxElements {
		return parts
	}
	return append(parts, NewSettleOp(ctx, s))
}

// Add adds the settlement of element i of the caller.
func (o *SettleOp) Add(i int, what string, receipt driver.Receipt, detail string) {
	o.Positions = append(o.Positions, i)
	o.Settlements = append(o.Settlements, settlement{what: what, ID: receipt.Handle, nonce: receipt.Nonce, detail: detail})
}

// A settlement says how to settle one delivery; see settle.lua.
type settlement struct {
	what, ID string
	nonce    uint64
	detail   string
}

// Deliveries are numbered by call, by bundle in the call and by message in the bundle;
// see bundle.lua.
const (
	bundleMax     = 16
	NoncesPerCall = 1024
)

// together reports whether two settlements can be one argument: they ack messages of
// the same bundle.
func (s *settlement) together(next *settlement) bool {
	return s.what == "a" && next.what == "a" && s.nonce/bundleMax == next.nonce/bundleMax
}

// appendSettlements appends the arguments for settlements, and returns how many pairs
// they are. Acks of one bundle that follow each other are one pair.
func appendSettlements(args []string, settles []*SettleOp) (_ []string, pairs int) {
	var ids, how []byte
	var last *settlement
	flush := func() {
		if last != nil {
			args = append(args, string(ids), string(append(how, last.detail...)))
			pairs++
		}
	}
	for _, op := range settles {
		for i := range op.Settlements {
			next := &op.Settlements[i]
			if last == nil || !last.together(next) {
				flush()
				first := next.nonce &^ (NoncesPerCall - 1)
				ids, how = ids[:0], append(how[:0], next.what...)
				how = binary.LittleEndian.AppendUint64(how, math.Float64bits(float64(first)))
				how = append(how, byte((next.nonce-first)/bundleMax))
			}
			ids, how, last = append(ids, next.ID...), append(how, byte(next.nonce%bundleMax)), next
		}
	}
	flush()
	return args, pairs
}

func (o *SettleOp) size() (elements, bytes int) {
	if o.Answer != nil {
		for _, arg := range o.Answer.args {
			bytes += len(arg)
		}
	}
	return len(o.Positions), bytes
}

func (o *SettleOp) context() context.Context { return o.ctx }
