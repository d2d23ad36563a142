package remotebox

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A link is one connection, from its handshake to its end.
type link struct {
	net      net.Conn
	instance [16]byte // of the daemon's process
	resumed  bool     // the daemon knew the client's session
	sequence *sequence
	onTraits func(*link, *oap.Opened)
	onDrain  func(*link)
	onLeave  func(*link)
	wake     chan struct{} // there is something to write
	ended    chan struct{} // closed when the link is over
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	pending  []byte     // frames that the writer has not begun to write
	spare    []byte
	written  uint64 // bytes that were taken from pending so far
	writing  bool   // the writer is awake
	calls    map[uint64]*call
	previous uint64 // correlation id
	failure  error
	draining bool
	left     bool // nothing is posted any more
	// idle is signalled when everything was written, when the last call has its
	// answer, and when the link fails.
	idle sync.Cond
}

// keptBuffer is the largest buffer that is kept for the next time.
const keptBuffer = 256 << 10

func newLink(nc net.Conn, started *oap.StartAnswer, b *Backend) *link {
	l := &link{
		net: nc, instance: started.Server, resumed: started.Resumed, sequence: b.sequence,
		onTraits: b.traitsChanged, onDrain: b.drained, onLeave: b.dismissed,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		calls: make(map[uint64]*call),
	}
	l.idle.L = &l.mu
	return l
}

// run starts the goroutines that read and write. rest is what was read beyond
// the handshake.
func (l *link) run(rest []byte) {
	l.running.Go(func() { l.fail(l.read(rest)) })
	l.running.Go(l.write)
}

// errLost says that a connection is gone for an unknown reason.
var errLost = errors.New("the connection was lost")

// fail ends the link, and with it all calls.
func (l *link) fail(reason error) {
	l.mu.Lock()
	if l.failure != nil {
		l.mu.Unlock()
		return
	}
	if reason == nil || errors.Is(reason, io.EOF) {
		reason = errLost
	}
	l.failure = reason
	calls := l.calls
	l.calls = nil
	l.idle.Broadcast()
	l.mu.Unlock()
	close(l.ended)
	_ = l.net.Close() // whatever it says, it is over
	for _, c := range calls {
		l.lose(c, reason)
	}
}

// isOver reports whether the link has failed.
func (l *link) isOver() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// lose ends a call whose connection is gone.
func (l *link) lose(c *call, reason error) {
	if c.done == nil { // no caller waits for it
		return
	}
	c.lost = reason
	if c.stream != nil {
		c.stream.end(reason)
	}
	c.done <- struct{}{}
}

// reached reports whether a call that was lost may have reached the daemon.
func (l *link) reached(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.offset < l.written
}

// post puts a call on its way. It does not block. It returns false if the link
// is over, or about to be.
func (l *link) post(c *call) bool {
	ticket := l.sequence.ticket(c.sequence)
	l.mu.Lock()
	if l.failure != nil || l.left {
		l.mu.Unlock()
		return false
	}
	l.previous++
	c.link, c.correlation = l, l.previous
	l.calls[c.correlation] = c
	c.offset = l.written + uint64(len(l.pending))
	start := l.beginLocked(oap.Request, c.code, c.correlation)
	l.pending = c.fill(l.pending, oap.Target{Ticket: ticket, Handle: c.handle})
	oap.SetLength(l.pending, start)
	l.wakeLocked()
	l.mu.Unlock()
	return true
}

func (l *link) beginLocked(flags oap.Flags, code uint16, correlation uint64) (start int) {
	start = len(l.pending)
	l.pending = oap.AppendHeader(l.pending, &oap.Header{
		Flags: flags, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation,
	})
	return start
}

// wakeLocked has what is pending written.
func (l *link) wakeLocked() {
	if !l.writing {
		l.writing = true
		l.wake <- struct{}{} // has room: the writer took the last one
	}
}

// event sends something that is not answered.
func (l *link) event(flags oap.Flags, code uint16, correlation uint64, fill func(dst []byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return
	}
	start := l.beginLocked(oap.Event|flags, code, correlation)
	if fill != nil {
		l.pending = fill(l.pending)
	}
	oap.SetLength(l.pending, start)
	l.wakeLocked()
}

// forget makes the link drop the answer to a call, and reports whether it had
// none yet. If it had, the signal is there or about to be.
func (l *link) forget(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.correlation] != c {
		return false
	}
	if c.code == oap.OpReceive {
		l.calls[c.correlation] = &call{code: oap.OpReceive, handle: c.handle, kept: true}
	} else {
		delete(l.calls, c.correlation)
	}
	return true
}

