package shard

import (
	"context"
	"errors"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
)

// A Batch holds the operations of one call of batch.lua, by kind.
type Batch struct {
	Settles  []*SettleOp
	Sends    []*SendOp
	receives []*ReceiveOp
	nonce    uint64 // the number of the first delivery
}

// Perform runs a batch of operations in one call.
func (s *Shard) Perform(ctx context.Context, sess *Session, batch []Operation) {
	var b Batch
	durable := false
	for _, op := range batch {
		switch op := op.(type) {
		case *SettleOp:
			b.Settles, durable = append(b.Settles, op), true
		case *SendOp:
			b.Sends, durable = append(b.Sends, op), true
		case *ReceiveOp:
			b.receives = append(b.receives, op)
		}
	}
	s.takeAlong(&b)
	opts := CallOptions{Session: sess, abandoned: func() bool { return allCancelled(batch) }}
	if durable {
		opts.replicas = s.Queue.Server.Replicas
	}
	err := s.RunBatch(ctx, &b, opts)
	if errors.Is(err, ErrSlotsApart) {
		b.failSlots(err)
		err = s.RunBatch(ctx, &b, opts)
	}
	if errors.Is(err, driver.ErrFull) && len(b.Sends) > 0 && len(b.Sends) < len(batch) {
		// The server is out of memory. Operations that need none, or free some, go on.
		failed := Batch{Sends: b.Sends}
		failed.fail(err)
		b.Sends = nil
		err = s.RunBatch(ctx, &b, opts)
	}
	if err != nil {
		b.fail(err)
	}
}

// takeAlong adds parked receives for the messages that the batch sends and that its own receives
// do not ask for. It adds none for special messages, which may be delayed, nor if replicas have
// to confirm the call: receives do not wait for them.
func (s *Shard) takeAlong(b *Batch) {
	n := 0
	for _, op := range b.Sends {
		if op.special {
			return
		}
		n += len(op.IDs)
	}
	for _, op := range b.receives {
		n -= op.Req.Max
	}
	if n > 0 && s.Receives == s.Shared {
		b.receives = append(b.receives, s.Queue.Parked.take(n)...)
	}
}

// failSlots fails the sends that create slots and the acks that resolve them, and removes them from
// the batch.
func (b *Batch) failSlots(err error) {
	var failed Batch
	others := b.Sends[:0]
	for _, op := range b.Sends {
		if op.Slot != nil {
			failed.Sends = append(failed.Sends, op)
		} else {
			others = append(others, op)
		}
	}
	b.Sends = others
	acks := b.Settles[:0]
	for _, op := range b.Settles {
		if op.Answer != nil {
			failed.Settles = append(failed.Settles, op)
		} else {
			acks = append(acks, op)
		}
	}
	b.Settles = acks
	failed.fail(err)
}

// isEmpty reports whether the batch has no operations.
func (b *Batch) isEmpty() bool { return len(b.Settles)+len(b.Sends)+len(b.receives) == 0 }

// fail fails all operations of the batch.
func (b *Batch) fail(err error) {
	for _, op := range b.Settles {
		op.Err = err
		close(op.Done)
	}
	for _, op := range b.Sends {
		op.Err = err
		close(op.Done)
	}
	for _, op := range b.receives {
		op.Err = err
		op.answer()
	}
}

// RunBatch calls batch.lua and reports the result to each operation.
func (s *Shard) RunBatch(ctx context.Context, b *Batch, opts CallOptions) error {
	if b.isEmpty() {
		return nil
	}
	sc := BatchScript
	if len(b.Sends) == 0 {
		sc = BatchFullScript
	}
	b.nonce = newNonce()
	opts.slotKeys = s.slotKeys(b)
	a, err := s.call(ctx, sc, opts, s.Arguments(b)...)
	if err != nil {
		return err
	}
	answers := b.answers()
	r, err := readResults(&a, len(answers))
	if err != nil || len(r.counts) != 3*len(b.receives) || len(r.more) != details(r.added) {
		return UnreadableAnswer(err)
	}
	leased, err := readLeased(b.nonce, a.wall, a.Rest[1:])
	if err != nil {
		return err
	}
	if err := shareCodes(b.Settles, r.settled); err != nil {
		return err
	}
	for i, op := range answers {
		op.Answered = r.resolved[i : i+1]
	}
	for _, op := range b.Settles {
		close(op.Done)
	}
	for _, op := range b.Sends {
		op.Wall = a.wall
		if r.added != "" {
			op.Codes, r.added = r.added[:len(op.IDs)], r.added[len(op.IDs):]
			n := details(op.Codes)
			op.More, r.more = r.more[:n], r.more[n:]
		}
		close(op.Done)
	}
	s.hand(ctx, b.receives, r.counts, leased)
	if r.left > 0 {
		s.Queue.Owner.Ready(s, r.left)
	}
	return nil
}

// results are the results of the operations; see batch.lua.
type results struct {
	left           int
	settled, added string
	counts         string // three bytes for each request
	more           []string
	resolved       string // a byte for each answer
}

