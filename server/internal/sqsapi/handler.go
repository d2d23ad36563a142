package sqsapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/keepalive"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// handler serves requests: only signed ones, or any.
type handler struct {
	service *Service
	signed  bool
}

// unsignedLimit bounds what is read of a request whose signature cannot be valid.
const unsignedLimit = 64 << 10

// drainGrace is how long a request may still take to arrive after a drain has begun.
const drainGrace = 250 * time.Millisecond

// An exchange is one request and its result.
type exchange struct {
	began time.Time
	// signed is the unverified signature of a request that must have one.
	signed *sigv4.Signed
	call   *sqswire.Call
	// cut: the body was not read to its end.
	cut bool
	// request is nil until the caller is known.
	request *request
	out     sqswire.Output
	err     error
	answers broker.Answers
}

// ServeHTTP answers one request, and those that follow on the same connection if
// that can be taken over.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := exchange{began: time.Now()}
	control := http.NewResponseController(w)
	h.readInTime(&e, control, r)
	h.work(&e, r)
	if r.Context().Err() != nil {
		e.giveBack(r.Context())
		e.answers.Done()
		return // the client has disconnected
	}
	if c := h.takeOver(w, r, &e); c != nil {
		h.answer(c, r, &e)
		c.Serve(func(r *http.Request) { h.serveNext(c, r) })
		return
	}
	h.answer(sqswire.OverHTTP(w, h.service.options.WriteTimeout), r, &e)
}

// readInTime reads a request before it is authenticated, because its signature covers
// the body. A drain does not wait for it. If it does not arrive in time, the connection
// ends.
func (h *handler) readInTime(e *exchange, control *http.ResponseController, r *http.Request) {
	announced := min(r.ContentLength, sqswire.RequestLimit)
	_ = control.SetReadDeadline(e.began.Add(h.service.options.ReadTimeout + sqswire.TransferTime(announced)))
	arrived := h.service.drain.Arriving(control)
	h.read(e, r)
	arrived()
	if !e.cut {
		_ = control.SetReadDeadline(time.Time{})
	}
}

// takeOver takes over the connection of an authenticated client that sends its requests
// as SQS clients do. It returns nil if that is not possible.
func (h *handler) takeOver(w http.ResponseWriter, r *http.Request, e *exchange) *keepalive.Conn {
	if h.service.connections == nil || e.err != nil || !wantsNext(r) {
		return nil
	}
	return h.service.connections.Take(w, r)
}

// serveNext answers one of the requests that follow on a connection.
func (h *handler) serveNext(c *keepalive.Conn, r *http.Request) {
	e := exchange{began: time.Now()}
	h.read(&e, r)
	if e.call.Action == sqswire.ReceiveMessage {
		c.Watch()
	}
	h.work(&e, r)
	if r.Context().Err() != nil || e.request != nil && e.request.giveBack != nil && c.Left() {
		e.giveBack(r.Context())
		e.answers.Done()
		return
	}
	h.answer(c, r, &e)
}

// read reads a request and its unverified signature.
func (h *handler) read(e *exchange, r *http.Request) {
	var refused error
	if h.signed {
		e.signed, refused = h.service.claimOf(r, e.began)
	}
	limit := int64(sqswire.RequestLimit)
	if refused != nil {
		limit = unsignedLimit
	}
	e.call, e.err = sqswire.Read(r, limit)
	e.cut = e.err != nil
	if refused != nil {
		e.err = refused
	}
}

// work authenticates, decodes and runs a request.
func (h *handler) work(e *exchange, r *http.Request) {
	if e.err == nil {
		if e.request, e.err = h.identify(r, e); e.err == nil {
			e.request.caller = e.request.caller.Answering(&e.answers)
		}
	}
	if e.err == nil {
		e.err = e.call.Decode()
	}
	if e.err == nil {
		e.out, e.err = e.request.serve(r.Context(), e.call.Input)
	}
}

// giveBack gives messages back that the client cannot receive any more.
func (e *exchange) giveBack(ctx context.Context) {
	if e.request != nil && e.request.giveBack != nil {
		e.request.giveBack(context.WithoutCancel(ctx))
	}
}

// answer writes the result. Messages that could not be written are given back. The
// request is counted first, because a client may read the metrics after the answer.
func (h *handler) answer(w sqswire.Answerer, r *http.Request, e *exchange) {
	defer e.answers.Done()
	h.service.count(e.call.Action, e.err, time.Since(e.began))
	if e.err == nil {
		if err := e.call.AnswerTo(w, e.out); err != nil {
			e.giveBack(r.Context())
		}
		return
	}
	failure := faultOf(e.err, e.request)
	if failure.Code.Receiver() {
		h.service.log.LogAttrs(r.Context(), slog.LevelError, "sqs.failed",
			slog.String("action", string(e.call.Action)), slog.String("request_id", e.call.RequestID), slog.String("error", e.err.Error()))
	}
	_ = e.call.FailTo(w, failure)
}

