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

	caller  Caller // after START
	session *kept  // after START
	helloed int    // how often HELLO was asked before START
	asked   bool   // there was a request after START

	activity uint64 // of the output, when last asked
	held     bool   // the reader holds the output

	batch    batch // requests that were read and not yet done
	lanes    [laneCount]lane
	inFlight atomic.Int64
	frames   atomic.Uint64 // that were read
	started  atomic.Bool   // the client has shown a capability
	// abandoned: the client is gone, and requests that were not begun are not done.
	abandoned atomic.Bool
	holding   holding
	farewell  farewell
	work      sync.WaitGroup // goroutines that do requests

	mu         sync.Mutex // guards the fields below
	queues     map[uint32]*queue
	handles    map[opening]uint32 // of queues
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
	topic  string
	// caller does what is asked for; binding is that of the caller, nil if the client goes
	// by the name.
	caller  Caller
	binding *broker.Binding
	traits  driver.Traits
	// absent: it did not exist when it was opened, and the first send makes it.
	absent atomic.Bool
	// direct: the backend answers from memory, so the reader does the work
	// itself.
	direct bool
	// strict: deliveries to different receivers must not be taken together.
	strict   bool
	maxBatch int
	// longWait is how long a receive may wait at most.
	longWait time.Duration
	// gatherings are the receives that wait, by what they ask for; guarded by
	// conn.mu.
	gatherings map[driver.ReceiveRequest]*gathering
}

// errElsewhere ends what waits when the server drains.
var errElsewhere = errors.New("the server drains")

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server: s, net: nc, out: newOutput(nc, s.options.WriteTimeout),
		queues: make(map[uint32]*queue), handles: make(map[opening]uint32), running: make(map[uint64]*running),
	}
	for i := range c.lanes {
		c.lanes[i].conn = c
		c.lanes[i].taken.L = &c.lanes[i].mu
	}
	return c
}

// maxFinishing bounds the connections that finish requests of clients that are gone.
// Such a connection does not count as one any more, and its requests take memory
// for as long as they wait for a turn at the backend.
const maxFinishing = 32

// serve does what the client asks until one of the two has had enough. What has
// arrived in whole is done even if the client is gone by then: it may come back
// and ask what became of it. Only what waits ends with the connection. If the
// owner's share of connections that finish is used up, requests that were not begun
// are dropped: the session knows nothing of them, so a repeat is done.
func (c *conn) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = c.net.Close() })
	defer stop()
	err := c.read(ctx)
	if c.session != nil {
		if c.server.finishing.Take(c.session.owner[:], 1) == nil {
			defer c.server.finishing.Give(c.session.owner[:], 1)
		} else {
			c.abandoned.Store(true)
		}
	}
	if errors.Is(err, errGoodbye) {
		c.finishRunning(errElsewhere)
		c.work.Wait() // what was asked for is answered
		c.out.flush()
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
		c.server.opened.Give(c.session.owner[:], int64(len(c.queues)))
		c.server.sessions.detach(c.session)
	}
	if !errors.Is(err, errGoodbye) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		c.server.options.Logger.DebugContext(ctx, "oap.closed", "client", c.net.RemoteAddr(), "reason", err)
	}
}

// errGoodbye: the client said that it is done.
var errGoodbye = errors.New("the client said goodbye")

// read takes in frames, all that are there at a time.
func (c *conn) read(ctx context.Context) error {
	c.in.begin(c.net, &c.server.options)
	for {
		c.held = c.out.hold()
		err := c.takeFrames(ctx)
		c.runBatch(ctx)
		if c.held {
			c.letGo()
		} else {
			c.out.flush()
		}
		if err != nil {
			c.out.settle() // the client is to learn why the connection ends
			return err
		}
		c.out.room(keptBuffer)
		c.activity = c.out.activity()
		for {
			err := c.in.fill(c.caller != nil)
			if err == nil {
				break
			}
			if errors.Is(err, os.ErrDeadlineExceeded) && c.caller != nil && c.in.idle() && c.busy() {
				continue
			}
			return err
		}
	}
}

// ease waits until little is left to be written, so that what is added next does
// not pile up for a client that does not read. The reader calls it.
func (c *conn) ease() {
	if c.held && c.out.size() > keptBuffer {
		c.out.flushHeld()
		c.held = c.out.hold()
	}
	if !c.held {
		c.out.room(keptBuffer)
	}
}