// write writes what is pending, all of it at a time.
func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.ended:
			return
		}
		// Others who were woken by the same answers have something to say too:
		// let them, and say it all at once.
		runtime.Gosched()
		l.mu.Lock()
		for len(l.pending) > 0 {
			frames := l.pending
			l.pending, l.spare = l.spare[:0], nil
			l.written += uint64(len(frames))
			l.mu.Unlock()
			if _, err := l.net.Write(frames); err != nil {
				l.fail(err)
				return
			}
			l.mu.Lock()
			if cap(frames) <= keptBuffer {
				l.spare = frames[:0]
			}
		}
		l.writing = false
		l.idle.Broadcast()
		l.mu.Unlock()
	}
}

// Sizes of the buffer that a link reads into.
const (
	leastBuffer = 16 << 10
	busyBuffer  = 128 << 10
)

// read hands out answers until the connection ends.
func (l *link) read(rest []byte) error {
	buffer := make([]byte, max(leastBuffer, len(rest)))
	filled := copy(buffer, rest)
	for {
		left, need, err := l.takeFrames(buffer[:filled])
		if err != nil {
			return err
		}
		full := filled == len(buffer)
		filled = copy(buffer, left)
		if size := max(need, leastBuffer); need > len(buffer) || (full && len(buffer) < busyBuffer) {
			bigger := make([]byte, max(size, min(2*len(buffer), busyBuffer)))
			copy(bigger, buffer[:filled])
			buffer = bigger
		}
		n, err := l.net.Read(buffer[filled:])
		if filled += n; n == 0 && err != nil {
			return err
		}
	}
}

// takeFrames handles every frame that has arrived, and returns what is left and
// how long that has to get.
func (l *link) takeFrames(b []byte) (left []byte, need int, err error) {
	for {
		var f oap.Frame
		if f, b, need, err = oap.Next(b); err != nil || need > 0 {
			return b, need, err
		}
		if err := l.take(&f); err != nil {
			return b, 0, err
		}
	}
}

// take handles one frame.
func (l *link) take(f *oap.Frame) error {
	switch {
	case f.Protocol != oap.ProtocolMailbox || f.Flags&oap.Request != 0:
		return oap.FrameError("a frame that no daemon sends")
	case f.Flags&oap.Event != 0 && f.Code == oap.EventDrain:
		l.onDrain(l)
		return nil
	case f.Flags&oap.Event != 0 && f.Code == oap.EventLeave:
		l.onLeave(l)
		return nil
	case f.Flags&oap.Event != 0 && f.Code == oap.EventTraits:
		return l.takeTraits(f.Payload, oap.ParseOpened)
	case f.Flags&oap.Event != 0 && f.Code == oap.EventOpened:
		return l.takeTraits(f.Payload, oap.ParseIdentified)
	case f.Flags&oap.Event != 0 && f.Code != oap.EventDeliver:
		return nil // a newer daemon has more to say
	}
	l.mu.Lock()
	c := l.calls[f.Correlation]
	if c == nil {
		l.mu.Unlock()
		if f.Flags&oap.End != 0 {
			return closeReason(f)
		}
		return nil
	}
	last := c.take(f.Code, f.Payload)
	if last {
		delete(l.calls, f.Correlation)
		if len(l.calls) == 0 && l.draining {
			l.idle.Broadcast()
		}
	}
	l.mu.Unlock()
	switch {
	case !last:
	case c.done == nil:
		l.giveBack(c)
	default:
		c.done <- struct{}{}
	}
	return nil
}

// closeReason returns the error with which the daemon ended the connection.
func closeReason(f *oap.Frame) error {
	e, err := oap.ParseError(f.Payload)
	if err != nil {
		return err
	}
	return e
}

// takeTraits learns what a daemon says about a queue.
func (l *link) takeTraits(payload []byte, parse func([]byte) (oap.Opened, error)) error {
	opened, err := parse(payload)
	if err != nil {
		return err
	}
	l.onTraits(l, &opened)
	return nil
}

// giveBack returns messages that came for a caller that has gone to their places in
// the queue.
func (l *link) giveBack(c *call) {
	if c.status != oap.StatusOK {
		return
	}
	var extensions []driver.Extension
	for _, payload := range append(c.parts, c.payload) {
		got, err := oap.ParseDeliveries(payload, nil)
		if err != nil {
			return
		}
		extensions = append(extensions, leases(got)...)
	}
	l.extend(c.handle, extensions)
}

// extend extends leases. It does not wait for the answer.
func (l *link) extend(handle uint32, extensions []driver.Extension) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extendLocked(handle, extensions)
}

// giveBackBatch is how many leases one request ends: what every queue allows. The
// daemon does requests that follow each other in one go anyway.
const giveBackBatch = 10

func (l *link) extendLocked(handle uint32, extensions []driver.Extension) {
	if l.failure != nil {
		return
	}
	for batch := range slices.Chunk(extensions, giveBackBatch) {
		l.previous++
		start := l.beginLocked(oap.Request, oap.OpExtend, l.previous)
		l.pending = oap.AppendExtend(l.pending, oap.Target{Handle: handle}, batch)
		oap.SetLength(l.pending, start)
		l.wakeLocked()
	}
}
