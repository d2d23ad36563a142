package completion

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// polls are the polls of a queue that receives can join.
type polls struct {
	mu   sync.Mutex // guards the field below, and fields of polls and receives
	open []*poll
}

// A poll receives for all started receives that joined it, which have the same visibility.
// One call asks for as many messages as they may have together, and its messages go to the
// oldest; the others wait for the next call. With a call for each, a queue that is nearly
// empty, as one with enough consumers always is, costs a goroutine and a call for every
// message.
//
// Each receive gets no more than its Max and MaxBytes, and ends with its own wait. No message
// is left over: the receives in a call can take everything that it may bring, and none of
// them leaves before it returns.
//
// Some receives have a poll of their own: those that do not wait, because a call that is under
// way may have looked before they were started; those that may have few bytes, and those that
// are invalid; and all of a queue with strict groups, because the messages of a group must not
// be divided between receives.
type poll struct {
	blocking   *blocking
	visibility time.Duration
	shared     bool // other receives can join

	// The fields below are guarded by polls.mu.
	receives []*receive         // oldest first
	wanted   int                // the sum of their Max
	called   int                // how many of them are in the call under way, the first ones; 0 if there is none
	ends     time.Time          // when that call ends if it gets no message
	stop     context.CancelFunc // ends that call
	stopped  bool               // stop was called
}

// receive is one receive that was started.
type receive struct {
	poll  *poll
	req   driver.ReceiveRequest
	to    Receiver
	until time.Time // when its wait ends
	left  bool      // it was cancelled during a call; guarded by polls.mu

	deliveries []driver.Delivery
	err        error
}

// minSharedBytes is the least MaxBytes of receives of several messages that share calls:
// calls bring no more than that.
const minSharedBytes = 64 << 10

func (b *blocking) StartReceive(_ *Round, req driver.ReceiveRequest, to Receiver) Waiting {
	traits := b.Traits()
	req, err := req.Check(&traits) // if it is invalid, the backend says so
	shared := err == nil && req.Wait > 0 && !traits.StrictGroups &&
		(req.Max == 1 || req.MaxBytes == 0 || req.MaxBytes >= minSharedBytes)
	w := &receive{req: req, to: to, until: time.Now().Add(req.Wait)}
	if !shared || !b.polls.join(w, traits.MaxBatch) {
		b.polls.begin(b, w, shared)
	}
	if req.Wait == 0 {
		return nil
	}
	return w
}

// join adds a receive to a poll whose calls can bring what it may have, and reports whether
// there is one.
func (ps *polls) join(w *receive, maxBatch int) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.open {
		if p.visibility == w.req.Visibility && p.wanted+w.req.Max <= maxBatch && (p.called == 0 || !w.until.Before(p.ends)) {
			p.addLocked(w)
			return true
		}
	}
	return false
}

// begin begins a poll for a receive.
func (ps *polls) begin(b *blocking, w *receive, shared bool) {
	p := &poll{blocking: b, visibility: w.req.Visibility, shared: shared}
	ps.mu.Lock()
	p.addLocked(w)
	if shared {
		ps.open = append(ps.open, p)
	}
	ps.mu.Unlock()
	b.workers.start(p)
}

func (p *poll) addLocked(w *receive) {
	w.poll = p
	p.receives = append(p.receives, w)
	p.wanted += w.req.Max
}

// run receives until no receive waits.
func (p *poll) run(r *Round) {
	for {
		ctx, req := p.beginCall()
		if ctx == nil {
			return
		}
		got, err := p.blocking.Receive(ctx, req)
		ended := p.endCall(got, err)
		if !p.shared {
			p.blocking.received.add(r, ended)
			continue
		}
		for _, w := range ended {
			w.to.Received(r, w.deliveries, w.err)
		}
		r.End()
	}
}

