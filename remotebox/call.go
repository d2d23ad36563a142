package remotebox

import (
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A call is one request on one connection.
type call struct {
	// fill writes the payload. The number of the queue is that of the
	// connection.
	code     uint16
	sequence uint64 // 0 if it may be done more than once
	handle   uint32
	fill     func(dst []byte, target oap.Target) []byte

	link        *link // that it was posted on
	correlation uint64
	offset      uint64 // where in the link's output it begins

	// The answer, once done has a signal. What is kept is memory of its own;
	// anything else is used again.
	done    chan struct{}
	kept    bool
	status  uint16
	payload []byte
	// parts are the answers before the last, if there are several.
	parts [][]byte
	// stream gets parts as they come, instead.
	stream *stream
	lost   error // the connection was lost
}

// newCall returns a call, one that was used before if there is one.
func (b *Backend) newCall(code uint16, fill func(dst []byte, target oap.Target) []byte) *call {
	c, ok := b.spare.Get().(*call)
	if !ok {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.code, c.fill = code, fill
	return c
}

// keptPayload is the largest buffer that is kept for the next call.
const keptPayload = 4 << 10

// free keeps a call for reuse. No other goroutine may use it any more.
func (b *Backend) free(c *call) {
	payload := c.payload[:0]
	if c.kept || cap(payload) > keptPayload {
		payload = nil
	}
	*c = call{done: c.done, payload: payload}
	b.spare.Put(c)
}

// take takes in an answer, and reports whether it was the last. It is called by
// the connection's reader.
func (c *call) take(status uint16, payload []byte) (last bool) {
	if c.stream != nil {
		return c.stream.take(status, payload)
	}
	if status == oap.StatusMore {
		c.parts = append(c.parts, append([]byte(nil), payload...))
		return false
	}
	c.status = status
	if c.kept {
		c.payload = append(make([]byte, 0, len(payload)), payload...)
	} else {
		c.payload = append(c.payload[:0], payload...)
	}
	return true
}
