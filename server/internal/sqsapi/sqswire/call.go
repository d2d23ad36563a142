package sqswire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// A Protocol is one of the wire protocols of SQS.
type Protocol uint8

// The protocols.
const (
	// JSON is AWS JSON 1.0.
	JSON Protocol = iota
	// Query is AWS Query, answered in XML.
	Query
	// QueryJSON is AWS Query, answered in JSON because the client asks for it.
	QueryJSON
)

const (
	jsonContentType = "application/x-amz-json-1.0"
	targetPrefix    = "AmazonSQS."
)

// A Call is one request of a client. It knows how to answer it.
type Call struct {
	// Action is the action that the client named; it may not exist.
	Action Action
	// Input is the decoded request: a pointer to one of the Input structures,
	// nil before Decode.
	Input Input
	// Protocol is that of the request and of the answer.
	Protocol Protocol
	// RequestID names the request in the answer and in logs.
	RequestID string
	// Path is the path of the request: / or that of a queue.
	Path string

	body   []byte
	form   form
	answer Answer
}

// Read reads a request with a body of at most limit bytes; see [RequestLimit]. The
// Call is never nil: if Read fails, use it for [Call.Fail]. Errors are an *Error or,
// if the client did not send its whole request, the error of reading it.
//
// Read determines only protocol and action, so that callers can authenticate a
// request before they decode it. Decode returns the error for an action that does
// not exist.
func Read(r *http.Request, limit int64) (*Call, error) {
	c := &Call{RequestID: newRequestID(), Path: r.URL.Path, Protocol: protocolOf(r)}
	if target := r.Header.Get("X-Amz-Target"); c.Protocol == JSON {
		action, _ := strings.CutPrefix(target, targetPrefix)
		c.Action = Action(action)
	}
	body, err := readBody(r, limit)
	if err != nil {
		return c, err
	}
	if r.Method != http.MethodPost && r.Method != http.MethodGet {
		// A HEAD would run the action without returning its result.
		c.Action = ""
		return c, UnknownOperation.Default()
	}
	c.body = body
	if c.Protocol == JSON {
		return c, nil
	}
	var form string
	if isForm(r) {
		form = string(body)
	}
	var malformed *Error
	if c.form, malformed = parseForm(form, r.URL.RawQuery); malformed != nil {
		return c, malformed
	}
	action, _ := c.form.get("Action")
	c.Action = Action(action)
	return c, nil
}

// Decode decodes the request into c.Input and checks that all required members are
// present. Errors are an *Error.
func (c *Call) Decode() error {
	in := c.Action.newInput()
	if in == nil || c.misplaced() {
		return c.unknown()
	}
	var err *Error
	if c.Protocol == JSON {
		err = readJSON(c.body, in)
	} else {
		err = c.form.structure(in)
	}
	if err == nil {
		c.completeURL(in)
		err = requireMembers(in, "", 0)
	}
	if err != nil {
		return err
	}
	c.Input = in
	return nil
}

// Decode is [Read] and [Call.Decode] in one.
func Decode(r *http.Request, limit int64) (*Call, error) {
	c, err := Read(r, limit)
	if err != nil {
		return c, err
	}
	return c, c.Decode()
}

// BodySHA256 returns the hash of the request's body, which its signature covers.
func (c *Call) BodySHA256() [sha256.Size]byte { return sha256.Sum256(c.body) }

// unknown returns the error for an action that does not exist.
func (c *Call) unknown() *Error {
	if c.Protocol == JSON || c.Action == "" {
		return UnknownOperation.Default()
	}
	return UnknownOperation.Withf("The action %.128s is not valid for this endpoint.", c.Action)
}

// misplaced reports whether a Query request goes to the URL of a queue with an action
// that AWS accepts only at the root. JSON clients may use any path.
func (c *Call) misplaced() bool {
	if c.Protocol == JSON || c.Action != CreateQueue && c.Action != ListQueues {
		return false
	}
	account, name := QueueName(c.Path)
	return account != "" && name != ""
}

// completeURL takes the queue's URL from the path if the request has it there.
func (c *Call) completeURL(in Input) {
	m, _ := membersOf(in)
	defer m.release()
	if m.url != nil && *m.url == "" && strings.Trim(c.Path, "/") != "" {
		*m.url = c.Path
	}
}

// protocolOf returns the protocol of a request.
func protocolOf(r *http.Request) Protocol {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case r.Header.Get("X-Amz-Target") != "", strings.EqualFold(strings.TrimSpace(mediaType), jsonContentType):
		return JSON
	case acceptsJSON(r):
		return QueryJSON
	default:
		return Query
	}
}

// acceptsJSON reports whether the client prefers JSON to XML.
func acceptsJSON(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for accepted := range strings.SplitSeq(accept, ",") {
			mediaType, _, _ := strings.Cut(accepted, ";")
			switch strings.ToLower(strings.TrimSpace(mediaType)) {
			case "application/json":
				return true
			case "text/xml", "application/xml", "application/xhtml+xml":
				return false
			}
		}
	}
	return false
}

// isForm reports whether the body holds parameters. A body without a Content-Type does.
func isForm(r *http.Request) bool {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/x-www-form-urlencoded"
}

// readBody reads a body of at most limit bytes.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if r.Body == nil {
		return nil, nil
	}
	if whole, ok := r.Body.(*Body); ok {
		body := whole.take()
		if int64(len(body)) > limit {
			return nil, tooLarge(limit)
		}
		return body, nil
	}
	// A client may announce a long body and send nothing, so only a small buffer is
	// allocated in advance.
	const firstBuffer = 64 << 10
	body := make([]byte, 0, min(max(r.ContentLength, 0), firstBuffer)+1)
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, tooLarge(limit)
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, fmt.Errorf("sqs: reading a request: %w", err)
		case len(body) == cap(body):
			// The buffer grows with what has arrived.
			body = slices.Grow(body, int(min(max(r.ContentLength-int64(len(body)), 0), 3*int64(len(body))))+1)
		}
	}
}

func tooLarge(limit int64) *Error {
	return RequestTooLarge.Withf("The request is larger than %d bytes.", limit)
}

// newRequestID returns an id in the form of a random UUID.
func newRequestID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0F | 0x40 // version 4
	id[8] = id[8]&0x3F | 0x80 // the usual variant
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// A Body is the complete body of a request in memory. [Read] uses it without a copy, so
// it must not change until the call is answered.
type Body struct{ rest []byte }

// Reset replaces the content.
func (b *Body) Reset(data []byte) { b.rest = data }

// Read reads from the unread part.
func (b *Body) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close does nothing.
func (*Body) Close() error { return nil }

// take returns the unread part.
func (b *Body) take() []byte {
	rest := b.rest
	b.rest = nil
	return rest
}
