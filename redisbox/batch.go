package redisbox

import (
	"context"
	"errors"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
)

// A shardBatch holds the operations of one call of batch.lua, by kind.
type shardBatch struct {
	settles  []*settleOp
	sends    []*sendOp
	receives []*receiveOp
	nonce    uint64 // the number of the first delivery
}

// perform runs a batch of operations in one call.
func (s *shard) perform(ctx context.Context, sess *session, batch []operation) {
	var b shardBatch
	durable := false
	for _, op := range batch {
		switch op := op.(type) {
		case *settleOp:
			b.settles, durable = append(b.settles, op), true
		case *sendOp:
			b.sends, durable = append(b.sends, op), true
		case *receiveOp:
			b.receives = append(b.receives, op)
		}
	}
	opts := callOptions{session: sess, abandoned: func() bool { return allCancelled(batch) }}
	if durable {
		opts.replicas = s.queue.server.replicas
	}
	err := s.runBatch(ctx, &b, opts)
	if errors.Is(err, errSlotsApart) {
		b.failSlots(err)
		err = s.runBatch(ctx, &b, opts)
	}
	if errors.Is(err, driver.ErrFull) && len(b.sends) > 0 && len(b.sends) < len(batch) {
		// The server is out of memory. Operations that need none, or free some, go on.
		failed := shardBatch{sends: b.sends}
		failed.fail(err)
		b.sends = nil
		err = s.runBatch(ctx, &b, opts)
	}
	if err != nil {
		b.fail(err)
	}
}

// failSlots fails the sends that create slots, and removes them from the batch.
func (b *shardBatch) failSlots(err error) {
	var failed shardBatch
	others := b.sends[:0]
	for _, op := range b.sends {
		if op.slot != nil {
			failed.sends = append(failed.sends, op)
		} else {
			others = append(others, op)
		}
	}
	b.sends = others
	failed.fail(err)
}

// isEmpty reports whether the batch has no operations.
func (b *shardBatch) isEmpty() bool { return len(b.settles)+len(b.sends)+len(b.receives) == 0 }

// fail fails all operations of the batch.
func (b *shardBatch) fail(err error) {
	for _, op := range b.settles {
		op.err = err
		close(op.done)
	}
	for _, op := range b.sends {
		op.err = err
		close(op.done)
	}
	for _, op := range b.receives {
		op.err = err
		op.answer()
	}
}

// runBatch calls batch.lua and reports the result to each operation.
func (s *shard) runBatch(ctx context.Context, b *shardBatch, opts callOptions) error {
	if b.isEmpty() {
		return nil
	}
	sc := batchScript
	if len(b.sends) == 0 {
		sc = batchFullScript
	}
	b.nonce = newNonce()
	opts.slotKeys = s.slotKeys(b)
	a, err := s.call(ctx, sc, opts, s.arguments(b)...)
	if err != nil {
		return err
	}
	r, err := readResults(&a)
	if err != nil || len(r.counts) != 3*len(b.receives) || len(r.more) != details(r.added) {
		return unreadableAnswer(err)
	}
	leased, err := readLeased(b.nonce, a.wall, a.rest[1:])
	if err != nil {
		return err
	}
	if err := shareCodes(b.settles, r.settled); err != nil {
		return err
	}
	for _, op := range b.settles {
		close(op.done)
	}
	for _, op := range b.sends {
		op.wall = a.wall
		if r.added != "" {
			op.codes, r.added = r.added[:len(op.ids)], r.added[len(op.ids):]
			n := details(op.codes)
			op.more, r.more = r.more[:n], r.more[n:]
		}
		close(op.done)
	}
	s.hand(ctx, b.receives, r.counts, leased)
	if r.left > 0 {
		s.queue.owner.Ready(s, r.left)
	}
	return nil
}

// results are the results of the operations; see batch.lua.
type results struct {
	left           int
	settled, added string
	counts         string // three bytes for each request
	more           []string
}

func readResults(a *answer) (r results, err error) {
	if len(a.rest) < 2 {
		return r, unreadableAnswer(nil)
	}
	packed, err := a.rest[0].ToString()
	if err != nil || len(packed) < 8+3*2 {
		return r, unreadableAnswer(err)
	}
	r.left = int(doubleAt(packed, 0))
	rest := packed[8+3*2:]
	for i, text := range []*string{&r.settled, &r.added, &r.counts} {
		n := int(packed[8+2*i]) | int(packed[9+2*i])<<8
		if n > len(rest) {
			return r, unreadableAnswer(nil)
		}
		*text, rest = rest[:n], rest[n:]
	}
	for rest != "" {
		n := 1 + int(rest[0])
		if n > len(rest) {
			return r, unreadableAnswer(nil)
		}
		r.more = append(r.more, rest[1:n])
		rest = rest[n:]
	}
	return r, nil
}

// hand gives each receive its messages. With locators there is one text for each
// message, otherwise there are three.
func (s *shard) hand(ctx context.Context, receives []*receiveOp, counts string, leased leasedMessages) {
	for _, op := range receives {
		op.count = int(counts[0]) | int(counts[1])<<8
		op.blocked, op.cut = counts[2] == 1, counts[2] == 2
		counts = counts[3:]
		op.leased = leased.take(op.count)
		if !op.answer() {
			s.giveBack(ctx, op)
		}
	}
}

// arguments returns the arguments of batch.lua.
func (s *shard) arguments(b *shardBatch) []string {
	sends, special, bytes, size := 0, false, 0, 8+5*b.slots()+5*len(b.receives)
	for _, op := range b.settles {
		size += 2 * len(op.settlements)
	}
	for _, op := range b.sends {
		sends += len(op.ids)
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
		packDoubles(float64(b.nonce)), strconv.Itoa(answerBytes), digit(s.queue.owner.Waiting() > waiting), strconv.Itoa(b.slots()))
	for _, op := range b.sends {
		if op.slot != nil {
			args = append(args, op.slot.args...)
		}
	}
	args, settles := appendSettlements(args, b.settles)
	args[0] = strconv.Itoa(settles)
	for _, op := range b.sends {
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
			strconv.Itoa(op.req.Max), strconv.Itoa(op.req.MaxBytes), decimal(micros(op.req.Visibility)), digit(op.waits))
	}
	return args
}

// runDurably runs a batch, once and confirmed by replicas, without a batcher.
func (s *shard) runDurably(ctx context.Context, b *shardBatch, within bool) error {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	opts := s.queue.server.durable(sess)
	opts.within = within
	return s.runBatch(ctx, b, opts)
}

// slots returns how many slots the batch creates.
func (b *shardBatch) slots() (n int) {
	for _, op := range b.sends {
		if op.slot != nil {
			n++
		}
	}
	return n
}

// slotKeys returns the keys of slots for a batch; see ofShardAndSlots.
func (s *shard) slotKeys(b *shardBatch) (keys []string) {
	for _, op := range b.sends {
		if op.slot != nil {
			keys = append(keys, op.slot.keys...)
		}
	}
	if all := s.queue.slotKeys.Load(); all != nil && len(b.receives) > 0 {
		keys = append(keys, *all...)
	}
	return keys
}