// identify authenticates the caller of a request.
func (h *handler) identify(r *http.Request, e *exchange) (*request, error) {
	s, call := h.service, e.call
	req := &request{service: s, action: call.Action, secure: isSecure(r), host: r.Host, region: defaultRegion, trace: traceOf(r)}
	if h.signed {
		origin := broker.Origin{Client: clientAddress(r), Peer: peerID(r), CorrelationID: call.RequestID}
		who, err := s.authenticate(r.Context(), e.signed, call, origin)
		if err != nil {
			_ = s.broker.Stranger(r.Context(), origin.Client) // the client is refused in any case
			return nil, err
		}
		req.caller, req.account = who.caller(s.broker, origin)
		req.region = e.signed.Region
		// A correct signature does not prove that the token has not expired.
		if err := req.caller.Genuine(r.Context()); err != nil {
			return nil, err
		}
	} else {
		if err := s.checkSite(r); err != nil {
			return nil, err
		}
		caller, err := s.daemon("")
		if err != nil {
			return nil, err
		}
		req.caller = caller.CorrelatedBy(call.RequestID)
		if signed, err := sigv4.Parse(r); err == nil && signed.Region != "" {
			req.region = signed.Region
		}
		req.account = accountOf(req.caller.Tenant())
	}
	if call.Action == sqswire.ReceiveMessage {
		return req, req.asWorker(r)
	}
	return req, nil
}

// asWorker names the caller of a receive by the program that it uses: clients of SQS tell nothing else.
func (r *request) asWorker(from *http.Request) (err error) {
	r.caller, err = r.caller.Named(broker.WorkerName(from.UserAgent()), "sqs")
	return err
}

// maxTraceBytes bounds a trace header; those of X-Ray have about 100 bytes.
const maxTraceBytes = 1024

// traceOf returns the trace header of a request, "" if it has none that is valid in a
// message.
func traceOf(r *http.Request) string {
	trace := r.Header.Get("X-Amzn-Trace-Id")
	if len(trace) > maxTraceBytes || sqswire.CheckBody(trace) != nil {
		return ""
	}
	return trace
}

// clientAddress returns the remote address of the connection; none on a unix socket.
// Headers of proxies are not trusted.
func clientAddress(r *http.Request) netip.Addr {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr().Unmap().WithZone("")
}

// peerID returns the SPIFFE id of the client's verified certificate, if there is one.
func peerID(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return ""
	}
	for _, uri := range r.TLS.VerifiedChains[0][0].URIs {
		if uri.Scheme == "spiffe" {
			return uri.String()
		}
	}
	return ""
}

// Wants reports whether a request on a shared listener is for SQS: it names an action,
// has an AWS signature, or goes to the URL of a queue. It looks only at the head of the
// request.
func Wants(r *http.Request) bool {
	if r.Header.Get("X-Amz-Target") != "" || sigv4.Present(r) {
		return true
	}
	if r.URL.RawQuery != "" && strings.Contains(r.URL.RawQuery, "Action=") && r.URL.Query().Get("Action") != "" {
		return true
	}
	if r.URL.Path == "/" {
		return r.Method == http.MethodPost
	}
	return underAccount(r.URL.Path)
}

// wantsNext reports whether a request on a connection that was taken over is for SQS.
// Requests that may be for another surface on the same listener are not.
func wantsNext(r *http.Request) bool {
	return (r.URL.Path == "/" || underAccount(r.URL.Path)) && Wants(r)
}

