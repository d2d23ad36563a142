package oapapi

import (
	"net"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// input reads frames. Its buffer is small for the many connections that do
// little, tiny for those that rest, and grows for those that are busy.
type input struct {
	net     net.Conn
	options *Options
	buffer  []byte
	from    int // where the first byte is that was not handled
	to      int // where the last one ends
	need    int // how long the frame at from is, as far as is known
	small   int // how many reads in a row would have done with less
	rests   bool

	deadline  time.Time // as it was set
	handshake time.Time // when the capability must have been shown
	partial   time.Time // when the frame at from must be complete; zero if none has begun
}

const (
	// restBuffer holds the header of a frame: the rest of it comes with the next read.
	restBuffer  = 64
	leastBuffer = 1 << 10
	busyBuffer  = 128 << 10
	// calmReads is after how many small reads the buffer shrinks.
	calmReads = 64
)

func (in *input) begin(nc net.Conn, options *Options) {
	in.net, in.options = nc, options
	in.buffer = make([]byte, leastBuffer)
	in.need = oap.HeaderBytes
	in.handshake = time.Now().Add(options.HandshakeTimeout)
}

// next returns the next frame if it is all there. What it points to is good
// until fill.
func (in *input) next() (f oap.Frame, ok bool, err error) {
	f, rest, need, err := oap.Next(in.buffer[in.from:in.to])
	if err != nil {
		return f, false, err
	}
	if need > 0 {
		in.need = need
		return f, false, nil
	}
	in.from = in.to - len(rest)
	in.partial = time.Time{} // the next one has a time of its own
	return f, true, nil
}

// idle reports whether no frame has begun.
func (in *input) idle() bool { return in.from == in.to }

// fill blocks until more has arrived.
func (in *input) fill(started bool) error {
	in.makeRoom()
	if err := in.setDeadline(started); err != nil {
		return err
	}
	n, err := in.net.Read(in.buffer[in.to:])
	in.to += n
	if n > 0 {
		in.rests = false
		in.resize(n)
		return nil // an error comes again
	}
	return err
}

// rest gives back the buffer until the next byte arrives. It reports false if it was given
// back before. No frame has begun.
func (in *input) rest() bool {
	if in.rests {
		return false
	}
	in.rests = true
	in.buffer = make([]byte, restBuffer)
	in.from, in.to, in.small = 0, 0, 0
	return true
}

// makeRoom moves what is left to the front of a buffer that has room for the
// frame.
func (in *input) makeRoom() {
	left := in.to - in.from
	clear(in.buffer[:in.from]) // payloads must not stay in memory
	switch {
	case in.need > len(in.buffer):
		bigger := make([]byte, in.need)
		copy(bigger, in.buffer[in.from:in.to])
		in.buffer = bigger
	case left == 0 && len(in.buffer) > busyBuffer:
		in.buffer = make([]byte, busyBuffer) // after a large frame
	case in.from > 0:
		copy(in.buffer, in.buffer[in.from:in.to])
	default:
		return
	}
	in.from, in.to = 0, left
}

// resize changes the buffer to what the latest read says would be right. It only
// grows what is full and shrinks what is hardly used.
func (in *input) resize(n int) {
	switch size := len(in.buffer); {
	case size < leastBuffer || in.to == size && size < busyBuffer:
		bigger := make([]byte, max(2*size, leastBuffer))
		copy(bigger, in.buffer[:in.to])
		in.buffer = bigger
		in.small = 0
	case size > leastBuffer && size <= busyBuffer && n < size/8:
		if in.small++; in.small >= calmReads && in.to-in.from < size/2 && in.need <= size/2 {
			smaller := make([]byte, size/2)
			in.to = copy(smaller, in.buffer[in.from:in.to])
			in.from = 0
			in.buffer = smaller
			in.small = 0
		}
	default:
		in.small = 0
	}
}

// setDeadline sets until when the next bytes must be there. Changing it costs
// something, so an idle connection's is moved only now and then.
func (in *input) setDeadline(started bool) error {
	now := time.Now()
	var at time.Time
	switch {
	case !in.idle():
		if in.partial.IsZero() {
			in.partial = now.Add(in.options.FrameTimeout)
		}
		at = in.partial
	default:
		in.partial = time.Time{}
		timeout := in.options.IdleTimeout
		switch {
		case in.rests:
			timeout -= in.options.RestAfter
		case started:
			timeout = in.options.RestAfter
		}
		at = now.Add(timeout)
		slack := timeout / 4
		if in.deadline.After(at.Add(-slack)) && !in.deadline.After(at) {
			at = in.deadline
		}
	}
	if !started && in.handshake.Before(at) {
		at = in.handshake
	}
	if at.Equal(in.deadline) {
		return nil
	}
	in.deadline = at
	return in.net.SetReadDeadline(at)
}