// letGo writes what the reader holds, and lets others write.
func (c *conn) letGo() {
	c.out.flushHeld()
	c.held = false
}

// busy reports whether a client that has asked for nothing lately has a reason
// for it: it waits for an answer, or had one since this was last asked.
func (c *conn) busy() bool {
	waits := c.inFlight.Load() > 0
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
			if frame.Length > oap.MaxFrameBytes {
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
	detail := err.Error()
	c.out.frame(oap.Response|oap.End, status, f.Correlation, func(dst []byte) []byte {
		return oap.AppendError(dst, &driver.Error{Code: driver.ErrInvalid, Op: "frame", Detail: detail})
	})
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
		return c.start(ctx, f)
	}
	if f.Flags&oap.Event != 0 {
		return c.event(ctx, f)
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

// maxHellos bounds what is told to somebody who has shown nothing.
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
	start := c.out.beginLocked(oap.Response, oap.StatusOK, f.Correlation)
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

// start lets the client in, or not.
func (c *conn) start(ctx context.Context, f *oap.Frame) error {
	request, err := oap.ParseStart(f.Payload)
	if err != nil {
		return c.breach(f, oap.StatusInvalid, err)
	}
	if request.Version != oap.ProtocolVersion {
		return c.breach(f, oap.StatusUnsupported, oap.FrameError("this version of the protocol is not spoken here"))
	}
	caller, err := c.server.options.Authenticate(ctx, f.Capability, c.net)
	if err != nil {
		e := oap.ErrorOf(err)
		c.out.frame(oap.Response|oap.End, oap.StatusOf(e.Code), f.Correlation, func(dst []byte) []byte {
			return oap.AppendError(dst, e)
		})
		return err
	}
	if err := c.own(ownerOf(caller)); err != nil {
		e := oap.ErrorOf(err)
		c.out.frame(oap.Response|oap.End, oap.StatusOf(e.Code), f.Correlation, func(dst []byte) []byte {
			return oap.AppendError(dst, e)
		})
		return err
	}
	key := sessionKey{capability: sha256.Sum256(f.Capability), producer: request.Producer}
	session, resumed, err := c.server.sessions.attach(key, ownerOf(caller))
	if err != nil {
		e := oap.ErrorOf(err)
		c.out.frame(oap.Response|oap.End, oap.StatusFull, f.Correlation, func(dst []byte) []byte {
			return oap.AppendError(dst, e)
		})
		return e
	}
	if answerer, ok := caller.(Answerer); ok {
		var written func()
		caller, written = answerer.Answering()
		c.out.mu.Lock()
		c.out.written = written
		c.out.mu.Unlock()
	}
	c.caller, c.session = caller, session
	c.started.Store(true)
	c.out.frame(oap.Response, oap.StatusOK, f.Correlation, func(dst []byte) []byte {
		return oap.AppendStarted(dst, &oap.StartAnswer{
			Version: oap.ProtocolVersion, Server: c.server.instance, Resumed: resumed,
			Window: oap.MaxWindow, MaxInFlight: c.server.options.MaxInFlight, MaxFrame: oap.MaxFrameBytes,
		})
	})
	if f.Flags&oap.End != 0 {
		return errGoodbye
	}
	if c.server.stopping() {
		c.drain()
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
func (c *conn) event(ctx context.Context, f *oap.Frame) error {
	c.runBatch(ctx) // it may be about one of these
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
		sealer, ok := c.caller.(Sealer)
		if !ok || c.asked || len(f.Payload) > 0 {
			return c.breach(f, oap.StatusInvalid, oap.FrameError("ENVELOPES comes right after START, and has no payload"))
		}
		c.caller = sealer.Sealed()
	default:
		return c.breach(f, oap.StatusInvalid, oap.FrameError("unknown event"))
	}
	return nil
}

// drain tells the client to go elsewhere.
func (c *conn) drain() {
	c.beginDrain()
	c.out.flush()
}

// beginDrain is drain without flushing.
func (c *conn) beginDrain() {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	c.finishRunning(errElsewhere)
	c.out.frame(oap.Event, oap.EventDrain, 0, nil)
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

// soon has f done by the crew; the connection does not end before it has.
func (c *conn) soon(f func()) {
	c.work.Add(1)
	c.server.crew.do(func() {
		defer c.work.Done()
		f()
	})
}
