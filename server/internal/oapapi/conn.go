package oapapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// conn is one connection.
type conn struct {
	server *Server
	net    net.Conn
	out    *output
	in     input

	caller  *caller // after START
	session *kept   // after START
	helloed int     // how often HELLO was asked before START
	asked   bool    // there was a request after START

	activity uint64 // of the output, when last asked
	// The reader collects requests in calls and receives, and starts them in its round, when
	// all that has arrived was read. first is closed when a send that creates or opens a
	// queue is done; nil if none is under way.
	calls    []*call
	receives []receiveRequest
	round    completion.Round
	first    <-chan struct{}

	inFlight      atomic.Int64           // requests without an answer
	slotWaits     atomic.Int64           // requests that wait for a reply slot, which are not in inFlight
	started       atomic.Int64           // calls that are under way
	frames        atomic.Uint64          // that were read
	authenticated atomic.Bool            // the client has shown a capability
	joins         atomic.Bool            // the client joins elements that come in several frames
	knows         atomic.Uint64          // the traits that the client has told with OpKnow
	worker        atomic.Pointer[string] // what the client calls itself; nil until OpName
	held          held
	leaving       leaving
	work          sync.WaitGroup // requests that are under way

	mu         sync.Mutex // guards the fields below
	queues     []*queue   // in the order of their handles
	handles    handleTable
	nextHandle uint32
	// running are the requests that can be cancelled or get credit.
	running  map[uint64]*running
	streams  int // of running
	draining bool
}

// queue is one that the client has open.
type queue struct {
	handle uint32
	opened int     // how often, less how often it was closed; guarded by conn.mu
	as     opening // guarded by conn.mu
	name   string
	// caller executes requests; binding is that of the caller, nil if the client goes by
	// the name.
	caller  *caller
	binding *broker.Binding
	traits  driver.Traits
	// absent: it did not exist when it was opened, and the first send creates it.
	absent   atomic.Bool
	maxBatch int
	// longWait is how long a receive may wait at most.
	longWait time.Duration
}

// errElsewhere ends what waits when the server drains.
var errElsewhere = errors.New("the server drains")

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server: s, net: nc, out: newOutput(nc, s.options.WriteTimeout),
		handles: make(handleTable), running: make(map[uint64]*running),
	}
	c.in.begin(nc, &s.options)
	return c
}

// serve does what the client asks until one of the two has had enough. What has
// arrived in whole is done even if the client is gone by then: it may come back
// and ask what became of it. Only what waits ends with the connection.
//
// When the client has been quiet for a while, another goroutine takes over: its stack is
// small, and that of a goroutine that has handled requests stays large.
func (c *conn) serve(ctx context.Context) {
	err := c.read(ctx)
	if errors.Is(err, errQuiet) {
		go c.serve(ctx)
		return
	}
	c.finish(ctx, err)
	c.server.removeConn(c)
}

// finish ends the connection. err is why.
func (c *conn) finish(ctx context.Context, err error) {
	if errors.Is(err, errGoodbye) {
		c.finishRunning(errElsewhere)
		c.work.Wait() // what was asked for is answered
		c.out.flushHere()
	} else {
		c.out.end() // what receives bring from now on goes back
		c.finishRunning(context.Canceled)
	}
	_ = c.net.Close() // ends who still writes
	c.work.Wait()
	if c.out.written != nil {
		c.out.written()
	}
	if c.session != nil {
		c.server.opened.Give(c.session.memory.owner[:], int64(len(c.queues)))
		c.server.sessions.detach(c.session)
	}
	if !errors.Is(err, errGoodbye) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		c.server.options.Logger.DebugContext(ctx, "oap.closed", "client", c.net.RemoteAddr(), "reason", err)
	}
}

var (
	// errGoodbye: the client said that it is done.
	errGoodbye = errors.New("the client said goodbye")
	// errQuiet: the client has been quiet for a while.
	errQuiet = errors.New("the client is quiet")
)

// read reads frames, and starts all requests that have arrived before it reads more.
func (c *conn) read(ctx context.Context) error {
	for {
		if err := c.await(); err != nil {
			return err
		}
		err := c.takeFrames(ctx)
		c.startCalls(ctx)
		c.round.End()
		if err != nil {
			c.out.flushHere() // the client must learn why the connection ends
			return err
		}
		c.out.room(keptBuffer)
		c.activity = c.out.activity()
	}
}

// await blocks until more has arrived. The error is errQuiet if nothing has for a while:
// then the connection holds no memory for requests, and await must be called again.
func (c *conn) await() error {
	for {
		err := c.in.fill(c.caller != nil)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded) || c.caller == nil || !c.in.idle():
			return err
		case c.in.rest():
			c.out.rest()
			c.calls, c.receives, c.round = nil, nil, completion.Round{}
			// Here, because it would make the stack of the next goroutine grow.
			if err := c.in.setDeadline(true); err != nil {
				return err
			}
			return errQuiet
		case !c.busy():
			return err
		}
	}
}

