package oapapi

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// keptBuffer is the largest buffer that is kept for the next time.
const keptBuffer = 256 << 10

// output collects frames and writes them. Whoever adds frames calls flush
// afterwards; one of them writes for all.
type output struct {
	net     net.Conn
	timeout time.Duration

	mu      sync.Mutex // guards the fields below
	pending []byte     // frames that nobody has begun to write
	spare   []byte
	added   uint64 // how often something was
	// writing: somebody is writing, or will do so soon, and will not stop
	// before pending is empty.
	writing bool
	failed  error
	// written is called when everything was written, or nothing more will be.
	written func()
	// drained is signalled when pending was taken; for those who wait for room.
	drained sync.Cond
}

func newOutput(nc net.Conn, timeout time.Duration) *output {
	o := &output{net: nc, timeout: timeout}
	o.drained.L = &o.mu
	return o
}

// hold makes frames wait until flushHeld: the reader holds the output while it
// works through what has arrived, so that its answers, and those that others
// give meanwhile, go out together. It reports whether it holds it.
func (o *output) hold() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return false
	}
	o.writing = true
	return true
}

// flushHeld writes what has come together, and lets go.
func (o *output) flushHeld() {
	o.mu.Lock()
	o.writeLocked()
	o.mu.Unlock()
}

// flush writes what is there, unless somebody else will.
func (o *output) flush() {
	o.mu.Lock()
	if !o.writing {
		o.writing = true
		o.writeLocked()
	}
	o.mu.Unlock()
}

// flushSoon writes what is there and what others add who were woken by the same
// messages, in one piece. One of them waits for the others, not each for all.
func (o *output) flushSoon() {
	if o.hold() {
		runtime.Gosched()
		o.flushHeld()
	}
}

func (o *output) writeLocked() {
	for len(o.pending) > 0 && o.failed == nil {
		frames := o.pending
		o.pending, o.spare = o.spare[:0], nil
		o.drained.Broadcast()
		o.mu.Unlock()
		err := o.net.SetWriteDeadline(time.Now().Add(o.timeout))
		if err == nil {
			_, err = o.net.Write(frames)
		}
		o.mu.Lock()
		clear(frames) // payloads are not to stay where nobody needs them
		if cap(frames) <= keptBuffer {
			o.spare = frames[:0]
		}
		if err != nil {
			o.failed = err
			_ = o.net.Close() // the reader finds out, and ends the connection
		}
	}
	o.writing = false
	if o.written != nil {
		o.written()
	}
	o.drained.Broadcast()
}

// activity is a number that changes whenever something is added.
func (o *output) activity() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.added
}

// size is how many bytes wait to be written.
func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// room blocks while more than limit bytes wait to be written, so that a client
// that does not read cannot make the server keep everything for it.
func (o *output) room(limit int) {
	o.mu.Lock()
	for len(o.pending) > limit && o.writing && o.failed == nil {
		o.drained.Wait()
	}
	o.mu.Unlock()
}

// end refuses what is added from now on: nobody reads any more.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = net.ErrClosed
	}
	o.drained.Broadcast()
}

// settle blocks while somebody writes: what was added before is written then, or
// cannot be.
func (o *output) settle() {
	o.mu.Lock()
	for o.writing && o.failed == nil {
		o.drained.Wait()
	}
	o.mu.Unlock()
}

// frame adds a frame whose payload is written by fill, and reports whether it
// has a chance to be written.
func (o *output) frame(flags oap.Flags, code uint16, correlation uint64, fill func(dst []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return false
	}
	start := o.beginLocked(flags, code, correlation)
	if fill != nil {
		o.pending = fill(o.pending)
	}
	oap.SetLength(o.pending, start)
	return true
}

// text adds what is not a frame.
func (o *output) text(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.pending = append(o.pending, text...)
	}
}

// beginLocked adds a header, and returns where it begins; oap.SetLength ends the
// frame.
func (o *output) beginLocked(flags oap.Flags, code uint16, correlation uint64) (start int) {
	o.added++
	start = len(o.pending)
	o.pending = oap.AppendHeader(o.pending, &oap.Header{
		Flags: flags, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation,
	})
	return start
}

// copyFrame adds a frame with a payload that is there.
func (o *output) copyFrame(flags oap.Flags, code uint16, correlation uint64, payload []byte) bool {
	return o.frame(flags, code, correlation, func(dst []byte) []byte { return append(dst, payload...) })
}
