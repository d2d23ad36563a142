package remotebox

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

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
	socket   *socket       // nil if the connection can only be written to in a way that blocks
	ended    chan struct{} // closed when the link is over
	running  sync.WaitGroup
	// crowded is set when the latest read brought answers for several callers, so
	// that more requests are about to follow.
	crowded atomic.Bool
	// releases is set when the daemon has said that a queue can release messages.
	releases atomic.Bool

	mu       sync.Mutex // guards the fields below
	pending  []byte     // frames that are not being written yet
	spare    []byte
	written  uint64        // bytes that were taken from pending so far
	writing  bool          // a goroutine writes what is pending
	room     chan struct{} // closed when pending is taken; nil if no caller waits
	calls    map[uint64]*call
	previous uint64 // correlation id
	failure  error
	draining bool
	left     bool // nothing is posted any more
	// idle is signalled when everything was written, when the last call has its
	// answer, and when the link fails.
	idle sync.Cond
}

func newLink(nc net.Conn, started *oap.StartAnswer, b *Backend) *link {
	l := &link{
		net: nc, instance: started.Server, resumed: started.Resumed, sequence: b.sequence,
		onTraits: b.traitsChanged, onDrain: b.drained, onLeave: b.dismissed,
		socket: newSocket(nc), ended: make(chan struct{}), calls: make(map[uint64]*call),
	}
	l.idle.L = &l.mu
	return l
}

// run starts the goroutine that reads. rest is what was read beyond the handshake.
func (l *link) run(rest []byte) {
	l.running.Go(func() { l.fail(l.read(rest)) })
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
	l.makeRoomLocked()
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

// forget makes the link drop the answer to a call, and reports whether it had
// none yet. If it had, the signal is there or about to be.
func (l *link) forget(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.correlation] != c {
		return false
	}
	if c.code == oap.OpReceive {
		l.calls[c.correlation] = &call{code: oap.OpReceive, handle: c.handle, kept: true, parts: c.parts}
	} else {
		delete(l.calls, c.correlation)
	}
	return true
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
	for answers := 0; ; {
		var f oap.Frame
		if f, b, need, err = oap.Next(b); err != nil || need > 0 {
			return b, need, err
		}
		answered, err := l.take(&f)
		if err != nil {
			return b, 0, err
		}
		if answered {
			answers++
			l.crowded.Store(answers > 1)
		}
	}
}

// take handles one frame, and reports whether it woke a caller.
func (l *link) take(f *oap.Frame) (answered bool, err error) {
	if f.Protocol != oap.ProtocolMailbox || f.Flags&oap.Request != 0 {
		return false, oap.FrameError("a frame that no daemon sends")
	}
	if f.Flags&oap.Event != 0 && f.Code != oap.EventDeliver && f.Code != oap.EventDeliverPart {
		return false, l.takeEvent(f)
	}
	l.mu.Lock()
	c := l.calls[f.Correlation]
	if c == nil {
		l.mu.Unlock()
		if f.Flags&oap.End != 0 {
			return false, closeReason(f)
		}
		return false, nil
	}
	c.bound(f)
	last := c.takePart(f.Code, f.Payload)
	if last {
		delete(l.calls, f.Correlation)
		if len(l.calls) == 0 && l.draining {
			l.idle.Broadcast()
		}
	}
	l.unlockAndWrite()
	if !last {
		return false, nil
	}
	if c.stream == nil {
		c.takeLast(f.Code, f.Payload)
	}
	if c.done == nil {
		l.giveBack(c)
		return false, nil
	}
	c.done <- struct{}{}
	return true, nil
}

// takeEvent handles an event of the daemon or of a queue.
func (l *link) takeEvent(f *oap.Frame) error {
	switch f.Code {
	case oap.EventDrain:
		l.onDrain(l)
	case oap.EventLeave:
		l.onLeave(l)
	case oap.EventTraits:
		return l.takeTraits(f.Payload, oap.ParseOpened)
	case oap.EventOpened:
		return l.takeTraits(f.Payload, oap.ParseIdentified)
	}
	return nil // a newer daemon may have more events
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

// giveBack releases messages that came for a caller that has gone.
func (l *link) giveBack(c *call) {
	if c.status != oap.StatusOK {
		return
	}
	if got, err := oap.ParseDeliveries(c.payload, nil); err == nil {
		l.giveBackAll(c.handle, got)
	}
}

// giveBackAll releases messages, or ends their leases where the daemon counts every delivery. It
// does not wait for the answer.
func (l *link) giveBackAll(handle uint32, got []driver.Delivery) {
	l.mu.Lock()
	l.giveBackLocked(handle, got)
	l.unlockAndWrite()
}

// giveBackBatch is how many messages one request releases: what every queue allows. The
// daemon does requests that follow each other in one go anyway.
const giveBackBatch = 10

func (l *link) giveBackLocked(handle uint32, got []driver.Delivery) {
	target := oap.Target{Handle: handle}
	for batch := range slices.Chunk(got, giveBackBatch) {
		if !l.releases.Load() {
			ends := make([]driver.Extension, len(batch))
			for i := range batch {
				ends[i].Receipt = batch[i].Receipt
			}
			l.requestLocked(oap.OpExtend, func(dst []byte) []byte { return oap.AppendExtend(dst, target, ends) })
			continue
		}
		nacks := make([]driver.Nack, len(batch))
		for i := range batch {
			nacks[i] = driver.Nack{Receipt: batch[i].Receipt, Mode: driver.NackRelease}
		}
		l.requestLocked(oap.OpRelease, func(dst []byte) []byte { return oap.AppendRelease(dst, target, nacks) })
	}
}
