package rpcapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// Metadata, in the spelling of HTTP.
const (
	headerCorrelation = "X-Corr-Id"
	// headerExisting keeps a call from creating the queue that it names.
	headerExisting = "X-Mailbox-Existing"
	// headerWorker is what the client calls itself when it receives.
	headerWorker = "X-Mailbox-Worker"
)

// A call is one request and its answer.
type call struct {
	handler *Handler
	control *http.ResponseController
	caller  broker.Caller
	corr    string
	worker  string // what the client calls itself
	program string // the User-Agent
	maxBody int    // the largest body of a message that fits in a request
	answers broker.Answers
	release func() // of the memory for the request, once
}

func newCall(h *Handler, w http.ResponseWriter, r *http.Request) *call {
	c := &call{handler: h, control: http.NewResponseController(w), corr: correlationID(r.Header.Get(headerCorrelation)), maxBody: MaxBodyBytes, worker: r.Header.Get(headerWorker), program: r.UserAgent()}
	if strings.Contains(r.Header.Get("Content-Type"), codecJSON) {
		c.maxBody = maxBodyJSON
	}
	return c
}

type callKey struct{}

// callOf returns the call in a context. ServeHTTP puts it there for all handlers.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// arrived ends the read deadline: the request is complete.
func (c *call) arrived() { _ = c.control.SetReadDeadline(time.Time{}) }

// allowWrite sets the deadline for the client to read the next part.
func (c *call) allowWrite() {
	_ = c.control.SetWriteDeadline(time.Now().Add(c.handler.options.WriteTimeout))
}

// written removes the write deadline, which would end a stream even between writes.
func (c *call) written() { _ = c.control.SetWriteDeadline(time.Time{}) }

// maxCorrelationBytes bounds the correlation id of a client.
const maxCorrelationBytes = 128

// correlationID returns the client's id if it is safe in headers and logs, and a new one
// otherwise.
func correlationID(given string) string {
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }
	if given != "" && len(given) <= maxCorrelationBytes && strings.IndexFunc(given, odd) < 0 {
		return given
	}
	id, err := uuid.NewV7()
	if err != nil {
		return ""
	}
	return id.String()
}

// bearer returns the token of a request.
func bearer(r *http.Request) (capability.Token, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return capability.Token{}, &driver.Error{
			Code: driver.ErrUnauthenticated, Op: "authorize", Err: capability.ReasonMissing, Detail: "no token; send it in the header Authorization: Bearer TOKEN",
		}
	}
	return capability.Parse(text)
}

func reasonOf(err error) string { return string(capability.ReasonOf(err)) }
