package sqsclients_test

import (
	"bytes"
	"io"
	"net/http"
)

// ownedBodies gives each request a body of its own. The SDK takes the body back as soon
// as there is an answer; where the daemon is fast and the processors are busy, the
// transport has not noticed by then that it has sent all of it, and breaks the
// connection while the answer is being read.
type ownedBodies struct{ *http.Transport }

// RoundTrip sends a copy of the request.
func (o ownedBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return o.Transport.RoundTrip(r)
}
