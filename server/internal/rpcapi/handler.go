package rpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/internal/spelling"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
)

const (
	// MaxRequestBytes bounds one message of a request, with the head of its frame.
	MaxRequestBytes = 1 << 20
	// MaxBodyBytes is the largest body of a message that fits in a request, beside the
	// queue and a key, and maxBodyJSON the same for JSON, where it is base64.
	MaxBodyBytes = MaxRequestBytes - 1<<10
	maxBodyJSON  = MaxBodyBytes / 4 * 3
)

// Options configure a Handler.
type Options struct {
	// Broker does the work. It must be set.
	Broker *broker.Broker
	// Logger gets a line for each call that failed because of the daemon. Nil logs
	// nothing.
	Logger *slog.Logger
	// ReadTimeout bounds how long a request may take to arrive, and WriteTimeout
	// how long the client may take to read an answer, or a part of it where it is
	// streamed. 0 means the defaults.
	ReadTimeout  time.Duration
	WriteTimeout time.Duration
	// MaxMessages, MaxBytes and Visibility are the defaults of receives; 0 means
	// 32, 512 KiB and 5 s.
	MaxMessages int
	MaxBytes    int
	Visibility  time.Duration
	// Hosts are the names that calls without a token may be for.
	Hosts guard.Hosts
}

// The defaults of Options.
const (
	DefaultReadTimeout  = 5 * time.Second
	DefaultWriteTimeout = 5 * time.Second
	defaultMaxMessages  = 32
	defaultMaxBytes     = 512 << 10
	defaultVisibility   = 5 * time.Second
)