// underAccount reports whether a path begins with twelve digits.
func underAccount(path string) bool {
	account, _, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || len(account) != len(noAccount) {
		return false
	}
	for _, c := range account {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// serve runs the action of the input.
func (r *request) serve(ctx context.Context, input sqswire.Input) (sqswire.Output, error) {
	switch in := input.(type) {
	case *sqswire.SendMessageInput:
		return r.sendMessage(ctx, in)
	case *sqswire.SendMessageBatchInput:
		return r.sendMessageBatch(ctx, in)
	case *sqswire.ReceiveMessageInput:
		return r.receiveMessage(ctx, in)
	case *sqswire.DeleteMessageInput:
		return r.deleteMessage(ctx, in)
	case *sqswire.DeleteMessageBatchInput:
		return r.deleteMessageBatch(ctx, in)
	case *sqswire.ChangeMessageVisibilityInput:
		return r.changeMessageVisibility(ctx, in)
	case *sqswire.ChangeMessageVisibilityBatchInput:
		return r.changeMessageVisibilityBatch(ctx, in)
	}
	return r.manage(ctx, input)
}

// manage is serve for the actions on queues.
func (r *request) manage(ctx context.Context, input sqswire.Input) (sqswire.Output, error) {
	switch in := input.(type) {
	case *sqswire.CreateQueueInput:
		return r.createQueue(ctx, in)
	case *sqswire.DeleteQueueInput:
		return r.deleteQueue(ctx, in)
	case *sqswire.GetQueueURLInput:
		return r.getQueueURL(ctx, in)
	case *sqswire.ListQueuesInput:
		return r.listQueues(ctx, in)
	case *sqswire.GetQueueAttributesInput:
		return r.getQueueAttributes(ctx, in)
	case *sqswire.SetQueueAttributesInput:
		return r.setQueueAttributes(ctx, in)
	case *sqswire.PurgeQueueInput:
		return r.purgeQueue(ctx, in)
	case *sqswire.ListDeadLetterSourceQueuesInput:
		return r.listDeadLetterSourceQueues(ctx, in)
	case *sqswire.TagQueueInput:
		return r.tagQueue(ctx, in)
	case *sqswire.UntagQueueInput:
		return r.untagQueue(ctx, in)
	case *sqswire.ListQueueTagsInput:
		return r.listQueueTags(ctx, in)
	case *sqswire.AddPermissionInput:
		return r.addPermission(ctx, in)
	case *sqswire.RemovePermissionInput:
		return r.removePermission(ctx, in)
	case *sqswire.StartMessageMoveTaskInput:
		return r.startMessageMoveTask(ctx, in)
	case *sqswire.CancelMessageMoveTaskInput:
		return r.cancelMessageMoveTask(ctx, in)
	case *sqswire.ListMessageMoveTasksInput:
		return r.listMessageMoveTasks(ctx, in)
	}
	return nil, sqswire.UnknownOperation.Default()
}

// actions are counted by their names. All others count as "other", so that clients
// cannot create metric series.
var actions = func() map[sqswire.Action]bool {
	known := make(map[sqswire.Action]bool)
	for _, action := range []sqswire.Action{
		sqswire.AddPermission, sqswire.CancelMessageMoveTask, sqswire.ChangeMessageVisibility, sqswire.ChangeMessageVisibilityBatch,
		sqswire.CreateQueue, sqswire.DeleteMessage, sqswire.DeleteMessageBatch, sqswire.DeleteQueue, sqswire.GetQueueAttributes,
		sqswire.GetQueueURL, sqswire.ListDeadLetterSourceQueues, sqswire.ListMessageMoveTasks, sqswire.ListQueueTags, sqswire.ListQueues,
		sqswire.PurgeQueue, sqswire.ReceiveMessage, sqswire.RemovePermission, sqswire.SendMessage, sqswire.SendMessageBatch,
		sqswire.SetQueueAttributes, sqswire.StartMessageMoveTask, sqswire.TagQueue, sqswire.UntagQueue,
	} {
		known[action] = true
	}
	return known
}()

// count counts a request.
func (s *Service) count(action sqswire.Action, err error, took time.Duration) {
	code, name := "", "other"
	if err != nil {
		code = string(faultOf(err, nil).Code)
	}
	if actions[action] {
		name = string(action)
	}
	s.broker.Metrics().SQSRequest(name, code, took)
}

// checkSite refuses a request that a browser sends for a page of another site, including
// one whose name resolves to the address of the daemon. Without signatures, any page that
// is open on this machine could otherwise delete queues: a link or a form is enough.
// Clients other than browsers do not send these headers.
func (s *Service) checkSite(r *http.Request) error {
	if err := s.options.Hosts.Check(r); err != nil {
		return sqswire.AccessDenied.Withf("The host %.100q is not a name of this daemon; add it to listen.hosts.", r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return sqswire.AccessDenied.Withf("Pages of other sites cannot use this service.")
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if site, err := url.Parse(origin); err != nil || site.Host != r.Host {
		return sqswire.AccessDenied.Withf("Pages of other sites cannot use this service.")
	}
	return nil
}

// Compatible wraps a handler and answers the health checks of other emulators: GET
// /health as ElasticMQ does, and GET /_localstack/health.
func Compatible(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			switch r.URL.Path {
			case "/health":
				healthy(w, "text/plain; charset=utf-8", "OK")
				return
			case "/_localstack/health":
				healthy(w, "application/json", `{"services":{"sqs":"running"},"edition":"mailbox","version":"mailbox"}`)
				return
			}
		}
		other.ServeHTTP(w, r)
	})
}

func healthy(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, body)
}
