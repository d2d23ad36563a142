package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
)

const (
	// MaxRequestBytes bounds the body of a request. Longer ones are refused before they
	// are read.
	MaxRequestBytes = 1 << 20
	// MaxBodyBytes is the largest body of a message that fits in a request as base64,
	// beside the names of the fields, the queue and a key.
	MaxBodyBytes = (MaxRequestBytes - 1<<10) / 4 * 3
)

// Headers.
const (
	headerCorrelation = "X-Corr-Id"
	headerIdempotency = "X-Idempotency-Mode"
	// headerExisting keeps a request from creating the queue that it names.
	headerExisting = "X-Mailbox-Existing"
	// headerTenant names the tenant whose queues an operator reads.
	headerTenant = "X-Mailbox-Tenant"
)

// Options configure a Handler.
type Options struct {
	Broker *broker.Broker
	// Logger gets a line for each request that failed because of the daemon, not the
	// client. Nil logs nothing.
	Logger *slog.Logger
	// ReadTimeout bounds how long the body of a request may take to arrive; 0
	// means DefaultReadTimeout.
	ReadTimeout time.Duration
	// WriteTimeout bounds how long the client may take to read an answer, or a
	// part of it where it is streamed; 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	// MaxMessages and MaxBytes are the defaults of receives; 0 means 32 and 512 KiB.
	MaxMessages int
	MaxBytes    int
	// Visibility is the default of receives; 0 means 5 s.
	Visibility time.Duration
	// Ready returns what keeps the daemon from being ready; nil means nothing.
	Ready func(ctx context.Context) Readiness
	// Hosts are the host names that are allowed in requests without a token.
	Hosts guard.Hosts
	// Version is that of the daemon. Health and readiness show it on this machine, on
	// the listener for metrics, and to clients with a genuine token.
	Version string
}

// The defaults of Options.
const (
	DefaultReadTimeout  = 5 * time.Second
	DefaultWriteTimeout = 5 * time.Second
	defaultMaxMessages  = 32
	defaultMaxBytes     = 512 << 10
	defaultVisibility   = 5 * time.Second
)

// A Handler serves the HTTP surface. It is an http.Handler.
type Handler struct {
	options Options
	broker  *broker.Broker
	log     *slog.Logger
	mux     *http.ServeMux
	waiting waitingCalls
}

