package oapapi

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// keptBuffer is the largest buffer that is kept for reuse.
const keptBuffer = 256 << 10

// output collects frames and writes them. A frame is added in a round, and the round flushes
// the output: see package completion.
type output struct {
	net     net.Conn
	timeout time.Duration

	// raw writes without blocking; nil where the connection cannot do that. attempt and
	// the fields behind it are one call of raw, and belong to the goroutine that writes.
	raw       syscall.RawConn
	attempt   func(fd uintptr) bool
	unwritten []byte
	failure   error

	mu      sync.Mutex // guards the fields below
	pending []byte     // frames that are not being written
	spare   []byte
	added   uint64 // how often a frame was added
	queued  bool   // a round will flush the output
	// writing: a goroutine writes, and will not stop before pending is empty.
	writing bool
	failed  error
	// written is called when everything was written, or nothing more will be.
	written func()
	// drained is signalled when pending was taken, for goroutines that wait for room.
	drained sync.Cond
}

func newOutput(nc net.Conn, timeout time.Duration) *output {
	o := &output{net: nc, timeout: timeout, raw: rawConn(nc)}
	o.drained.L = &o.mu
	o.attempt = func(fd uintptr) bool {
		n, err := writeNow(fd, o.unwritten)
		o.unwritten = o.unwritten[max(n, 0):]
		if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			o.failure = err
		}
		return true
	}
	return o
}

// Flush writes what is pending, unless another goroutine does. It does not block: what the
// connection does not take at once is written by a goroutine of its own, so that a client
// that does not read holds up no other.
func (o *output) Flush() {
	o.mu.Lock()
	o.queued = false
	if o.writing || len(o.pending) == 0 || o.failed != nil {
		o.mu.Unlock()
		return
	}
	o.writing = true
	if o.raw == nil {
		o.mu.Unlock()
		go o.writeAll(nil, nil)
		return
	}
	for len(o.pending) > 0 && o.failed == nil {
		frames := o.takeLocked()
		o.mu.Unlock()
		o.unwritten, o.failure = frames, nil
		err := o.raw.Write(o.attempt)
		if err == nil {
			err = o.failure
		}
		rest := o.unwritten
		o.unwritten = nil
		if err == nil && len(rest) > 0 {
			go o.writeAll(frames, rest)
			return
		}
		o.mu.Lock()
		o.wroteLocked(frames, err)
	}
	o.endLocked()
	o.mu.Unlock()
}

// flushHere writes what is pending on this goroutine, and blocks until all of it is written.
func (o *output) flushHere() {
	o.mu.Lock()
	o.queued = false
	if o.writing {
		o.mu.Unlock()
		o.settle()
		return
	}
	o.writing = true
	o.mu.Unlock()
	o.writeAll(nil, nil)
}

// writeAll writes the rest of frames, and then what is pending. It blocks.
func (o *output) writeAll(frames, rest []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if len(rest) > 0 {
			o.mu.Unlock()
			err := o.net.SetWriteDeadline(time.Now().Add(o.timeout))
			if err == nil {
				_, err = o.net.Write(rest)
			}
			if err == nil {
				err = o.net.SetWriteDeadline(time.Time{})
			}
			o.mu.Lock()
			o.wroteLocked(frames, err)
		}
		if len(o.pending) == 0 || o.failed != nil {
			break
		}
		frames = o.takeLocked()
		rest = frames
	}
	o.endLocked()
}

// takeLocked takes the pending frames, to write them.
func (o *output) takeLocked() []byte {
	frames := o.pending
	o.pending, o.spare = o.spare[:0], nil
	o.drained.Broadcast()
	return frames
}

// wroteLocked ends the writing of frames.
func (o *output) wroteLocked(frames []byte, err error) {
	clear(frames) // bodies must not stay in memory
	if cap(frames) <= keptBuffer {
		o.spare = frames[:0]
	}
	if err != nil && o.failed == nil {
		o.failed = err
		_ = o.net.Close() // the reader notices, and ends the connection
	}
}

// endLocked ends the work of the goroutine that writes.
func (o *output) endLocked() {
	o.writing = false
	if o.written != nil {
		o.written()
	}
	o.drained.Broadcast()
}

// rest gives back the memory of an output that has nothing to write.
func (o *output) rest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) == 0 {
		o.pending, o.spare = nil, nil
	}
}

// activity is a number that changes whenever a frame is added.
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

// room blocks while more than limit bytes wait for the goroutine that writes, so that a
// client that does not read cannot make the server keep everything for it.
func (o *output) room(limit int) {
	o.mu.Lock()
	for len(o.pending) > limit && o.writing && o.failed == nil {
		o.drained.Wait()
	}
	o.mu.Unlock()
}

// end refuses frames from now on, because the client has gone.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = net.ErrClosed
	}
	o.drained.Broadcast()
}

// settle blocks while a goroutine writes: frames that were added before are written then, or
// cannot be.
func (o *output) settle() {
	o.mu.Lock()
	for o.writing && o.failed == nil {
		o.drained.Wait()
	}
	o.mu.Unlock()
}

// frame adds a frame whose payload is written by fill, which may be nil. It reports false if
// the frame cannot be written any more. If round is nil, the caller flushes.
func (o *output) frame(round *completion.Round, flags oap.Flags, code uint16, correlation uint64, fill func(dst []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return false
	}
	start := o.beginLocked(round, flags, code, correlation)
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

// beginLocked adds a header, and returns where it begins; oap.SetLength ends the frame.
func (o *output) beginLocked(round *completion.Round, flags oap.Flags, code uint16, correlation uint64) (start int) {
	o.added++
	if round != nil && !o.queued {
		o.queued = true
		round.Later(o)
	}
	start = len(o.pending)
	o.pending = oap.AppendHeader(o.pending, &oap.Header{
		Flags: flags, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation,
	})
	return start
}

// divideLocked divides the frame that begins at start and ends with pending into frames of
// at most limit bytes, and gives all but the last the code part. It returns where the last
// one begins; oap.SetLength ends it.
func (o *output) divideLocked(start, limit int, part uint16) (last int) {
	if len(o.pending)-start <= limit {
		return start
	}
	header := [oap.HeaderBytes]byte(o.pending[start:])
	beyond := slices.Clone(o.pending[start+limit:])
	o.pending = o.pending[:start+limit]
	for rest := range slices.Chunk(beyond, limit-oap.HeaderBytes) {
		oap.SetLength(o.pending, start)
		setCode(o.pending[start:], part)
		start = len(o.pending)
		o.pending = append(append(o.pending, header[:]...), rest...)
	}
	clear(beyond) // bodies must not stay in memory
	return start
}

// setCode changes the code of a frame.
func setCode(frame []byte, code uint16) { binary.BigEndian.PutUint16(frame[8:], code) }

// parts adds a copy of payload, in frames of at most limit bytes. The caller flushes.
func (o *output) parts(as frameCodes, correlation uint64, limit int, payload []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return
	}
	start := o.beginLocked(nil, as.flags, as.last, correlation)
	o.pending = append(o.pending, payload...)
	oap.SetLength(o.pending, o.divideLocked(start, limit, as.part))
}

// copyFrame adds a frame with a copy of payload.
func (o *output) copyFrame(round *completion.Round, flags oap.Flags, code uint16, correlation uint64, payload []byte) bool {
	return o.frame(round, flags, code, correlation, func(dst []byte) []byte { return append(dst, payload...) })
}
