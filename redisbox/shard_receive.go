package redisbox

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// maxNonce bounds the numbers of deliveries: scripts count in doubles, which are
// exact up to 2⁵³. Numbers start at random, because a counter on the server could
// give out a number twice after a failover.
const maxNonce = 1 << 52

// newNonce returns the number of the first delivery of a call.
func newNonce() uint64 { return noncesPerCall * (1 + rand.Uint64N(maxNonce/noncesPerCall-1)) }

// answerBytes bounds the answer of one call; a batch may be shorter because of it.
const answerBytes = 8 << 20

// receiveOp is one request for messages of a shard; see batcher.
type receiveOp struct {
	ctx   context.Context // of the caller
	req   driver.ReceiveRequest
	waits bool

	mu        sync.Mutex // guards abandoned and answered
	abandoned bool
	answered  bool

	done    chan struct{} // closed when the fields below are set
	leased  leasedMessages
	count   int
	blocked bool // only the in-flight limit kept it from getting any
	cut     bool // only the size of the answer did
	err     error
}

func newReceiveOp(ctx context.Context, req driver.ReceiveRequest, waits bool) *receiveOp {
	return &receiveOp{ctx: ctx, req: req, waits: waits, done: make(chan struct{})}
}

func (o *receiveOp) size() (elements, bytes int) { return o.req.Max, 0 }

func (o *receiveOp) context() context.Context { return o.ctx }

// same reports whether two requests are equal.
func (o *receiveOp) same(other *receiveOp) bool {
	return o.req.Max == other.req.Max && o.req.MaxBytes == other.req.MaxBytes &&
		o.req.Visibility == other.req.Visibility && o.waits == other.waits
}

// abandon records that the caller has left. It reports false if the answer was first.
func (o *receiveOp) abandon() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = !o.answered
	return o.abandoned
}

// answer hands the answer over. It reports false if the caller has left.
func (o *receiveOp) answer() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = true
	close(o.done)
	return !o.abandoned
}

// deliveries reads the answer. It returns messages whose stored bytes are not those
// that were sent as damaged.
func (o *receiveOp) deliveries(s *shard) (got []driver.Delivery, damaged []driver.Receipt, err error) {
	if o.count == 0 {
		return nil, nil, nil
	}
	got = make([]driver.Delivery, 0, o.count)
	for i := range o.count {
		id, e, sent, err := o.leased.message(i)
		if err != nil {
			return nil, nil, err
		}
		got = append(got, driver.Delivery{Receipt: s.receipt(id, e.place, e.nonce), Shard: s.number})
		d := &got[len(got)-1]
		d.ID = id
		e.fill(&d.Message)
		if !readSent(&d.Message, id, sent) {
			damaged = append(damaged, d.Receipt)
			got = got[:len(got)-1]
			continue
		}
		d.SlotPending = o.leased.slotPending(i)
	}
	return got, damaged, nil
}

// giveBack returns messages to their places as if they had not been delivered,
// because the caller of the receive has left.
func (s *shard) giveBack(ctx context.Context, op *receiveOp) {
	if op.count == 0 {
		return
	}
	got, damaged, err := op.deliveries(s)
	if err != nil {
		return // their leases run out
	}
	back := newSettleOp(ctx, s)
	for i, d := range got {
		back.add(i, "r", d.Receipt, "")
	}
	if len(got) > 0 {
		s.shared.submit(ctx, back)
	}
	if len(damaged) > 0 {
		s.deadLetterDamaged(ctx, damaged)
	}
}

// damagedCause is the failure of messages whose stored bytes have changed.
const damagedCause = "the stored bytes are not those that were sent"

// deadLetterDamaged dead-letters damaged messages. While the dead letters are full, a
// damaged message waits in the queue and is found damaged again.
func (s *shard) deadLetterDamaged(ctx context.Context, damaged []driver.Receipt) {
	dead := newSettleOp(ctx, s)
	for i, receipt := range damaged {
		dead.add(i, "b", receipt, packDeadLetter(driver.ReasonIntegrity, damagedCause, ""))
	}
	s.shared.submit(ctx, dead)
	<-dead.done
	s.queue.server.logger.ErrorContext(ctx, "messages are damaged", "queue", s.queue.name, "count", len(damaged), "first", damaged[0].Handle)
	kept := newSettleOp(ctx, s)
	for i, receipt := range damaged {
		if dead.codes != "" && dead.codes[i] == 'f' {
			kept.add(i, "n", receipt, packDoubles(micros(driver.DeadRetry))+packLong(damagedCause))
		}
	}
	if len(kept.positions) > 0 {
		s.shared.submit(ctx, kept)
		<-kept.done
	}
}

// leasedMessages are messages as batch.lua returns them. Those that are delivered for
// the first time have locators and no entries; see order.lua.
type leasedMessages struct {
	locators string
	pending  string  // a digit for each message if slots were read: 1 if its slot is pending
	nonce    uint64  // of the first message, if there are locators
	first    float64 // when these were delivered first: now
	texts    []rueidis.RedisMessage
}

const locatorBytes = ident.TextLen + 8

func readLeased(nonce uint64, wall float64, texts []rueidis.RedisMessage) (p leasedMessages, err error) {
	p = leasedMessages{nonce: nonce, first: wall, texts: texts[1:]}
	if p.locators, err = texts[0].ToString(); err != nil {
		return p, unreadableAnswer(err)
	}
	if length := locatorBytes * len(p.texts); len(p.locators) > length {
		p.locators, p.pending = p.locators[:length], p.locators[length:]
	}
	return p, nil
}

// slotPending reports whether the slot of the i-th message is known to be pending.
func (p *leasedMessages) slotPending(i int) bool { return i < len(p.pending) && p.pending[i] == '1' }

// take removes and returns the first n messages.
func (p *leasedMessages) take(n int) leasedMessages {
	part := *p
	if p.locators == "" {
		part.texts, p.texts = p.texts[:3*n:3*n], p.texts[3*n:]
		return part
	}
	part.texts, p.texts = p.texts[:n:n], p.texts[n:]
	part.locators, p.locators = p.locators[:locatorBytes*n], p.locators[locatorBytes*n:]
	if p.pending != "" {
		part.pending, p.pending = p.pending[:n], p.pending[n:]
	}
	p.nonce += uint64(n)
	return part
}

// message returns the i-th message: its id, its entry, and its record.
func (p *leasedMessages) message(i int) (id string, e entry, sent string, err error) {
	if p.locators != "" {
		id = p.locators[locatorBytes*i:][:ident.TextLen]
		sent, err = p.texts[i].ToString()
		place := doubleAt(p.locators[locatorBytes*i+ident.TextLen:], 0)
		return id, entry{place: place, deliveries: 1, nonce: p.nonce + uint64(i), first: p.first}, sent, err
	}
	var packed string
	for k, text := range []*string{&id, &packed, &sent} {
		if *text, err = p.texts[3*i+k].ToString(); err != nil {
			return "", e, "", unreadableAnswer(err)
		}
	}
	e, ok := readEntry(packed)
	if !ok {
		return "", e, "", unreadableAnswer(nil)
	}
	return id, e, sent, nil
}