func (o Options) withDefaults() Options {
	orDefault(&o.Logger, slog.New(slog.DiscardHandler))
	orDefault(&o.ReadTimeout, DefaultReadTimeout)
	orDefault(&o.WriteTimeout, DefaultWriteTimeout)
	orDefault(&o.MaxMessages, defaultMaxMessages)
	orDefault(&o.MaxBytes, defaultMaxBytes)
	orDefault(&o.Visibility, defaultVisibility)
	return o
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// A Handler serves the RPC surface. It is an http.Handler, and safe for
// concurrent use. Make one with New.
//
// gRPC and streams in both directions need HTTP/2. On a port without TLS the
// server has to allow it: see Protocols.
type Handler struct {
	options Options
	broker  *broker.Broker
	rpc     http.Handler
	open    http.Handler // needs no token
	errors  *connect.ErrorWriter

	drain *guard.Drain
}

// New returns a handler. It does no I/O.
func New(options Options) *Handler {
	options = options.withDefaults()
	h := &Handler{options: options, broker: options.Broker, drain: guard.NewDrain(0)}
	settings := []connect.HandlerOption{
		connect.WithCodec(binaryCodec{}),
		connect.WithCodec(jsonCodec{name: codecJSON}),
		connect.WithCodec(jsonCodec{name: codecJSONCharset}),
		connect.WithReadMaxBytes(MaxRequestBytes),
		connect.WithCompressMinBytes(math.MaxInt),
		boundedCompression(MaxRequestBytes),
		connect.WithInterceptors(interceptor{}),
	}
	h.errors = connect.NewErrorWriter(settings...)
	_, h.rpc = mailboxv1connect.NewMailboxHandler(&service{handler: h}, settings...)

	reflector := grpcreflect.NewStaticReflector(mailboxv1connect.MailboxName)
	open := http.NewServeMux()
	small := connect.WithHandlerOptions(connect.WithReadMaxBytes(maxReflectionBytes), boundedCompression(maxReflectionBytes))
	open.Handle(grpcreflect.NewHandlerV1(reflector, small))
	open.Handle(grpcreflect.NewHandlerV1Alpha(reflector, small))
	open.Handle(healthCheck, newHealth(options.Broker, small))
	h.open = open
	return h
}

// Drain ends the streams that wait for credit, now and from now on. Those that
// wait for messages end when the broker refuses receives. Call it before the
// server is shut down, which waits for all streams. Calls without a token that are
// still arriving are cut off. It does not block, and calling it twice is fine.
func (h *Handler) Drain() { h.drain.Begin() }

// maxReflectionBytes is more than the name of any type or file has.
const maxReflectionBytes = 4 << 10

// Paths are the patterns that belong to the handler, for the server's mux.
func Paths() []string {
	return []string{
		"/" + mailboxv1connect.MailboxName + "/",
		"/" + grpcreflect.ReflectV1ServiceName + "/", "/" + grpcreflect.ReflectV1AlphaServiceName + "/",
		"/" + healthService + "/",
	}
}

// reflectionPath begins the procedures of both versions of gRPC reflection. They need
// no token, because proto/ is public.
const reflectionPath = "/grpc.reflection."

// Protocols are those that a server of this handler must speak: HTTP/2 with and
// without TLS, and HTTP/1.1 for everything but RecvStream and gRPC.
func Protocols() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

// ServeHTTP answers one call.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(h, w, r)
	w.Header().Set(headerCorrelation, c.corr)
	if r.ProtoMajor == 1 {
		c.written() // the last call on the connection may have left a deadline
	}
	_ = c.control.SetReadDeadline(time.Now().Add(h.options.ReadTimeout))
	if strings.HasPrefix(r.URL.Path, reflectionPath) || r.URL.Path == healthCheck {
		err := h.options.Hosts.CheckLocal(r)
		if err == nil {
			err = h.broker.Stranger(r.Context(), broker.ClientAt(r.RemoteAddr))
		}
		if err != nil {
			c.refuse(w, r, err)
			return
		}
		defer h.drain.Arriving(c.control)()
		h.open.ServeHTTP(w, r)
		return
	}
	if err := c.admit(r); err != nil {
		c.refuse(w, r, err)
		return
	}
	if c.misdirected(w, r) {
		return
	}
	release, err := c.caller.Hold(r.Context(), max(r.ContentLength, unknownBytes))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	c.release = sync.OnceFunc(release)
	defer c.release()
	defer c.answers.Done()
	r.Body = c.bounded(r)
	h.rpc.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// unknownBytes is the assumed length of a call without Content-Length, as in gRPC: a
// batch of small messages.
const unknownBytes = 16 << 10

// misdirected answers a call of a method that does not exist, or of a content type that no
// protocol has, and reports whether it did.
func (c *call) misdirected(w http.ResponseWriter, r *http.Request) bool {
	methods := mailboxv1.File_mailbox_v1_mailbox_proto.Services().ByName("Mailbox").Methods()
	name := strings.TrimPrefix(r.URL.Path, "/"+mailboxv1connect.MailboxName+"/")
	if methods.ByName(protoreflect.Name(name)) == nil {
		var known []string
		for i := range methods.Len() {
			known = append(known, string(methods.Get(i).Name()))
		}
		text := fmt.Sprintf("no method %q", name)
		if near := spelling.Nearest(name, known); near != "" {
			text += fmt.Sprintf("; did you mean %s?", near)
		}
		c.allowWrite()
		_ = c.handler.errors.Write(w, r, connect.NewError(connect.CodeUnimplemented, errors.New(text)))
		return true
	}
	if r.Method == http.MethodPost && !c.handler.errors.IsSupported(r) {
		c.allowWrite()
		http.Error(w, fmt.Sprintf("Content-Type %q is not supported; use application/json or application/proto (Connect), application/grpc, or application/grpc-web",
			r.Header.Get("Content-Type")), http.StatusUnsupportedMediaType)
		return true
	}
	return false
}

// refuse answers with an error, and does not read the rest of the request.
func (c *call) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		_ = c.control.SetReadDeadline(time.Now())
	}
	c.allowWrite()
	_ = c.handler.errors.Write(w, r, c.fault(err)) // the client may be gone
}

// admit authenticates, and refuses a request whose announced length is too long.
func (c *call) admit(r *http.Request) error {
	client := broker.ClientAt(r.RemoteAddr)
	token, err := bearer(r)
	if err != nil {
		c.handler.broker.Metrics().Refused(reasonOf(err))
		_ = c.handler.broker.Stranger(r.Context(), client) // the client is refused in any case
		return err
	}
	c.caller = c.handler.broker.Caller(token, broker.Origin{Client: client, Peer: broker.PeerOf(r.TLS), CorrelationID: c.corr})
	if r.Header.Get(headerExisting) == "true" {
		c.caller = c.caller.Existing()
	}
	if err := c.caller.Genuine(r.Context()); err != nil {
		return err
	}
	c.caller = c.caller.Answering(&c.answers)
	if r.ContentLength > MaxRequestBytes && !strings.HasSuffix(r.URL.Path, "/RecvStream") {
		return c.tooLarge()
	}
	return nil
}

func (c *call) tooLarge() error {
	c.handler.broker.Metrics().Rejected("oversize")
	return &driver.Error{Code: driver.ErrTooLarge, Op: "read", Field: "body", Detail: "a request has at most 1048576 bytes"}
}
