package keepalive

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// bufferBytes is the read buffer of a connection. Most requests fit.
const bufferBytes = 4 << 10

// A Conn is a connection that was taken over, with one request at a time. Only the
// goroutine that took it may call its methods.
type Conn struct {
	owner  *Server
	server *http.Server
	conn   net.Conn
	raw    syscall.RawConn // nil if the connection does not support peeking
	ctx    context.Context //nolint:containedctx // that of the connection
	cancel context.CancelFunc
	// idle is how long a client may take between two requests; 0 means no limit.
	idle time.Duration

	in      []byte  // bytes read: a request, and possibly the beginning of the next
	usual   []byte  // the memory of in, unless the request is large
	large   *[]byte // the memory of in if it is from larges
	head    head
	request *http.Request
	body    sqswire.Body
	date    date
	watch   watch
	broken  bool // the connection cannot be written to any more
	// answered is the time of the last response. idleFrom is when the idle deadline was
	// set; zero if another read deadline is set. writeBy is the write deadline.
	answered, idleFrom, writeBy time.Time

	mu      sync.Mutex // guards the fields below, and the read deadline
	waiting bool       // for a request
	ending  bool
}

// init prepares a connection. early are bytes that package http has read already.
func (c *Conn) init(r *http.Request, early []byte) {
	c.ctx, c.cancel = context.WithCancel(r.Context())
	if c.idle = c.server.IdleTimeout; c.idle == 0 {
		c.idle = c.server.ReadTimeout
	}
	if system, ok := c.conn.(syscall.Conn); ok && canPeek {
		c.raw, _ = system.SyscallConn() // nil if it fails
	}
	c.usual = make([]byte, 0, bufferBytes)
	c.in = append(c.usual, early...) //nolint:gocritic // they share their memory
	c.request = (&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: r.RemoteAddr, Body: &c.body,
	}).WithContext(c.ctx) //nolint:contextcheck // it is that of r
	c.watch.init(c)
}

// Serve reads requests and calls answer with each, until the client disconnects, the
// connection ends or it goes back to package http. answer must respond with WriteAnswer.
// It must not keep any part of the request: the next one is read into the same memory.
func (c *Conn) Serve(answer func(r *http.Request)) {
	back := false
	defer func() {
		c.cancel()
		if !back {
			_ = c.conn.Close()
		}
		c.shrink()
		c.owner.remove(c)
	}()
	for !c.broken && c.ctx.Err() == nil {
		size, ok := c.next()
		if !ok {
			return
		}
		if size == 0 {
			back = true
			c.owner.giveBack(c.server, c.conn, slices.Clone(c.in))
			return
		}
		answer(c.request)
		c.watch.end()
		c.consume(size)
	}
}

// next reads the next request and returns its length, 0 for one that package http must
// read. It reports false when there is none.
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
			c.allow(began.Add(c.owner.options.ReadTimeout))
		}
		c.grow(size)
		if !c.read() {
			return 0, false
		}
	}
}

// look returns the length of the request that c.in begins with, as far as it is known,
// or 0 if package http must read it, and whether all of it is there.
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
	// The head is parsed again if the body did not arrive with it, which is rare.
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
	if !c.owner.options.Wants(r) {
		return 0, false
	}
	return size, true
}

// grow makes room for size bytes, and for at least one more than c.in has.
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

// shrink returns the memory of a large request to the pool.
func (c *Conn) shrink() {
	if c.large != nil {
		larges.Put(c.large)
		c.large = nil
	}
}

// larges pools the memory of large requests, so that one large request does not make
// its connection keep much memory.
var larges = sync.Pool{New: func() any { return new([]byte) }}

// consume removes a request of size bytes from c.in.
func (c *Conn) consume(size int) {
	rest := c.in[size:]
	if c.large == nil || len(rest) > cap(c.usual) {
		c.in = append(c.in[:0], rest...)
		return
	}
	c.in = append(c.usual[:0], rest...)
	c.shrink()
}

// await waits for the first bytes of a request. It reports false if none come, or if
// the connection must end.
func (c *Conn) await() bool {
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		return false
	}
	c.waiting = true
	if c.idle > 0 {
		// The deadline is set a little late, so that it need not be set for each request.
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

// read appends to c.in, which must have room. It reports false when nothing more comes.
func (c *Conn) read() bool {
	n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	return n > 0 || err == nil
}

// allow sets a read deadline other than the idle one.
func (c *Conn) allow(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleFrom = time.Time{}
	_ = c.conn.SetReadDeadline(deadline)
}

// end makes the connection end as soon as it has no request.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	if c.waiting {
		_ = c.conn.SetReadDeadline(past)
	}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Left reports whether the client is known to have closed the connection. Call it before
// a response with leased messages, which no other client can get until the leases end.
func (c *Conn) Left() bool {
	c.watch.end()
	if c.raw != nil && c.ctx.Err() == nil && left(c.raw) {
		c.cancel()
	}
	return c.ctx.Err() != nil
}

// Watch makes the context of the request end if the client disconnects before the
// response. On connections that support peeking it starts after watchAfter, because
// most requests have their response by then; on others it starts at once.
func (c *Conn) Watch() {
	if c.raw == nil {
		c.watch.begin(0)
	} else {
		c.watch.begin(watchAfter)
	}
}

// allowWrite sets the deadline for writing size bytes, unless the current one is late
// enough and not much too late.
func (c *Conn) allowWrite(now time.Time, size int) {
	timeout := c.owner.options.WriteTimeout
	if timeout <= 0 {
		return
	}
	early := now.Add(timeout + sqswire.TransferTime(int64(size)))
	if late := early.Add(timeout); c.writeBy.Before(early) || c.writeBy.After(late) {
		c.writeBy = late
		_ = c.conn.SetWriteDeadline(late)
	}
}

// outs pools the memory of responses. Buffers larger than keptOut are not kept.
var outs = sync.Pool{New: func() any { return new([]byte) }}

const keptOut = 64 << 10

// WriteAnswer writes the response. It blocks while the client does not read; its error
// is that of writing.
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

// appendHead appends the status line and the headers of a response.
func appendHead(b []byte, a *sqswire.Answer, date string, last bool) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.Status), 10)
	b = append(append(append(b, ' '), http.StatusText(a.Status)...), "\r\nX-Amzn-Requestid: "...)
	b = append(append(b, a.RequestID...), "\r\nContent-Type: "...)
	b = append(append(b, a.ContentType...), "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(a.Body)), 10)
	if a.QueryError != "" {
		b = append(append(b, "\r\nX-Amzn-Query-Error: "...), a.QueryError...)
	}
	if last {
		b = append(b, "\r\nConnection: close"...)
	}
	return append(append(append(b, "\r\nDate: "...), date...), "\r\n\r\n"...)
}

// A date caches the current second in the form of the Date header.
type date struct {
	second int64
	text   string
}

func (d *date) at(now time.Time) string {
	if second := now.Unix(); d.text == "" || second != d.second {
		d.second, d.text = second, now.UTC().Format(http.TimeFormat)
	}
	return d.text
}
