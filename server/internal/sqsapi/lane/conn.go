package lane

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// usualRequest is how much memory a connection has to read into. Most requests fit.
const usualRequest = 4 << 10

// A Conn is a connection that was taken over, and one request at a time on it. Its
// methods are for the goroutine that took it.
type Conn struct {
	lanes  *Lanes
	server *http.Server
	conn   net.Conn
	raw    syscall.RawConn // nil if nobody can look ahead on the connection
	ctx    context.Context //nolint:containedctx // that of the connection
	cancel context.CancelFunc
	// idle is how long a client may take between two requests; 0 is for ever.
	idle time.Duration

	in      []byte  // what was read: a request, and then perhaps what follows it
	usual   []byte  // the memory of in, unless that is large
	large   *[]byte // the memory of in, if it is one of larges
	head    head
	request *http.Request
	body    sqswire.Body
	date    date
	watch   watch
	broken  bool // nothing can be written any more
	// answered is when the last request was. idleFrom is when the deadline for the next
	// one was set; zero if another deadline is. writeBy is the deadline for writing.
	answered, idleFrom, writeBy time.Time

	mu      sync.Mutex // guards the fields below, and the deadline for reading
	waiting bool       // for a request
	ending  bool
}

// init makes a connection ready. Some bytes may have been read before.
func (c *Conn) init(r *http.Request, early []byte) {
	c.ctx, c.cancel = context.WithCancel(r.Context())
	if c.idle = c.server.IdleTimeout; c.idle == 0 {
		c.idle = c.server.ReadTimeout
	}
	if system, ok := c.conn.(syscall.Conn); ok && canPeek {
		c.raw, _ = system.SyscallConn() // nil if it fails
	}
	c.usual = make([]byte, 0, usualRequest)
	c.in = append(c.usual, early...) //nolint:gocritic // they share their memory
	c.request = (&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: r.RemoteAddr, Body: &c.body,
	}).WithContext(c.ctx) //nolint:contextcheck // it is that of r
	c.watch.init(c)
}

// Serve reads requests and has each answered by calling answer, until the client is
// gone, or the connection ends or goes back to package http. answer may keep nothing
// of the request: the next one is read into the same memory. It must answer with
// WriteAnswer.
func (c *Conn) Serve(answer func(r *http.Request)) {
	back := false
	defer func() {
		c.cancel()
		if !back {
			_ = c.conn.Close()
		}
		c.shrink()
		c.lanes.leave(c)
	}()
	for !c.broken && c.ctx.Err() == nil {
		size, ok := c.next()
		if !ok {
			return
		}
		if size == 0 {
			back = true
			c.lanes.giveBack(c.server, c.conn, slices.Clone(c.in))
			return
		}
		answer(c.request)
		c.watch.end()
		c.consume(size)
	}
}

// next reads the next request and returns how long it is, 0 for one that package http
// has to read. It reports false when there is none.
func (c *Conn) next() (size int, ok bool) {
	if len(c.in) == 0 && !c.await() {
		return 0, false
	}
	began := time.Time{}
	for {
		size, complete := c.look()
		if size == 0 || complete {
			if !began.IsZero() {
				c.allow(time.Time{})
			}
			return size, true
		}
		if began.IsZero() {
			began = time.Now()
			c.allow(began.Add(c.lanes.options.ReadTimeout))
		}
		c.grow(size)
		if !c.read() {
			return 0, false
		}
	}
}

// look says how long the request is that c.in begins with, as far as that is known, 0
// if package http has to read it, and whether all of it is there.
func (c *Conn) look() (size int, complete bool) {
	end := headEnd(c.in)
	if end == 0 {
		if len(c.in) >= maxHead {
			return 0, false
		}
		return len(c.in) + 1, false
	}
	if end > maxHead {
		return 0, false
	}
	// The head is parsed again if the body was not there with it, which is seldom.
	if !c.head.parse(string(c.in[:end])) || c.head.length > maxBody {
		return 0, false
	}
	size = end + c.head.length
	if len(c.in) < size {
		return size, false
	}
	target, ok := c.head.url()
	if !ok {
		return 0, false
	}
	c.body.Reset(c.in[end:size])
	r := c.request
	r.Method, r.URL, r.RequestURI, r.Host, r.Header, r.ContentLength = c.head.method, target, c.head.target, c.head.host, c.head.header, int64(c.head.length)
	if !c.lanes.options.Wants(r) {
		return 0, false
	}
	return size, true
}

