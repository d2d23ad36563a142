package redisbox

import (
	"context"
	"errors"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
)

// A load is a batch of operations by kind, as one call takes them.
type load struct {
	settles  []*settling
	sends    []*sending
	receives []*receiving
	nonce    uint64 // the number of the first delivery
}

// carry serves a batch of operations in one call.
func (s *shard) carry(ctx context.Context, sess *session, batch []cargo) {
	var l load
	durable := false
	for _, op := range batch {
		switch op := op.(type) {
		case *settling:
			l.settles, durable = append(l.settles, op), true
		case *sending:
			l.sends, durable = append(l.sends, op), true
		case *receiving:
			l.receives = append(l.receives, op)
		}
	}
	how := how{session: sess, idle: func() bool { return nobodyWaits(batch) }}
	if durable {
		how.replicas = s.queue.backend.options.Replicas
	}
	err := s.serve(ctx, &l, how)
	if errors.Is(err, driver.ErrFull) && len(l.sends) > 0 && len(l.sends) < len(batch) {
		// The server is out of memory. What takes none, or frees some, goes on.
		failed := load{sends: l.sends}
		failed.fail(err)
		l.sends = nil
		err = s.serve(ctx, &l, how)
	}
	if err != nil {
		l.fail(err)
	}
}

// fail tells all operations of a load that they have failed.
func (l *load) fail(err error) {
	for _, op := range l.settles {
		op.err = err
		close(op.done)
	}
	for _, op := range l.sends {
		op.err = err
		close(op.done)
	}
	for _, op := range l.receives {
		op.err = err
		op.answer()
	}
}

// serve calls serve.lua for a load, and tells each operation how it went.
func (s *shard) serve(ctx context.Context, l *load, how how) error {
	sc := serveScript
	if len(l.sends) == 0 {
		sc = serveFullScript
	}
	l.nonce = newNonce()
	a, err := s.call(ctx, sc, how, s.arguments(l)...)
	if err != nil {
		return err
	}
	r, err := readResults(&a)
	if err != nil || len(r.counts) != 3*len(l.receives) || len(r.more) != details(r.added) {
		return unreadable(err)
	}
	parcel, err := newParcel(l.nonce, a.wall, a.rest[1:])
	if err != nil {
		return err
	}
	if err := shareLetters(l.settles, r.settled); err != nil {
		return err
	}
	for _, op := range l.settles {
		close(op.done)
	}
	for _, op := range l.sends {
		if r.added != "" {
			op.letters, r.added = r.added[:len(op.ids)], r.added[len(op.ids):]
			n := details(op.letters)
			op.more, r.more = r.more[:n], r.more[n:]
		}
		close(op.done)
	}
	s.hand(ctx, l.receives, r.counts, parcel)
	if r.left > 0 {
		s.queue.nextTake.Store(uint64(s.number))
		s.queue.waiters.wake(r.left)
	}
	return nil
}

// results are what serve.lua says about the operations, see there.
type results struct {
	left           int
	settled, added string
	counts         string // three bytes for each request
	more           []string
}

func readResults(a *answer) (r results, err error) {
	if len(a.rest) < 2 {
		return r, unreadable(nil)
	}
	packed, err := a.rest[0].ToString()
	if err != nil || len(packed) < 8+3*2 {
		return r, unreadable(err)
	}
	r.left = int(doubleAt(packed, 0))
	rest := packed[8+3*2:]
	for i, text := range []*string{&r.settled, &r.added, &r.counts} {
		n := int(packed[8+2*i]) | int(packed[9+2*i])<<8
		if n > len(rest) {
			return r, unreadable(nil)
		}
		*text, rest = rest[:n], rest[n:]
	}
	for rest != "" {
		n := 1 + int(rest[0])
		if n > len(rest) {
			return r, unreadable(nil)
		}
		r.more = append(r.more, rest[1:n])
		rest = rest[n:]
	}
	return r, nil
}

// hand gives messages to those who asked for them. With tickets there is one text
// for each message, and otherwise there are three.
func (s *shard) hand(ctx context.Context, receives []*receiving, counts string, parcel parcel) {
	for _, op := range receives {
		op.count = int(counts[0]) | int(counts[1])<<8
		op.blocked, op.cut = counts[2] == 1, counts[2] == 2
		counts = counts[3:]
		op.parcel = parcel.take(op.count)
		if !op.answer() {
			s.giveBack(ctx, op)
		}
	}
}

// arguments are those of serve.lua for a load.
func (s *shard) arguments(l *load) []string {
	settles, sends, special, bytes, size := 0, 0, false, 0, 7+5*len(l.receives)
	for _, op := range l.settles {
		settles += len(op.positions)
		size += len(op.args)
	}
	for _, op := range l.sends {
		sends += len(op.ids)
		special = special || op.special
		bytes += op.bodies
		size += len(op.args)
	}
	waiting := 0
	for _, op := range l.receives {
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
	args = append(args, strconv.Itoa(settles), counts[0], counts[1], strconv.Itoa(bytes),
		packDoubles(float64(l.nonce)), strconv.Itoa(answerBytes), digit(int(s.queue.waiters.count.Load()) > waiting))
	for _, op := range l.settles {
		args = append(args, op.args...)
	}
	for _, op := range l.sends {
		for i := 0; i < len(op.args); i += 3 {
			args = append(args, op.args[i], op.args[i+1])
			if special {
				args = append(args, op.args[i+2])
			}
		}
	}
	for first, next := 0, 0; first < len(l.receives); first = next {
		op := l.receives[first]
		for next < len(l.receives) && op.same(l.receives[next]) {
			next++
		}
		args = append(args, strconv.Itoa(next-first),
			strconv.Itoa(op.req.Max), strconv.Itoa(op.req.MaxBytes), decimal(micros(op.req.Visibility)), digit(op.waits))
	}
	return args
}

// digit is how scripts are told yes and no.
func digit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}
