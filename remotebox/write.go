package remotebox

import (
	"runtime"

	"github.com/mailboxmq/mailbox/internal/oap"
)

const (
	// keptBuffer is the largest buffer that is kept for the next time.
	keptBuffer = 256 << 10
	// maxPending bounds the frames that wait to be written. Calls wait for room, so
	// that calls to a daemon that has stopped reading, each given up after a
	// while, do not pile up.
	maxPending = 4 << 20
	// maxWrites bounds how many times in a row a caller writes what others have added
	// in the meantime, before it leaves that to a goroutine.
	maxWrites = 16
)

// post puts a call on its way. It does not block. If too much is pending, it does
// nothing and returns a channel that is closed when there may be room again. Otherwise
// it returns false if the link is over, or about to be.
func (l *link) post(c *call) (posted bool, room <-chan struct{}) {
	l.mu.Lock()
	if l.failure != nil || l.left {
		l.mu.Unlock()
		return false, nil
	}
	if len(l.pending) >= maxPending {
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room = l.room
		l.mu.Unlock()
		return false, room
	}
	c.link, c.offset = l, l.written+uint64(len(l.pending))
	c.correlation = l.requestLocked(c.code, c.appendPayload)
	l.calls[c.correlation] = c
	l.unlockAndWrite()
	return true, nil
}

// requestLocked adds a request to what is pending. The caller unlocks with
// unlockAndWrite.
func (l *link) requestLocked(code uint16, fill func(dst []byte) []byte) (correlation uint64) {
	l.previous++
	l.frameLocked(oap.Request, code, l.previous, fill)
	return l.previous
}

// event sends something that is not answered.
func (l *link) event(flags oap.Flags, code uint16, correlation uint64, fill func(dst []byte) []byte) {
	l.mu.Lock()
	l.frameLocked(oap.Event|flags, code, correlation, fill)
	l.unlockAndWrite()
}

func (l *link) frameLocked(flags oap.Flags, code uint16, correlation uint64, fill func(dst []byte) []byte) {
	if l.failure != nil {
		return
	}
	start := len(l.pending)
	l.pending = oap.AppendHeader(l.pending, &oap.Header{
		Flags: flags, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation,
	})
	if fill != nil {
		l.pending = fill(l.pending)
	}
	oap.SetLength(l.pending, start)
}

// unlockAndWrite unlocks the link and writes what is pending, unless another goroutine
// is writing already, which then writes this too. It does not block: what the connection
// does not take at once is left to a goroutine.
func (l *link) unlockAndWrite() {
	mine := !l.writing && len(l.pending) > 0 && l.failure == nil
	l.writing = l.writing || mine
	l.mu.Unlock()
	if !mine {
		return
	}
	if l.crowded.Load() {
		// Other callers were woken by the same read and are about to add their
		// next requests: one write does for all of them.
		runtime.Gosched()
	}
	var frames []byte
	for writes := 0; ; writes++ {
		if frames = l.nextFrames(frames); frames == nil {
			return
		}
		n := 0
		if l.socket != nil && writes < maxWrites {
			n = l.socket.tryWrite(frames)
		}
		if n < len(frames) {
			l.writeBlocking(frames, n)
			return
		}
	}
}

// nextFrames takes back the buffer of frames, which have been written, and returns those
// that follow. If there are none, it returns nil, and the caller must not write any more.
func (l *link) nextFrames(frames []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if frames != nil && cap(frames) <= keptBuffer {
		l.spare = frames[:0]
	}
	if len(l.pending) == 0 || l.failure != nil {
		l.writing = false
		l.idle.Broadcast()
		return nil
	}
	frames = l.pending
	l.pending, l.spare = l.spare, nil
	l.written += uint64(len(frames))
	l.makeRoomLocked()
	return frames
}

// makeRoomLocked wakes calls that wait for room.
func (l *link) makeRoomLocked() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// writeBlocking writes frames, of which n bytes have been written, and what follows
// them, in a goroutine.
func (l *link) writeBlocking(frames []byte, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil { // running may be over
		return
	}
	l.running.Go(func() {
		for rest := frames[n:]; rest != nil; rest = frames {
			if _, err := l.net.Write(rest); err != nil {
				l.fail(err)
				return
			}
			frames = l.nextFrames(frames)
		}
	})
}