// grow makes room for size bytes, and for one more than there are.
func (c *Conn) grow(size int) {
	if size = max(size, len(c.in)+1); size <= cap(c.in) {
		return
	}
	larger, _ := larges.Get().(*[]byte)
	if cap(*larger) < size {
		*larger = make([]byte, 0, max(size, maxHead))
	}
	*larger = append((*larger)[:0], c.in...)
	c.shrink()
	c.in, c.large = *larger, larger
}

// shrink gives the memory of a large request to others.
func (c *Conn) shrink() {
	if c.large != nil {
		larges.Put(c.large)
		c.large = nil
	}
}

// larges keeps the memory of requests that are larger than usual, for reuse by
// whichever connection is next: one of them is no reason for a connection to keep
// much.
var larges = sync.Pool{New: func() any { return new([]byte) }}

// consume forgets a request that was answered.
func (c *Conn) consume(size int) {
	rest := c.in[size:]
	if c.large == nil || len(rest) > cap(c.usual) {
		c.in = append(c.in[:0], rest...)
		return
	}
	c.in = append(c.usual[:0], rest...)
	c.shrink()
}

// await waits for the first bytes of a request. It reports false when none comes, or
// the connection is to end.
func (c *Conn) await() bool {
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		return false
	}
	c.waiting = true
	if c.idle > 0 {
		// A deadline that is a little late spares setting one for each request.
		if now := c.answered; c.idleFrom.IsZero() || now.Sub(c.idleFrom) > c.idle/8 {
			c.idleFrom = now
			_ = c.conn.SetReadDeadline(now.Add(c.idle + c.idle/8))
		}
	}
	c.mu.Unlock()
	ok := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = false
	return ok
}

// read reads what comes into c.in, which has room. It reports false when nothing
// more comes.
func (c *Conn) read() bool {
	n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	return n > 0 || err == nil
}

// allow sets another deadline for reading than the one between requests.
func (c *Conn) allow(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleFrom = time.Time{}
	_ = c.conn.SetReadDeadline(deadline)
}

// end makes the connection end as soon as no request is worked on.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	if c.waiting {
		_ = c.conn.SetReadDeadline(past)
	}
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Left reports whether the client has closed the connection, as far as is known. Ask
// before you tell a client what nobody else can be told for a while.
func (c *Conn) Left() bool {
	c.watch.end()
	if c.raw != nil && c.ctx.Err() == nil && left(c.raw) {
		c.cancel()
	}
	return c.ctx.Err() != nil
}

// Watch makes the context of the request end if the client leaves before it is
// answered. Where nobody can look ahead on the connection that is from now on, and
// else from a moment later on: most requests are answered by then.
func (c *Conn) Watch() {
	if c.raw == nil {
		c.watch.begin(0)
	} else {
		c.watch.begin(watchAfter)
	}
}

// allowWrite sets the deadline for writing so much, if the one that is set is too
// early, or much too late because what was written last is longer.
func (c *Conn) allowWrite(now time.Time, size int) {
	timeout := c.lanes.options.WriteTimeout
	if timeout <= 0 {
		return
	}
	early := now.Add(timeout + sqswire.TransferTime(int64(size)))
	if late := early.Add(timeout); c.writeBy.Before(early) || c.writeBy.After(late) {
		c.writeBy = late
		_ = c.conn.SetWriteDeadline(late)
	}
}

// outs keeps the memory of answers for reuse, by whichever connection is next. What
// grew beyond keptOut is left to the garbage collector.
var outs = sync.Pool{New: func() any { return new([]byte) }}

const keptOut = 64 << 10

// WriteAnswer answers the request. It blocks as long as the client does not read; its
// error is that of writing.
func (c *Conn) WriteAnswer(a *sqswire.Answer) error {
	c.watch.end()
	now := time.Now()
	c.answered = now
	c.mu.Lock()
	ending := c.ending
	c.mu.Unlock()
	out, _ := outs.Get().(*[]byte)
	*out = append(appendHead((*out)[:0], a, c.date.at(now), ending), a.Body...)
	c.allowWrite(now, len(a.Body))
	_, err := c.conn.Write(*out)
	if cap(*out) <= keptOut {
		outs.Put(out)
	}
	c.broken = c.broken || ending || err != nil
	return err
}