// New returns a handler. It does no I/O.
func New(options Options) *Handler {
	orDefault(&options.ReadTimeout, DefaultReadTimeout)
	orDefault(&options.WriteTimeout, DefaultWriteTimeout)
	orDefault(&options.MaxMessages, defaultMaxMessages)
	orDefault(&options.MaxBytes, defaultMaxBytes)
	orDefault(&options.Visibility, defaultVisibility)
	h := &Handler{options: options, broker: options.Broker, log: options.Logger, mux: http.NewServeMux()}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	for _, route := range routes {
		h.mux.Handle(route.pattern(), h.route(route))
	}
	return h
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// A Route is a method and a path that are served.
type Route struct {
	Method string
	Path   string
	open   bool // needs no token
	looks  bool // changes nothing, so an operator may use it for a tenant's queues
	alone  bool // is on a listener without tokens
	serve  func(h *Handler, c *call) error
}

// pattern returns the pattern for http.ServeMux, where "/" would match every path.
func (r Route) pattern() string {
	if r.Path == "/" {
		return r.Method + " /{$}"
	}
	return r.Method + " " + r.Path
}

// Routes lists all routes, for the test that compares them with api/openapi.yaml.
func Routes() []Route { return append([]Route(nil), routes...) }

var routes []Route

// The table is filled in init, because its functions refer to it.
func init() {
	routes = []Route{
		{Method: "POST", Path: "/v1/send", serve: (*Handler).send},
		{Method: "POST", Path: "/v1/send/batch", serve: (*Handler).sendBatch},
		{Method: "POST", Path: "/v1/recv", serve: (*Handler).receive},
		{Method: "POST", Path: "/v1/recv/cancel", serve: (*Handler).cancelReceive},
		{Method: "POST", Path: "/v1/recv/stream", serve: (*Handler).receiveStream},
		{Method: "POST", Path: "/v1/ack/{msg_id}", serve: (*Handler).ackOne},
		{Method: "POST", Path: "/v1/nack/{msg_id}", serve: (*Handler).nackOne},
		{Method: "POST", Path: "/v1/extend/{msg_id}", serve: (*Handler).extendOne},
		{Method: "POST", Path: "/v1/bury/{msg_id}", serve: (*Handler).deadLetterOne},
		{Method: "POST", Path: "/v1/ack", serve: (*Handler).ackBatch},
		{Method: "POST", Path: "/v1/nack", serve: (*Handler).nackBatch},
		{Method: "POST", Path: "/v1/extend", serve: (*Handler).extendBatch},
		{Method: "POST", Path: "/v1/bury", serve: (*Handler).deadLetterBatch},
		{Method: "POST", Path: "/v1/peek", looks: true, serve: (*Handler).peek},
		{Method: "POST", Path: "/v1/life", looks: true, serve: (*Handler).life},
		{Method: "POST", Path: "/v1/stats", looks: true, serve: (*Handler).stats},
		{Method: "POST", Path: "/v1/history", looks: true, serve: (*Handler).history},
		{Method: "GET", Path: "/v1/watch", looks: true, serve: (*Handler).watch},
		{Method: "GET", Path: "/v1/workers", looks: true, serve: (*Handler).workers},
		{Method: "POST", Path: "/v1/purge", serve: (*Handler).purge},
		{Method: "POST", Path: "/v1/pause", serve: (*Handler).pause},
		{Method: "POST", Path: "/v1/throttle", serve: (*Handler).throttle},
		{Method: "POST", Path: "/v1/resume", serve: (*Handler).resume},
		{Method: "POST", Path: "/v1/edit", serve: (*Handler).edit},
		{Method: "POST", Path: "/v1/schedules/list", looks: true, serve: (*Handler).schedules},
		{Method: "POST", Path: "/v1/schedules/put", serve: (*Handler).putSchedule},
		{Method: "POST", Path: "/v1/schedules/get", looks: true, serve: (*Handler).getSchedule},
		{Method: "POST", Path: "/v1/schedules/pause", serve: (*Handler).pauseSchedule},
		{Method: "POST", Path: "/v1/schedules/resume", serve: (*Handler).resumeSchedule},
		{Method: "POST", Path: "/v1/schedules/run", serve: (*Handler).runSchedule},
		{Method: "POST", Path: "/v1/schedules/delete", serve: (*Handler).deleteSchedule},
		{Method: "POST", Path: "/v1/replies/create", serve: (*Handler).createSlot},
		{Method: "POST", Path: "/v1/replies/resolve", serve: (*Handler).resolveSlot},
		{Method: "POST", Path: "/v1/replies/wait", serve: (*Handler).waitSlot},
		{Method: "POST", Path: "/v1/replies/get", looks: true, serve: (*Handler).getSlot},
		{Method: "POST", Path: "/v1/replies/consume", serve: (*Handler).consumeSlot},
		{Method: "POST", Path: "/v1/replies/cancel", serve: (*Handler).cancelSlot},
		{Method: "POST", Path: "/v1/replies/delete", serve: (*Handler).deleteSlot},
		{Method: "POST", Path: "/v1/replies/list", looks: true, serve: (*Handler).listSlots},
		{Method: "POST", Path: "/v1/replies/expired", serve: (*Handler).expiredSlots},
		{Method: "POST", Path: "/v1/replies/sweep", serve: (*Handler).sweepSlots},
		{Method: "POST", Path: "/v1/traits", serve: (*Handler).traits},
		{Method: "POST", Path: "/v1/queues/list", looks: true, serve: (*Handler).queues},
		{Method: "POST", Path: "/v1/queues/configure", serve: (*Handler).configure},
		{Method: "POST", Path: "/v1/queues/get", looks: true, serve: (*Handler).config},
		{Method: "POST", Path: "/v1/queues/delete", serve: (*Handler).remove},
		{Method: "POST", Path: "/v1/queues/{topic}/messages", serve: (*Handler).sendBody},
		{Method: "GET", Path: "/v1/queues/{topic}/messages", looks: true, serve: (*Handler).peekPage},
		{Method: "GET", Path: "/v1/queues/{topic}/stats", looks: true, serve: (*Handler).statsPage},
		{Method: "POST", Path: "/v1/ping", serve: (*Handler).ping},
		{Method: "POST", Path: "/v1/caps/mint", serve: (*Handler).mint},
		{Method: "POST", Path: "/v1/caps/revoke", serve: (*Handler).revoke},
		{Method: "POST", Path: "/v1/audit", serve: (*Handler).audit},
		{Method: "POST", Path: "/v1/keys/list", serve: (*Handler).keys},
		{Method: "POST", Path: "/v1/keys/rotate", serve: (*Handler).rotateKeys},
		{Method: "POST", Path: "/v1/keys/retire", serve: (*Handler).retireKey},
		{Method: "POST", Path: "/v1/backup", serve: (*Handler).backup},
		{Method: "GET", Path: "/", open: true, serve: (*Handler).index},
		{Method: "GET", Path: "/healthz", open: true, serve: (*Handler).healthy},
		{Method: "GET", Path: "/readyz", open: true, serve: (*Handler).ready},
		{Method: "GET", Path: "/metrics", serve: (*Handler).metrics},
	}
	routes = append(append(routes, deadLetterRoutes()...), jobRoutes()...)
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern == "" {
		c := h.newCall(w, r)
		_ = c.stranger()         //nolint:contextcheck // as below; the client is refused in any case
		c.fail(h.unknownPath(r)) //nolint:contextcheck // a call has its request's context
		return
	}
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) route(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := h.newCall(w, r)
		defer c.end()
		err := c.prepare(route) //nolint:contextcheck // a call has its request's context
		if err == nil {
			err = route.serve(h, c)
		}
		if err != nil {
			c.fail(err) //nolint:contextcheck // as above
		}
		h.broker.Metrics().HTTPRequest(route.Path, c.status, time.Since(c.began))
	})
}