// ease waits until little is left to be written, so that answers do not pile up for a client
// that does not read. The reader calls it.
func (c *conn) ease() {
	if c.out.size() > keptBuffer {
		c.round.End()
		c.out.room(keptBuffer)
	}
}

// busy reports whether a client that has asked for nothing lately has a reason
// for it: it waits for an answer, or had one since this was last asked.
func (c *conn) busy() bool {
	waits := c.inFlight.Load() > 0 || c.slotWaits.Load() > 0
	activity := c.out.activity()
	answered := activity != c.activity
	c.activity = activity
	return waits || answered
}

// takeFrames handles every frame that has arrived.
func (c *conn) takeFrames(ctx context.Context) error {
	for {
		frame, ok, err := c.in.next()
		if err != nil {
			status := oap.StatusInvalid
			if frame.Length > oap.EarlierFrameBytes {
				status = oap.StatusTooLarge
			}
			return c.breach(&frame, status, err)
		}
		if !ok {
			return nil
		}
		if err := c.handle(ctx, &frame); err != nil {
			return err
		}
	}
}

// httpMethods are how requests of HTTP begin, read as the length of a frame, and
// httpAnswer tells their clients where they are.
var httpMethods = []uint32{
	binary.BigEndian.Uint32([]byte("GET ")), binary.BigEndian.Uint32([]byte("POST")), binary.BigEndian.Uint32([]byte("PUT ")),
	binary.BigEndian.Uint32([]byte("HEAD")), binary.BigEndian.Uint32([]byte("DELE")), binary.BigEndian.Uint32([]byte("OPTI")),
}

const httpAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" +
	"This port is for OAP/1 frames (listen.oap). HTTP is at another port (listen.http, 9410 by default).\n"

// breach tells a client that it does not keep to the protocol, and returns the
// error that ends the connection.
func (c *conn) breach(f *oap.Frame, status uint16, err error) error {
	if slices.Contains(httpMethods, f.Length) {
		c.out.text(httpAnswer)
		return err
	}
	e := &driver.Error{Code: driver.ErrInvalid, Op: "frame", Detail: err.Error()}
	if status == oap.StatusTooLarge {
		e.Code, e.Field = driver.ErrTooLarge, "len"
	}
	c.out.frame(&c.round, oap.Response|oap.End, status, f.Correlation, func(dst []byte) []byte { return oap.AppendError(dst, e) })
	return err
}

// handle does what a frame asks for, or has it done.
func (c *conn) handle(ctx context.Context, f *oap.Frame) error {
	c.frames.Add(1)
	if f.Protocol == oap.ProtocolHello {
		return c.hello(f)
	}
	if why := c.misplaced(f); why != "" {
		return c.breach(f, oap.StatusInvalid, oap.FrameError(why))
	}
	if c.caller == nil {
		return c.admitClient(ctx, f)
	}
	if f.Flags&oap.Event != 0 {
		c.startCalls(ctx) // it may be about one of them
		return c.event(f)
	}
	c.asked = true
	if c.inFlight.Add(1) > int64(c.server.options.MaxInFlight) {
		c.fail(f.Correlation, &driver.Error{
			Code: driver.ErrFull, Detail: "too many requests without an answer on this connection",
			RetryAfter: 100 * time.Millisecond,
		})
		return nil
	}
	c.dispatch(ctx, f)
	return nil
}

// misplaced says what is wrong with a frame at this point of the conversation.
func (c *conn) misplaced(f *oap.Frame) string {
	starts := f.Flags&oap.Start != 0
	switch {
	case f.Protocol != oap.ProtocolMailbox:
		return "unknown protocol"
	case f.Tenant != [16]byte{}:
		return "the tenant is in the capability here, and not in the header"
	case f.Flags&oap.Response != 0:
		return "RESP without a REQ"
	case f.Flags&(oap.Compressed|oap.EndToEnd) != 0:
		return "COMP and APP_E2E are not done here"
	case c.caller == nil && !starts && f.Flags&oap.End != 0:
		return "END before START"
	case c.caller == nil && !starts:
		return "the first frame has START"
	case c.caller != nil && starts:
		return "a second START"
	case starts && (f.Flags&oap.Request == 0 || f.Code != oap.OpStart):
		return "START goes with the request to start"
	case f.Code == oap.OpStart && !starts:
		return "the request to start goes with START"
	}
	return ""
}

// maxHellos bounds the answers to a client that has not shown a token.
const maxHellos = 8