func readResults(a *Answer, answers int) (r results, err error) {
	if len(a.Rest) < 2 {
		return r, UnreadableAnswer(nil)
	}
	packed, err := a.Rest[0].ToString()
	if err != nil || len(packed) < 8+3*2+answers {
		return r, UnreadableAnswer(err)
	}
	packed, r.resolved = packed[:len(packed)-answers], packed[len(packed)-answers:]
	r.left = int(DoubleAt(packed, 0))
	rest := packed[8+3*2:]
	for i, text := range []*string{&r.settled, &r.added, &r.counts} {
		n := int(packed[8+2*i]) | int(packed[9+2*i])<<8
		if n > len(rest) {
			return r, UnreadableAnswer(nil)
		}
		*text, rest = rest[:n], rest[n:]
	}
	for rest != "" {
		n := 1 + int(rest[0])
		if n > len(rest) {
			return r, UnreadableAnswer(nil)
		}
		r.more = append(r.more, rest[1:n])
		rest = rest[n:]
	}
	return r, nil
}

// hand gives each receive its messages. With locators there is one text for each
// message, otherwise there are three.
func (s *Shard) hand(ctx context.Context, receives []*ReceiveOp, counts string, leased leasedMessages) {
	for _, op := range receives {
		op.Count = int(counts[0]) | int(counts[1])<<8
		op.Blocked, op.Cut = counts[2] == 1, counts[2] == 2
		counts = counts[3:]
		op.Shard, op.leased = s, leased.take(op.Count)
		if !op.answer() {
			s.giveBack(ctx, op)
		}
	}
}

// Arguments returns the arguments of batch.lua.
func (s *Shard) Arguments(b *Batch) []string {
	answers := b.answers()
	sends, special, bytes, size := 0, false, 0, 10+5*b.slots()+5*len(answers)+5*len(b.receives)
	for _, op := range b.Settles {
		size += 2 * len(op.Settlements)
	}
	for _, op := range b.Sends {
		sends += len(op.IDs)
		special = special || op.special
		bytes += op.bodies
		size += len(op.args)
	}
	waiting := 0
	for _, op := range b.receives {
		if op.waits {
			waiting++
		}
	}
	plain := strconv.Itoa(sends)
	counts := []string{plain, "0"}
	if special {
		counts = []string{"0", plain}
	}
	args := make([]string, 0, size)
	args = append(args, "", counts[0], counts[1], strconv.Itoa(bytes),
		PackDoubles(float64(b.nonce)), strconv.Itoa(answerBytes), Digit(s.Queue.Owner.Waiting() > waiting), strconv.Itoa(b.slots()), strconv.Itoa(len(answers)), s.Queue.slotPrefix())
	for _, op := range b.Sends {
		if op.Slot != nil {
			args = append(args, op.Slot.args...)
		}
	}
	for _, op := range answers {
		args = append(args, op.Answer.args...)
	}
	args, settles := appendSettlements(args, b.Settles)
	args[0] = strconv.Itoa(settles)
	for _, op := range b.Sends {
		for i := 0; i < len(op.args); i += 3 {
			args = append(args, op.args[i], op.args[i+1])
			if special {
				args = append(args, op.args[i+2])
			}
		}
	}
	for first, next := 0, 0; first < len(b.receives); first = next {
		op := b.receives[first]
		for next < len(b.receives) && op.same(b.receives[next]) {
			next++
		}
		args = append(args, strconv.Itoa(next-first),
			strconv.Itoa(op.Req.Max), strconv.Itoa(op.Req.MaxBytes), Decimal(Micros(op.Req.Visibility)), Digit(op.waits))
	}
	return args
}

// RunDurably runs a batch, once and confirmed by replicas, without a batcher.
func (s *Shard) RunDurably(ctx context.Context, b *Batch, within bool) error {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	opts := s.Queue.Server.Durable(sess)
	opts.within = within
	return s.RunBatch(ctx, b, opts)
}

func (q *Queue) slotPrefix() string {
	if prefix := q.SlotPrefix.Load(); prefix != nil {
		return *prefix
	}
	return ""
}

// slots returns how many slots the batch creates.
func (b *Batch) slots() (n int) {
	for _, op := range b.Sends {
		if op.Slot != nil {
			n++
		}
	}
	return n
}

// answers returns the settlements that resolve slots.
func (b *Batch) answers() (ops []*SettleOp) {
	for _, op := range b.Settles {
		if op.Answer != nil {
			ops = append(ops, op)
		}
	}
	return ops
}

// slotKeys returns the keys of slots for a batch; see ofShardAndSlots.
func (s *Shard) slotKeys(b *Batch) (keys []string) {
	for _, op := range b.Sends {
		if op.Slot != nil {
			keys = append(keys, op.Slot.keys...)
		}
	}
	for _, op := range b.answers() {
		keys = append(keys, op.Answer.keys...)
	}
	if all := s.Queue.SlotKeys.Load(); all != nil && len(b.receives) > 0 {
		keys = append(keys, *all...)
	}
	return keys
}