// A call is one request and its answer.
type call struct {
	handler *Handler
	writer  http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	caller  broker.Caller
	corr    string
	body    []byte
	unread  bool // the body was not read, or not to its end
	began   time.Time
	status  int  // 0 until the answer has begun
	trusted bool // may know the version of the daemon
	// everyTenant: a list is of the queues of all tenants.
	everyTenant bool
	answers     broker.Answers
	release     func() // of the memory for the body; nil if none was taken
}

// end releases the memory of a call.
func (c *call) end() {
	c.answers.Done()
	if c.release != nil {
		c.release()
	}
}

func (h *Handler) newCall(w http.ResponseWriter, r *http.Request) *call {
	c := &call{
		handler: h, writer: w, control: http.NewResponseController(w), request: r,
		corr: correlationID(r.Header.Get(headerCorrelation)), began: time.Now(), unread: r.ContentLength != 0,
	}
	w.Header().Set(headerCorrelation, c.corr)
	return c
}

func (c *call) ctx() context.Context { return c.request.Context() }

// maxCorrelationBytes bounds a correlation id of a client.
const maxCorrelationBytes = 128

// correlationID returns the client's id if it is safe in headers and logs, and a new
// one otherwise.
func correlationID(given string) string {
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && r != '"' && r != '\\' }
	if given != "" && len(given) <= maxCorrelationBytes && strings.IndexFunc(given, func(r rune) bool { return !plain(r) }) < 0 {
		return given
	}
	id, err := uuid.NewV7()
	if err != nil {
		return ""
	}
	return id.String()
}