func (c *conn) hello(f *oap.Frame) error {
	c.helloed++
	switch {
	case f.Flags&oap.Request == 0 || f.Flags&oap.Start != 0 || f.Code != 0 || len(f.Payload) > 0:
		return c.breach(f, oap.StatusInvalid, oap.FrameError("HELLO is a request with code 0 and no payload"))
	case c.caller == nil && c.helloed > maxHellos:
		return c.breach(f, oap.StatusFull, oap.FrameError("HELLO was said often enough"))
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	start := c.out.beginLocked(&c.round, oap.Response, oap.StatusOK, f.Correlation)
	c.out.pending[start+11] = oap.ProtocolHello
	c.out.pending[start+10] = oap.ProtocolHello >> 8
	c.out.pending = oap.AppendHello(c.out.pending, &oap.Hello{
		Server: "mailboxd", MaxFrame: oap.MaxFrameBytes, MaxInFlight: c.server.options.MaxInFlight,
		Versions: []int{oap.Version},
		Protocols: []oap.HelloProtocol{
			{ID: oap.ProtocolMailbox, Name: "mailbox", Versions: []int{oap.ProtocolVersion}},
		},
	})
	oap.SetLength(c.out.pending, start)
	return nil
}

// admitClient authenticates the client.
func (c *conn) admitClient(ctx context.Context, f *oap.Frame) error {
	request, err := oap.ParseStart(f.Payload)
	if err != nil {
		return c.breach(f, oap.StatusInvalid, err)
	}
	if request.Version != oap.ProtocolVersion {
		return c.breach(f, oap.StatusUnsupported, oap.FrameError("this version of the protocol is not spoken here"))
	}
	caller, err := authenticate(ctx, c.server.options.Broker, f.Capability, c.net)
	if err != nil {
		e := oap.ErrorOf(err)
		c.out.frame(&c.round, oap.Response|oap.End, oap.StatusOf(e.Code), f.Correlation, func(dst []byte) []byte {
			return oap.AppendError(dst, e)
		})
		return err
	}
	if err := c.own(caller.user.Owner()); err != nil {
		e := oap.ErrorOf(err)
		c.out.frame(&c.round, oap.Response|oap.End, oap.StatusOf(e.Code), f.Correlation, func(dst []byte) []byte {
			return oap.AppendError(dst, e)
		})
		return err
	}
	key := sessionKey{capability: sha256.Sum256(f.Capability), producer: request.Producer}
	session, resumed, err := c.server.sessions.attach(key, caller.user.Owner())
	if err != nil {
		e := oap.ErrorOf(err)
		c.out.frame(&c.round, oap.Response|oap.End, oap.StatusFull, f.Correlation, func(dst []byte) []byte {
			return oap.AppendError(dst, e)
		})
		return e
	}
	caller, written := caller.answering()
	c.out.mu.Lock()
	c.out.written = written
	c.out.mu.Unlock()
	c.caller, c.session = caller, session
	c.authenticated.Store(true)
	c.out.frame(&c.round, oap.Response, oap.StatusOK, f.Correlation, func(dst []byte) []byte {
		return oap.AppendStarted(dst, &oap.StartAnswer{
			Version: oap.ProtocolVersion, Server: c.server.instance, Resumed: resumed,
			Window: oap.MaxWindow, MaxInFlight: c.server.options.MaxInFlight, MaxFrame: oap.MaxFrameBytes,
		})
	})
	if f.Flags&oap.End != 0 {
		return errGoodbye
	}
	if c.server.stopping() {
		c.beginDrain()
		c.out.Flush()
	}
	return nil
}

// own counts the connection for the token that it has shown, if its listener counts.
// The error is ErrFull.
func (c *conn) own(by owner) error {
	nc := c.net
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	if counted, ok := nc.(interface{ Own([2]share.Key) error }); ok {
		return counted.Own(by)
	}
	return nil
}

// event handles a frame that wants no answer.
func (c *conn) event(f *oap.Frame) error {
	switch f.Code {
	case oap.EventCancel:
		if r := c.find(f.Correlation); r != nil {
			r.cancel(context.Canceled)
		}
	case oap.EventCredit:
		n, err := oap.ParseCount(f.Payload)
		if err != nil {
			return c.breach(f, oap.StatusInvalid, err)
		}
		if r := c.find(f.Correlation); r != nil && r.credit != nil {
			r.addCredit(n)
		}
	case oap.EventGoodbye:
		return errGoodbye
	case oap.EventEnvelopes:
		if c.asked || len(f.Payload) > 0 {
			return c.breach(f, oap.StatusInvalid, oap.FrameError("ENVELOPES comes right after START, and has no payload"))
		}
		c.caller = c.caller.withSeals()
	default:
		return c.breach(f, oap.StatusInvalid, oap.FrameError("unknown event"))
	}
	return nil
}

// beginDrain tells the client to go elsewhere. The caller flushes.
func (c *conn) beginDrain() {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	c.finishRunning(errElsewhere)
	c.out.frame(nil, oap.Event, oap.EventDrain, 0, nil) // the round is the reader's
}

// finishRunning ends everything that waits.
func (c *conn) finishRunning(cause error) {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.running))
	c.mu.Unlock()
	for _, r := range all {
		r.cancel(cause)
	}
}
