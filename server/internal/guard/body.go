package guard

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Bodies returns a handler that bounds how long the body of a request may take.
// Package http reads up to 256 KiB of a body that a handler has left unread, and waits
// for it without a deadline: a client without a token could hold connections, and delay
// the drain, without limit. With this handler a body has timeout to arrive, unless next
// sets its own deadline. If next returns without having read the whole body, the answer
// is sent and the connection is closed.
//
// HTTP/2 does not need this, because an answered stream ends without its body.
func Bodies(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(timeout))
		body := &trackedBody{ReadCloser: r.Body}
		tracked := *r // a copy, because package http checks the type of the body in r
		tracked.Body = body
		next.ServeHTTP(w, &tracked)
		if !body.ended {
			_ = control.SetReadDeadline(time.Now())
		}
	})
}

// A trackedBody remembers whether it was read to its end.
type trackedBody struct {
	io.ReadCloser
	ended bool
}

// Read reads from the underlying body.
func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended = true
	}
	return n, err
}
