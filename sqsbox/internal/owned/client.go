// Package owned keeps the AWS SDK from breaking its own connections.
//
// The SDK closes the body of a request as soon as the answer begins, and a closed body
// answers io.EOF to whoever copies from it. The transport of net/http copies once more
// after the last byte of an HTTP/1.1 request, to see that nothing follows. Where the
// answer was quicker than that, it takes the io.EOF for a failure and closes the
// connection, with the rest of the answer. The server has done what it was asked by then,
// and can do nothing about it: for it the request was complete before it answered.
package owned

import (
	"bytes"
	"io"
	"net/http"
)

// A Doer sends requests. HTTP clients of the SDK are ones.
type Doer interface {
	Do(r *http.Request) (*http.Response, error)
}

// Bodies returns a Doer whose requests have bodies that the SDK cannot take back.
func Bodies(d Doer) Doer {
	if _, owned := d.(bodies); owned || d == nil {
		return d
	}
	return bodies{d}
}

type bodies struct{ next Doer }

// Do sends a copy of a request, with the whole body in memory, which the transport sends
// in one piece with the header.
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
