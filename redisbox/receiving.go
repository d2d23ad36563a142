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
// exact up to 2⁵³. They begin at a random number, because one that counts on the
// server could be given out twice after a failover.
const maxNonce = 1 << 52

// newNonce is the number of the first delivery of a call.
func newNonce() uint64 { return noncesACall * (1 + rand.Uint64N(maxNonce/noncesACall-1)) }

// answerBytes bounds what one call brings; a batch may be shorter for it.
const answerBytes = 8 << 20

// receiving is one request for messages on its way to a shard.
type receiving struct {
	ctx   context.Context // it travels with the operation, for as long as that takes
	req   driver.ReceiveRequest
	waits bool

	mu        sync.Mutex // guards abandoned and answered
	abandoned bool
	answered  bool

	done    chan struct{} // closed when the fields below are set
	parcel  parcel
	count   int
	blocked bool // only the in-flight ceiling kept it from getting any
	cut     bool // only the size of the answer did
	err     error
}

func newReceiving(ctx context.Context, req driver.ReceiveRequest, waits bool) *receiving {
	return &receiving{ctx: ctx, req: req, waits: waits, done: make(chan struct{})}
}

func (o *receiving) weight() (elements, bytes int) { return o.req.Max, 0 }
func (o *receiving) context() context.Context      { return o.ctx }

// same reports whether two requests ask for the same.
func (o *receiving) same(other *receiving) bool {
	return o.req.Max == other.req.Max && o.req.MaxBytes == other.req.MaxBytes &&
		o.req.Visibility == other.req.Visibility && o.waits == other.waits
}

// abandon says that the caller has left. It reports false if the answer was
// faster.
func (o *receiving) abandon() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = !o.answered
	return o.abandoned
}

// answer hands the answer over. It reports false if the caller has left.
func (o *receiving) answer() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = true
	close(o.done)
	return !o.abandoned
}

// deliveries reads the answer. Messages whose bytes are not those that were sent
// are returned apart.
func (o *receiving) deliveries(s *shard) (got []driver.Delivery, damaged []driver.Receipt, err error) {
	if o.count == 0 {
		return nil, nil, nil
	}
	got = make([]driver.Delivery, 0, o.count)
	for i := range o.count {
		id, e, sent, err := o.parcel.message(i)
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
		}
	}
	return got, damaged, nil
}

// A parcel is messages as serve.lua hands them out. Those that are delivered for
// the first time come with tickets, and have no entries.
type parcel struct {
	tickets string
	nonce   uint64  // of the first message, if there are tickets
	first   float64 // when they were delivered for the first time, which is now
	texts   []rueidis.RedisMessage
}

const ticketBytes = ident.TextLen + 8

func newParcel(nonce uint64, wall float64, texts []rueidis.RedisMessage) (p parcel, err error) {
	p = parcel{nonce: nonce, first: wall, texts: texts[1:]}
	if p.tickets, err = texts[0].ToString(); err != nil {
		return p, unreadable(err)
	}
	return p, nil
}

// take takes the first n messages out of the parcel.
func (p *parcel) take(n int) parcel {
	part := *p
	if p.tickets == "" {
		part.texts, p.texts = p.texts[:3*n:3*n], p.texts[3*n:]
		return part
	}
	part.texts, p.texts = p.texts[:n:n], p.texts[n:]
	part.tickets, p.tickets = p.tickets[:ticketBytes*n], p.tickets[ticketBytes*n:]
	p.nonce += uint64(n)
	return part
}

// message returns the i-th message: its id, what has become of it, and what was
// sent.
func (p *parcel) message(i int) (id string, e entry, sent string, err error) {
	if p.tickets != "" {
		id = p.tickets[ticketBytes*i:][:ident.TextLen]
		sent, err = p.texts[i].ToString()
		place := doubleAt(p.tickets[ticketBytes*i+ident.TextLen:], 0)
		return id, entry{place: place, deliveries: 1, nonce: p.nonce + uint64(i), first: p.first}, sent, err
	}
	var packed string
	for k, text := range []*string{&id, &packed, &sent} {
		if *text, err = p.texts[3*i+k].ToString(); err != nil {
			return "", e, "", unreadable(err)
		}
	}
	e, ok := readEntry(packed)
	if !ok {
		return "", e, "", unreadable(nil)
	}
	return id, e, sent, nil
}

// giveBack returns messages to their places as if they had not been delivered,
// because whoever asked for them has left.
func (s *shard) giveBack(ctx context.Context, op *receiving) {
	if op.count == 0 {
		return
	}
	got, damaged, err := op.deliveries(s)
	if err != nil {
		return // their leases run out
	}
	back := newSettling(ctx, s)
	for i, d := range got {
		back.add(i, "r", d.Receipt, "")
	}
	if len(got) > 0 {
		s.settles.submit(ctx, back)
	}
	if len(damaged) > 0 {
		s.bury(ctx, damaged)
	}
}

// bury makes dead letters of messages that are damaged. One that cannot be buried
// for lack of room waits, and is found damaged again.
func (s *shard) bury(ctx context.Context, damaged []driver.Receipt) {
	burial := newSettling(ctx, s)
	for i, receipt := range damaged {
		burial.add(i, "b", receipt, packBurial(driver.ReasonIntegrity, "the stored bytes are not those that were sent", ""))
	}
	s.settles.submit(ctx, burial)
	<-burial.done
	s.queue.backend.options.Logger.ErrorContext(ctx, "messages are damaged", "queue", s.queue.name, "count", len(damaged), "first", damaged[0].Handle)
	kept := newSettling(ctx, s)
	for i, receipt := range damaged {
		if burial.letters != "" && burial.letters[i] == 'f' {
			kept.add(i, "n", receipt, packDoubles(micros(driver.DeadRetry))+packLong("the stored bytes are not those that were sent"))
		}
	}
	if len(kept.positions) > 0 {
		s.settles.submit(ctx, kept)
		<-kept.done
	}
}
