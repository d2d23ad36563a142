package sqsapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/keepalive"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// handler serves requests: of who signed them, or of everybody.
type handler struct {
	service *Service
	signed  bool
}

// unsignedLimit bounds what is read of a request whose signature cannot be good.
const unsignedLimit = 64 << 10

// drainGrace is how long a request may still take to arrive when a drain begins.
const drainGrace = 250 * time.Millisecond

// An exchange is one request and what came of it.
type exchange struct {
	began time.Time
	// signed is the signature, which nobody has verified, of a request that has to
	// have one.
	signed *sigv4.Signed
	call   *sqswire.Call
	// cut says that the body was not read to its end.
	cut bool
	// request is nil as long as nobody knows who asks.
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
		return // nobody is there any more
	}
	if c := h.takeOver(w, r, &e); c != nil {
		h.answer(c, r, &e)
		c.Serve(func(r *http.Request) { h.serveNext(c, r) })
		return
	}
	h.answer(sqswire.OverHTTP(w, h.service.options.WriteTimeout), r, &e)
}

// readInTime reads a request that is not authenticated: its signature covers the body.
// A drain does not wait for it. What cannot be read is left, and the connection ends.
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

// takeOver takes the connection of a client who speaks as clients of SQS do, and who
// was believed. It returns nil if that cannot be.
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

// read reads a request, and who claims to have signed it.
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

// work does what a request asks for, if who asks may.
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

// giveBack gives back what the client cannot be told of any more.
func (e *exchange) giveBack(ctx context.Context) {
	if e.request != nil && e.request.giveBack != nil {
		e.request.giveBack(context.WithoutCancel(ctx))
	}
}

// answer writes the result. What nobody could read is given back. It is counted
// first: who has an answer may look at the counts.
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

// identify says who asks.
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
		// That the signature is right says nothing about the time of the capability.
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
	return req, nil
}

// maxTraceBytes bounds a trace header; those of X-Ray have about 100 bytes.
const maxTraceBytes = 1024

// traceOf returns the trace header of a request, "" if it has none that a message can
// carry.
func traceOf(r *http.Request) string {
	trace := r.Header.Get("X-Amzn-Trace-Id")
	if len(trace) > maxTraceBytes || sqswire.CheckBody(trace) != nil {
		return ""
	}
	return trace
}

// clientAddress is where the connection comes from; none on a unix socket. What
// proxies say in headers is not believed.
func clientAddress(r *http.Request) netip.Addr {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr().Unmap().WithZone("")
}

// peerID is the SPIFFE id of the client's certificate, if there is one that was
// verified.
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

// Wants reports whether a request on a listener that others share is one for SQS:
// it names an action, is signed in the way of AWS, or asks for the URL of a queue.
// It looks at nothing but the head of the request.
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

// wantsNext reports whether a request on a connection that was taken over is one for
// SQS. What could be for others on the same listener goes back to them.
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

// serve does what the input asks for.
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

// manage is serve for the actions that are about queues.
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
