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

// frameHead is the flags and the length that begin a frame of gRPC and of streams of
// Connect.
const frameHead = 5

// bounded limits the body of a request. The library limits messages too, but reads one
// that is too long to its end.
func (c *call) bounded(r *http.Request) io.ReadCloser {
	kind := r.Header.Get("Content-Type")
	framed := strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
	if framed {
		return &framedBody{body: r.Body, call: c}
	}
	return &plainBody{body: r.Body, call: c, left: MaxRequestBytes}
}

// readError returns a wire error for a failed read. The library passes a connect.Error
// on unchanged.
func (c *call) readError(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return c.fault(&driver.Error{Code: driver.ErrTimeout, Op: "read", Detail: "the request took too long to arrive"})
	}
	return err
}

// plainBody is the body of a unary Connect call: one message without a frame.
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
	if len(p) > b.left+1 { // one byte more, to notice a body that is too long
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

// framedBody is a body of frames. It reads the head of each frame, and fails at a head
// that announces too many bytes.
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
		if length > MaxRequestBytes-frameHead {
			// The library never gets the last byte of the head, so it does not begin the frame.
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
