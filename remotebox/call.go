package remotebox

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A call is one request on one connection.
type call struct {
	code   uint16
	ticket oap.Ticket // zero if it may be done more than once
	handle uint32
	// The arguments: of the operations that are called most, and fill, which
	// writes the payload, of all others. A closure for each message is an
	// allocation for each.
	msgs     []driver.Outgoing
	receipts []driver.Receipt
	receive  driver.ReceiveRequest
	began    time.Time
	fill     func(dst []byte, target oap.Target) []byte

	link        *link // that it was posted on
	correlation uint64
	offset      uint64 // where in the link's output it begins

	// The answer, once done has a signal. With kept the payload is memory of its
	// own, otherwise it is scratch, which the next call uses again.
	done    chan struct{}
	kept    bool
	status  uint16
	payload []byte
	scratch []byte
	// parts are the payloads before the last, if the answer has several frames.
	parts []byte
	// stream gets them as they come, instead.
	stream *stream
	lost   error // the connection was lost
}

// appendPayload writes the payload of the request.
func (c *call) appendPayload(dst []byte) []byte {
	target := oap.Target{Ticket: c.ticket, Handle: c.handle}
	switch {
	case c.fill != nil:
		return c.fill(dst, target)
	case c.code == oap.OpSend:
		dst = oap.AppendSend(dst, target, len(c.msgs))
		for i := range c.msgs {
			dst = oap.AppendOutgoing(dst, &c.msgs[i])
		}
		return dst
	case c.code == oap.OpAck:
		return oap.AppendAck(dst, target, c.receipts)
	}
	left := c.receive
	if left.Wait > 0 {
		left.Wait = max(0, left.Wait-time.Since(c.began))
	}
	return oap.AppendReceive(dst, c.handle, left)
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

// keptScratch is the largest buffer that is kept for the next call.
const keptScratch = 4 << 10

// free keeps a call for reuse. No other goroutine may use it any more.
func (b *Backend) free(c *call) {
	scratch := c.scratch
	if cap(scratch) > keptScratch {
		scratch = nil
	}
	*c = call{done: c.done, scratch: scratch}
	b.spare.Put(c)
}

// maxAnswerBytes bounds an answer that comes in several frames, and a message of a
// subscription: twice what a body in a directory can have. A daemon must not be able to take
// all of the client's memory.
const maxAnswerBytes = 128 << 20

// bound replaces a frame that makes the answer too long by an error, which ends the call. The
// frames that follow belong to no call, and are dropped. The caller holds the lock of the
// link.
func (c *call) bound(f *oap.Frame) {
	joined := &c.parts
	if c.stream != nil {
		joined = &c.stream.begun
	}
	if len(*joined)+len(f.Payload) <= maxAnswerBytes {
		return
	}
	*joined = nil
	f.Code, f.Payload = oap.StatusTooLarge, oap.AppendError(nil, &driver.Error{
		Code: driver.ErrTooLarge, Detail: fmt.Sprintf("the answer of the daemon is longer than %d bytes", maxAnswerBytes),
	})
}

// takePart takes in what comes before the last answer, and reports whether this is the
// last one. The caller holds the lock of the link.
func (c *call) takePart(status uint16, payload []byte) (last bool) {
	if c.stream != nil {
		return c.stream.take(status, payload)
	}
	if status != oap.StatusMore && status != oap.StatusPart {
		return true
	}
	c.parts = append(c.parts, payload...)
	return false
}

// takeLast takes in the last answer, and joins it with the parts: an element of a long
// answer may be longer than a frame. The link does not know the call any more, so this
// needs no lock.
func (c *call) takeLast(status uint16, payload []byte) {
	c.status = status
	if c.kept && c.parts == nil {
		c.payload = append(make([]byte, 0, len(payload)), payload...)
		return
	}
	if c.parts != nil && status == oap.StatusOK {
		c.payload = append(c.parts, payload...)
		return
	}
	c.scratch = append(c.scratch[:0], payload...)
	c.payload = c.scratch
}
