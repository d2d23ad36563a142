package shard

import (
	"context"
	"math/rand/v2"
	"slices"
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
func newNonce() uint64 { return NoncesPerCall * (1 + rand.Uint64N(maxNonce/NoncesPerCall-1)) }

// answerBytes bounds the answer of one call; a batch may be shorter because of it.
const answerBytes = 8 << 20

// ReceiveOp is one request for messages of a shard; see batcher.
type ReceiveOp struct {
	ctx   context.Context // of the caller
	Req   driver.ReceiveRequest
	waits bool

	mu        sync.Mutex // guards abandoned and answered
	abandoned bool
	answered  bool

	Done    chan struct{} // closed when the fields below are set
	Shard   *Shard        // that has answered
	leased  leasedMessages
	Count   int
	Blocked bool // only the in-flight limit kept it from getting any
	Cut     bool // only the size of the answer did
	Err     error
}

// NewReceiveOp returns a request; waits says that the caller will wait if there are no
// messages.
func NewReceiveOp(ctx context.Context, req driver.ReceiveRequest, waits bool) *ReceiveOp {
	return &ReceiveOp{ctx: ctx, Req: req, waits: waits, Done: make(chan struct{})}
}

func (o *ReceiveOp) size() (elements, bytes int) { return o.Req.Max, 0 }

func (o *ReceiveOp) context() context.Context { return o.ctx }

// same reports whether two requests are equal.
func (o *ReceiveOp) same(other *ReceiveOp) bool {
	return o.Req.Max == other.Req.Max && o.Req.MaxBytes == other.Req.MaxBytes &&
		o.Req.Visibility == other.Req.Visibility && o.waits == other.waits
}

// parkedReceives are requests of receives that wait, oldest first. A call that sends takes some
// of them along, so that its messages reach a receive of the same process without an
// announcement and a call of their own. The zero value is empty.
type parkedReceives struct {
	mu  sync.Mutex // guards ops
	ops []*ReceiveOp
}

// Park adds a request.
func (p *parkedReceives) Park(op *ReceiveOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops = append(p.ops, op)
}

// Withdraw removes a request, and reports false if a call has taken it: its Done is closed when
// the call ends.
func (p *parkedReceives) Withdraw(op *ReceiveOp) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.ops, op)
	if at >= 0 {
		p.ops = slices.Delete(p.ops, at, at+1)
	}
	return at >= 0
}

// take removes requests for up to n messages, the oldest first.
func (p *parkedReceives) take(n int) (taken []*ReceiveOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := 0
	for count < len(p.ops) && n > 0 {
		n -= p.ops[count].Req.Max
		count++
	}
	taken = slices.Clone(p.ops[:count])
	p.ops = slices.Delete(p.ops, 0, count)
	return taken
}

// Abandon records that the caller has left. It reports false if the answer was first.
func (o *ReceiveOp) Abandon() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = !o.answered
	return o.abandoned
}

// answer hands the answer over. It reports false if the caller has left.
func (o *ReceiveOp) answer() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = true
	close(o.Done)
	return !o.abandoned
}

// Deliveries reads the answer. It returns messages whose stored bytes are not those
// that were sent as damaged.
func (o *ReceiveOp) Deliveries() (got []driver.Delivery, damaged []driver.Receipt, err error) {
	if o.Count == 0 {
		return nil, nil, nil
	}
	s := o.Shard
	got = make([]driver.Delivery, 0, o.Count)
	for i := range o.Count {
		id, e, sent, err := o.leased.message(i)
		if err != nil {
			return nil, nil, err
		}
		got = append(got, driver.Delivery{Receipt: s.Receipt(id, e.place, e.Nonce), Shard: s.Number, Released: e.released})
		d := &got[len(got)-1]
		d.ID = id
		e.fill(&d.Message)
		if !e.ReadSent(&d.Message, id, sent) {
			damaged = append(damaged, d.Receipt)
			got = got[:len(got)-1]
			continue
		}
		d.SlotPending = o.leased.slotPending(i)
	}
	return got, damaged, nil
}

// giveBack releases messages, because the caller of the receive has left.
func (s *Shard) giveBack(ctx context.Context, op *ReceiveOp) {
	if op.Count == 0 {
		return
	}
	got, damaged, err := op.Deliveries()
	if err != nil {
		return // their leases run out
	}
	back := NewSettleOp(ctx, s)
	for i, d := range got {
		back.Add(i, "r", d.Receipt, PackNack(&driver.Nack{}))
	}
	if len(got) > 0 {
		s.Shared.Submit(ctx, back)
	}
	if len(damaged) > 0 {
		s.DeadLetterDamaged(ctx, damaged)
	}
}

// damagedCause is the failure of messages whose stored bytes have changed.
const damagedCause = "the stored bytes are not those that were sent"

// DeadLetterDamaged dead-letters damaged messages. While the dead letters are full, a
// damaged message waits in the queue and is found damaged again.
func (s *Shard) DeadLetterDamaged(ctx context.Context, damaged []driver.Receipt) {
	dead := NewSettleOp(ctx, s)
	for i, receipt := range damaged {
		dead.Add(i, "b", receipt, PackDeadLetter(driver.ReasonIntegrity, damagedCause, ""))
	}
	s.Shared.Submit(ctx, dead)
	<-dead.Done
	s.Queue.Server.Logger.ErrorContext(ctx, "messages are damaged", "queue", s.Queue.Name, "count", len(damaged), "first", damaged[0].Handle)
	kept := NewSettleOp(ctx, s)
	for i, receipt := range damaged {
		if dead.Codes != "" && dead.Codes[i] == 'f' {
			kept.Add(i, "n", receipt, PackDoubles(Micros(driver.DeadRetry))+PackLong(damagedCause))
		}
	}
	if len(kept.Positions) > 0 {
		s.Shared.Submit(ctx, kept)
		<-kept.Done
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
		return p, UnreadableAnswer(err)
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
		place := DoubleAt(p.locators[locatorBytes*i+ident.TextLen:], 0)
		return id, entry{place: place, Deliveries: 1, Nonce: p.nonce + uint64(i), First: p.first}, sent, err
	}
	var packed string
	for k, text := range []*string{&id, &packed, &sent} {
		if *text, err = p.texts[3*i+k].ToString(); err != nil {
			return "", e, "", UnreadableAnswer(err)
		}
	}
	e, ok := ReadEntry(packed)
	if !ok {
		return "", e, "", UnreadableAnswer(nil)
	}
	return id, e, sent, nil
}