// prepare authenticates the request and, if the token is genuine, reads the body.
func (c *call) prepare(route Route) error {
	switch hosts := &c.handler.options.Hosts; {
	case route.alone:
		c.trusted = true
		return hosts.Check(c.request)
	case route.open:
		return c.prepareOpen()
	}
	token, err := bearer(c.request)
	if err != nil {
		c.handler.broker.Metrics().Refused(string(capability.ReasonOf(err)))
		_ = c.stranger() // the client is refused in any case
		return err
	}
	c.caller = c.handler.broker.Caller(token, c.origin())
	if c.request.Header.Get(headerExisting) == "true" {
		c.caller = c.caller.Existing()
	}
	if err := c.caller.Genuine(c.ctx()); err != nil {
		return err
	}
	if err := c.lookIntoTenant(route); err != nil {
		return err
	}
	c.caller = c.caller.Answering(&c.answers)
	return c.read()
}

// prepareOpen lets in a request that needs no token.
func (c *call) prepareOpen() error {
	token, err := bearer(c.request)
	genuine := err == nil && c.handler.broker.Caller(token, c.origin()).Genuine(c.ctx()) == nil
	if err != nil {
		if err := c.stranger(); err != nil {
			return err
		}
	}
	c.trusted = genuine || guard.Local(c.request)
	return c.handler.options.Hosts.CheckLocal(c.request)
}

// stranger waits for the turn of a request without a token.
func (c *call) stranger() error {
	return c.handler.broker.Stranger(c.ctx(), broker.ClientAt(c.request.RemoteAddr))
}

func (c *call) origin() broker.Origin {
	return broker.Origin{Client: broker.ClientAt(c.request.RemoteAddr), Peer: broker.PeerOf(c.request.TLS), CorrelationID: c.corr}
}

// bearer returns the token of a request.
func bearer(r *http.Request) (capability.Token, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return capability.Token{}, &driver.Error{Code: driver.ErrUnauthenticated, Op: "authorize", Err: capability.ReasonMissing, Detail: "there is no token; send it in the header Authorization: Bearer TOKEN"}
	}
	return capability.Parse(text)
}

// read reads the body, within the read timeout and the size limit.
func (c *call) read() error {
	if c.request.ContentLength > MaxRequestBytes {
		return c.tooLarge()
	}
	announced := c.request.ContentLength
	if announced < 0 {
		announced = MaxRequestBytes
	}
	release, err := c.caller.Hold(c.ctx(), announced)
	if err != nil {
		return err
	}
	c.release = release
	_ = c.control.SetReadDeadline(time.Now().Add(c.handler.options.ReadTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(c.writer, c.request.Body, MaxRequestBytes))
	if err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			return c.tooLarge()
		}
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return &driver.Error{Code: driver.ErrTimeout, Op: "read", Detail: "the request took too long to arrive"}
		}
		return schemaError("body", "could not be read")
	}
	_ = c.control.SetReadDeadline(time.Time{})
	c.body, c.unread = body, false
	return nil
}

func (c *call) tooLarge() error {
	c.handler.broker.Metrics().Rejected("oversize")
	return &driver.Error{Code: driver.ErrTooLarge, Op: "read", Field: "body", Detail: "a request has at most 1048576 bytes"}
}

// decode reads the body into a request.
func (c *call) decode(target any) error {
	err := decodeStrictly(c.body, target)
	if err != nil {
		c.handler.broker.Metrics().Rejected("schema")
	}
	return err
}

// decodeOptional is decode for requests whose body may be empty.
func (c *call) decodeOptional(target any) error {
	if len(c.body) == 0 {
		return nil
	}
	return c.decode(target)
}
