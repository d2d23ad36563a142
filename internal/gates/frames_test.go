package gates_test

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// frames is an OAP/1 connection that reads and writes single frames.
type frames struct {
	net.Conn
	pending []byte
	next    uint64
}

// startFrame returns the START frame with a token.
func startFrame(token string) ([]byte, error) {
	binary, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, err
	}
	start := oap.StartRequest{Version: oap.ProtocolVersion}
	_, _ = rand.Read(start.Producer[:]) // never fails, see crypto/rand
	payload := oap.AppendStart(nil, &start)
	return oap.AppendFrame(nil, &oap.Header{Flags: oap.Request | oap.Start, Code: oap.OpStart, Protocol: oap.ProtocolMailbox}, binary, payload), nil
}

// beginFrames sends a START frame on a connection.
func beginFrames(c net.Conn, token string) (*frames, error) {
	f := &frames{Conn: c}
	frame, err := startFrame(token)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	answer, err := f.read()
	if err == nil && answer.Code != oap.StatusOK {
		err = errors.New("START was refused")
	}
	return f, err
}

// read returns the next frame.
func (f *frames) read() (oap.Frame, error) {
	_ = f.SetReadDeadline(time.Now().Add(40 * time.Second))
	for {
		frame, rest, need, err := oap.Next(f.pending)
		if err != nil {
			return frame, err
		}
		if need == 0 {
			f.pending = rest
			return frame, nil
		}
		more := make([]byte, 4096)
		n, err := f.Read(more)
		f.pending = append(f.pending, more[:n]...)
		if err != nil && n == 0 {
			return frame, err
		}
	}
}

// ask sends a request and returns the answer.
func (f *frames) ask(code uint16, payload []byte) (oap.Frame, error) {
	f.next++
	frame := oap.AppendFrame(nil, &oap.Header{Flags: oap.Request, Code: code, Protocol: oap.ProtocolMailbox, Correlation: f.next}, nil, payload)
	if _, err := f.Write(frame); err != nil {
		return oap.Frame{}, err
	}
	return f.read()
}

// ended reports whether the other side has closed a connection, and how long that took.
func ended(t testing.TB, c net.Conn, patience time.Duration) (time.Duration, bool) {
	t.Helper()
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(patience))
	for buffer := make([]byte, 4096); ; {
		_, err := c.Read(buffer)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return time.Since(began), false
		}
		if err != nil {
			return time.Since(began), true // closed, or reset because of unread data
		}
	}
}
