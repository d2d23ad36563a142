package sqsapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
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

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(began.Add(h.service.options.ReadTimeout))
	var claim *claim
	var refused error
	if h.signed {
		claim, refused = h.service.claimOf(r, began)
	}
	limit := int64(sqswire.RequestLimit)
	if refused != nil {
		limit = unsignedLimit
	}
	call, err := sqswire.Read(r, limit)
	_ = control.SetReadDeadline(time.Time{})
	if refused != nil {
		err = refused
	}
	var out sqswire.Output
	var req *request
	if err == nil {
		req, err = h.identify(r, call, claim)
	}
	if err == nil {
		err = call.Decode()
	}
	if err == nil {
		out, err = req.serve(r.Context(), call.Input)
	}
	if r.Context().Err() != nil {
		if req != nil && req.giveBack != nil {
			req.giveBack(context.WithoutCancel(r.Context()))
		}
		return // nobody is there any more
	}
	_ = control.SetWriteDeadline(time.Now().Add(h.service.options.WriteTimeout))
	h.answer(w, r, call, req, out, err)
	h.service.count(call.Action, err, time.Since(began))
}

// answer writes the result. What nobody could read is given back.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, call *sqswire.Call, req *request, out sqswire.Output, err error) {
	if err != nil {
		failure := faultOf(err, req)
		if failure.Code.Receiver() {
			h.service.log.LogAttrs(r.Context(), slog.LevelError, "sqs.failed",
				slog.String("action", string(call.Action)), slog.String("request_id", call.RequestID), slog.String("error", err.Error()))
		}
		_ = call.Fail(w, failure)
		return
	}
	if err := call.Answer(w, out); err != nil && req.giveBack != nil {
		req.giveBack(context.WithoutCancel(r.Context()))
	}
}

// identify says who asks.
func (h *handler) identify(r *http.Request, call *sqswire.Call, claim *claim) (*request, error) {
	s := h.service
	req := &request{service: s, action: call.Action, base: baseOf(r), region: defaultRegion}
	origin := broker.Origin{Client: clientAddress(r), Peer: peerID(r), CorrelationID: call.RequestID}
	if h.signed {
		caller, err := s.authenticate(r.Context(), claim, call, origin)
		if err != nil {
			return nil, err
		}
		req.caller, req.region = ruled(caller), claim.signed.Region
	} else {
		caller, err := s.daemon("")
		if err != nil {
			return nil, err
		}
		req.caller = caller.CorrelatedBy(call.RequestID)
		if signed, err := sigv4.Parse(r); err == nil && signed.Region != "" {
			req.region = signed.Region
		}
	}
	req.account = accountOf(req.caller.Tenant())
	return req, nil
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
