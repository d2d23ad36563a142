// Package owned keeps the AWS SDK from breaking its own connections.
//
// The SDK closes the body of a request as soon as the response begins, and a closed body
// returns io.EOF to a copy. The transport of net/http reads once more after the last byte
// of an HTTP/1.1 request, to see that nothing follows. If the response came before that
// read, the transport treats the io.EOF as a failure and closes the connection, and the
// rest of the response is lost. The server has carried out the request by then and cannot
// help: it received a complete request.
package owned

import (
	"bytes"
	"io"
	"net/http"
)

// A Doer sends requests. The HTTP clients of the SDK are Doers.
type Doer interface {
	Do(r *http.Request) (*http.Response, error)
}

// Bodies returns a Doer that sends copies of request bodies, which the SDK cannot close.
func Bodies(d Doer) Doer {
	if _, owned := d.(bodies); owned || d == nil {
		return d
	}
	return bodies{d}
}

type bodies struct{ next Doer }

// Do sends a copy of a request with the whole body in memory, which the transport writes
// together with the header.
func (b bodies) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return b.next.Do(r)
	}
	text := new(bytes.Buffer)
	text.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	if _, err := text.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	copied := r.WithContext(r.Context())
	copied.Body = io.NopCloser(bytes.NewReader(text.Bytes()))
	return b.next.Do(copied)
}
