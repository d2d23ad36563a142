package oapapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// gathering is the receives of a connection that wait for the same: one goroutine
// waits for all of them, and what arrives together is taken and answered together.
// With a goroutine for each, a queue that is nearly empty, as one with consumers
// enough always is, costs a wake-up, a call and a write for every message.
type gathering struct {
	conn  *conn
	queue *queue
	// req is what each of them asks for, but for how long it waits.
	req driver.ReceiveRequest

	mu      sync.Mutex // guards the fields below; locked after conn.mu
	waiting []*gathered
	taking  bool               // somebody takes for them
	stop    context.CancelFunc // ends the call that is under way
	ends    time.Time          // when that call ends by itself
}

// gathered is one receive that waits.
type gathered struct {
	running
	until time.Time
	left  error // why it waits no longer; nil while it does
	mine  []driver.Delivery
	err   error // its answer if it gets none
}

// gather has a receive wait with those that ask for the same.
func (c *conn) gather(ctx context.Context, r *request, req driver.ReceiveRequest) {
	w := &gathered{running: running{conn: c, correlation: r.correlation}, until: time.Now().Add(req.Wait)}
	req.Wait = 0
	c.mu.Lock()
	g := r.queue.gatherings[req]
	if g == nil {
		g = &gathering{conn: c, queue: r.queue, req: req}
		if r.queue.gatherings == nil {
			r.queue.gatherings = make(map[driver.ReceiveRequest]*gathering)
		}
		r.queue.gatherings[req] = g
	}
	w.cancel = func(cause error) { g.leave(ctx, w, cause) }
	c.mu.Unlock()
	if !c.admitRunning(&w.running) {
		return
	}
	g.mu.Lock()
	left := w.left
	if left == nil {
		g.waiting = append(g.waiting, w)
		switch {
		case !g.taking:
			g.taking = true
			c.soon(func() { g.take(ctx) })
		case g.stop != nil && w.until.Before(g.ends):
			g.stop() // the next call does not take longer than this one waits
		}
	}
	g.mu.Unlock()
	if left != nil { // the server has begun to drain
		g.answer(ctx, w, left)
	}
}

// leave ends the waiting of one receive. A call that is under way for all is ended
// too: what it brings all the same goes to this one if nobody else wants it, so that
// nothing has to be given back. The others go on waiting. The caller flushes.
func (g *gathering) leave(ctx context.Context, w *gathered, cause error) {
	g.mu.Lock()
	if w.left == nil {
		w.left = cause
	}
	at := slices.Index(g.waiting, w)
	switch {
	case at < 0: // it has not come yet, or is being answered
		g.mu.Unlock()
	case g.stop != nil:
		g.stop()
		g.mu.Unlock()
	default:
		g.waiting = slices.Delete(g.waiting, at, at+1)
		g.mu.Unlock()
		g.answer(ctx, w, cause)
	}
}

// take takes messages until nobody waits.
func (g *gathering) take(ctx context.Context) {
	for {
		req, people, call, stop := g.next(ctx)
		if people == 0 {
			g.tidy()
			return
		}
		g.conn.out.room(keptBuffer)
		req.MaxBytes = min(req.MaxBytes, people*g.conn.receiveBytes())
		got, err := g.queue.caller.Receive(call, g.queue.topic, req)
		got = g.conn.undivided(ctx, g.queue, got, g.req.Max)
		stopped := call.Err() != nil && ctx.Err() == nil
		stop()
		g.hand(ctx, got, err, stopped)
		g.conn.out.flushSoon()
	}
}

// keptGatherings is how many that are over a queue keeps for the next time.
const keptGatherings = 8

// tidy forgets a gathering that is over if there are many: a client can ask for
// something else each time. One that somebody joins in this moment goes on as long
// as it lasts, and only those who come later wait in another.
func (g *gathering) tidy() {
	g.conn.mu.Lock()
	defer g.conn.mu.Unlock()
	if len(g.queue.gatherings) > keptGatherings {
		delete(g.queue.gatherings, g.req)
	}
}

// next returns what to ask for, for all who wait. If nobody does, the gathering is
// over.
func (g *gathering) next(ctx context.Context) (req driver.ReceiveRequest, people int, call context.Context, stop context.CancelFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.taking = false
		return req, 0, nil, nil
	}
	req = g.req
	if most := g.queue.maxBatch; req.Max < most {
		req.Max *= min(len(g.waiting), most/req.Max)
	}
	g.ends = g.earliest()
	req.Wait = max(0, time.Until(g.ends))
	call, stop = context.WithCancel(ctx)
	g.stop = stop
	return req, len(g.waiting), call, stop
}

func (g *gathering) earliest() time.Time {
	first := g.waiting[0].until
	for _, w := range g.waiting[1:] {
		if w.until.Before(first) {
			first = w.until
		}
	}
	return first
}

// hand answers those who have waited longest with what there is, those whose time
// is over, and those who have left. A call that is back with nothing before its
// time, and was not stopped here, was ended by the daemon, or failed, for all.
func (g *gathering) hand(ctx context.Context, got []driver.Delivery, err error, stopped bool) {
	brought := len(got) > 0
	g.mu.Lock()
	g.stop = nil
	for _, leaving := range []bool{false, true} {
		for _, w := range g.waiting {
			if (w.left != nil) == leaving {
				w.mine = got[:min(len(got), g.req.Max)]
				got = got[len(w.mine):]
			}
		}
	}
	now := time.Now()
	over := !brought && !stopped && g.earliest().After(now)
	var ready []*gathered
	g.waiting = slices.DeleteFunc(g.waiting, func(w *gathered) bool {
		switch {
		case len(w.mine) > 0:
		case w.left != nil:
			w.err = w.left
		case over || !stopped && !w.until.After(now):
			w.err = err
		default:
			return false
		}
		ready = append(ready, w)
		return true
	})
	g.mu.Unlock()
	for _, w := range ready {
		g.answer(ctx, w, w.err)
	}
}

func (g *gathering) answer(ctx context.Context, w *gathered, err error) {
	g.conn.forget(&w.running)
	g.conn.received(ctx, &request{correlation: w.correlation, queue: g.queue, visibility: g.req.Visibility}, w.mine, err)
}
