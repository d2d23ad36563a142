package rpcapi

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// frameHead is the flags and the length that begin a frame of gRPC and of
	// streams of Connect.
	frameHead = 5
	// maxBodyBytes bounds requests of one message.
	maxBodyBytes = MaxFrameBytes + frameHead
)

// bounded returns the body of a request with the bounds of the surface. The
// library would bound messages too, and read those that are too long to their
// end all the same, to see how long they are.
func (c *call) bounded(r *http.Request) io.ReadCloser {
	kind := r.Header.Get("Content-Type")
	framed := strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
	if framed {
		return &framedBody{body: r.Body, call: c}
	}
	return &plainBody{body: r.Body, call: c, left: MaxFrameBytes}
}

// readError makes an error that the client understands of one of reading. The
// library passes errors on that are the surface's own.
func (c *call) readError(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return c.fault(&driver.Error{Code: driver.ErrTimeout, Op: "read", Detail: "the request took too long to arrive"})
	}
	return err
}

// plainBody is the body of a unary call of Connect: one message, as it is.
type plainBody struct {
	body io.ReadCloser
	call *call
	left int
	end  error
}

func (b *plainBody) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	if len(p) > b.left+1 { // one more, to see whether there is more
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if b.left -= n; b.left < 0 {
		b.end = b.call.fault(b.call.tooLarge())
		return n - 1, b.end
	}
	b.end = b.call.readError(err)
	return n, b.end
}

func (b *plainBody) Close() error { return b.body.Close() }

// framedBody is a body of frames. It looks at the heads as they pass, and ends
// with an error at one that announces too much.
type framedBody struct {
	body io.ReadCloser
	call *call
	head [frameHead]byte
	seen int // bytes of the head
	left int // bytes of the frame behind it
	end  error
}

func (b *framedBody) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err := b.body.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if b.left > 0 {
			step := min(b.left, len(rest))
			b.left -= step
			rest = rest[step:]
			continue
		}
		step := copy(b.head[b.seen:], rest)
		b.seen += step
		if b.seen < frameHead {
			break
		}
		length := binary.BigEndian.Uint32(b.head[1:])
		if length > MaxFrameBytes {
			// The last byte of the head is kept back, so that the frame is never begun.
			b.end = b.call.fault(b.call.tooLarge())
			return n - len(rest) + step - 1, b.end
		}
		rest = rest[step:]
		b.seen, b.left = 0, int(length)
	}
	b.end = b.call.readError(err)
	return n, b.end
}

func (b *framedBody) Close() error { return b.body.Close() }