// beginCall returns the request of a call for all receives. If there are none, the poll ends
// and the context is nil.
func (p *poll) beginCall() (context.Context, driver.ReceiveRequest) {
	ps := &p.blocking.polls
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(p.receives) == 0 {
		if at := slices.Index(ps.open, p); at >= 0 {
			ps.open = slices.Delete(ps.open, at, at+1)
		}
		return nil, driver.ReceiveRequest{}
	}
	p.called, p.ends = len(p.receives), p.receives[0].until
	for _, w := range p.receives[1:] {
		if w.until.Before(p.ends) {
			p.ends = w.until
		}
	}
	ctx, stop := context.WithCancel(context.Background()) // it ends with the wait, or with Cancel
	p.stop = stop
	if !p.shared {
		return ctx, p.receives[0].req
	}
	return ctx, driver.ReceiveRequest{
		Max: p.wanted, MaxBytes: maxBytes(p.receives), Visibility: p.visibility, Wait: max(0, time.Until(p.ends)),
	}
}

// maxBytes returns how many bytes a call may bring without exceeding what one of the receives
// may have, however its messages are divided between them. A receive may always have one
// message, so those that want no more need no bound.
func maxBytes(receives []*receive) (least int) {
	for _, w := range receives {
		if bytes := w.req.MaxBytes; w.req.Max > 1 && bytes > 0 && (least == 0 || bytes < least) {
			least = bytes
		}
	}
	return least
}

// endCall divides the messages of a call between its receives, and returns the receives that
// end.
func (p *poll) endCall(got []driver.Delivery, err error) (ended []*receive) {
	ps := &p.blocking.polls
	ps.mu.Lock()
	defer ps.mu.Unlock()
	called := p.receives[:p.called]
	some := len(got) > 0
	for _, left := range []bool{false, true} { // those that were cancelled are last
		for _, w := range called {
			if w.left == left {
				n := min(len(got), w.req.Max)
				w.deliveries, got = got[:n:n], got[n:]
			}
		}
	}
	stopped := p.stopped && (err == nil || errors.Is(err, context.Canceled))
	failed := err != nil && !stopped && !errors.Is(err, driver.ErrFull)
	waiting := p.receives[:0]
	for i, w := range p.receives {
		switch {
		case len(w.deliveries) > 0:
		case w.left:
			w.err = context.Canceled
		case i < p.called && !some && (failed || !stopped && !w.until.After(p.ends)):
			w.err = err
		default:
			waiting = append(waiting, w)
			continue
		}
		ended = append(ended, w)
		p.wanted -= w.req.Max
	}
	clear(p.receives[len(waiting):])
	p.receives = waiting
	p.stop()
	p.called, p.stop, p.stopped = 0, nil, false
	return ended
}

// Cancel implements Waiting. A receive that is in a call ends when the call has: it may get
// messages that no other receive can take.
func (w *receive) Cancel() {
	p := w.poll
	ps := &p.blocking.polls
	ps.mu.Lock()
	at := slices.Index(p.receives, w)
	if at < 0 || at < p.called {
		if at >= 0 {
			w.left, p.stopped = true, true
			p.stop()
		}
		ps.mu.Unlock()
		return
	}
	p.receives = slices.Delete(p.receives, at, at+1)
	p.wanted -= w.req.Max
	ps.mu.Unlock()
	var round Round
	w.to.Received(&round, nil, context.Canceled)
	round.End()
}

// received completes receives of polls that are not shared, and end at the same time, in one round:
// a backend that has got messages for many receives wakes all of their goroutines.
type received struct {
	mu         sync.Mutex // guards the fields below
	ended      []*receive
	spare      []*receive // empty
	completing bool       // a goroutine completes what ends
}

// add completes receives, or leaves that to the goroutine that completes others.
func (c *received) add(r *Round, ended []*receive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, ended...)
	if c.completing {
		return
	}
	c.completing = true
	for len(c.ended) > 0 {
		c.mu.Unlock()
		runtime.Gosched() // those that were woken at the same time add themselves
		c.mu.Lock()
		ended := c.ended
		c.ended, c.spare = c.spare, nil
		c.mu.Unlock()
		for _, w := range ended {
			w.to.Received(r, w.deliveries, w.err)
		}
		r.End()
		clear(ended)
		c.mu.Lock()
		c.spare = ended[:0]
	}
	c.completing = false
}
