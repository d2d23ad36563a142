package gates_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/remotebox"
)

// A surface is a client of one daemon over one protocol. Its errors are refusals, or
// say that no answer came.
type surface interface {
	send(ctx context.Context, queue, key string, body []byte) (id string, duplicate bool, err error)
	receive(ctx context.Context, queue string, want wanted) ([]delivery, error)
	ack(ctx context.Context, queue string, d delivery) error
}

type wanted struct {
	most             int
	visibility, wait time.Duration
}

type delivery struct {
	id, receipt string
	body        []byte
	attempt     int
}

// A refusal is an answer with an error.
type refusal struct {
	code   string // as in all protocols
	status int    // of HTTP
	// after is when to retry.
	after time.Duration
	text  string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s (%d, retry after %v): %s", r.code, r.status, r.after, r.text)
}

// codeOf returns the code of a refusal, and "" for all other errors.
func codeOf(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	return ""
}

// surfaces are the clients of a daemon, by protocol.
var surfaces = []struct {
	name string
	open func(t testing.TB, d *daemon, token string) surface
}{
	{"HTTP", overHTTP},
	{"gRPC", overGRPC},
	{"OAP", overOAP},
}

// onEach runs a test over each protocol.
func onEach(t *testing.T, d *daemon, test func(t *testing.T, s surface)) {
	t.Helper()
	for _, s := range surfaces {
		t.Run(s.name, func(t *testing.T) { test(t, s.open(t, d, d.token)) })
	}
}

// httpSurface uses HTTP with JSON.
type httpSurface struct {
	client *http.Client
	base   string
	token  string
}

func overHTTP(t testing.TB, d *daemon, token string) surface { return openHTTP(t, d.http, token) }

func openHTTP(t testing.TB, address, token string) *httpSurface {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &httpSurface{&http.Client{Transport: transport}, "http://" + address, token}
}

// post sends a request in JSON, and reads the answer into out unless that is nil.
func (h *httpSurface) post(ctx context.Context, path string, in, out any) error {
	text, err := h.ask(ctx, path, in)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// ask sends a request in JSON, and returns the answer.
func (h *httpSurface) ask(ctx context.Context, path string, in any) ([]byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+h.token)
	response, err := h.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = refusalOf(response, text)
	}
	return text, err
}

func refusalOf(response *http.Response, text []byte) error {
	var fields struct{ Code, Message string }
	_ = json.Unmarshal(text, &fields) // missing fields stay empty
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return &refusal{fields.Code, response.StatusCode, time.Duration(seconds) * time.Second, fields.Message}
}

type object map[string]any

func (h *httpSurface) send(ctx context.Context, queue, key string, body []byte) (string, bool, error) {
	var sent struct {
		ID        string `json:"msg_id"`
		Duplicate bool   `json:"duplicate"`
	}
	err := h.post(ctx, "/v1/send", object{"topic": queue, "idem_key": key, "payload_b64": body}, &sent)
	return sent.ID, sent.Duplicate, err
}

func (h *httpSurface) receive(ctx context.Context, queue string, want wanted) ([]delivery, error) {
	var got struct {
		Messages []struct {
			ID      string `json:"msg_id"`
			Body    []byte `json:"payload_b64"`
			Receipt string `json:"receipt"`
			Attempt int    `json:"attempt"`
		} `json:"messages"`
	}
	err := h.post(ctx, "/v1/recv", object{
		"topic": queue, "max_messages": want.most,
		"visibility_ms": want.visibility.Milliseconds(), "wait_ms": want.wait.Milliseconds(),
	}, &got)
	deliveries := make([]delivery, len(got.Messages))
	for i, m := range got.Messages {
		deliveries[i] = delivery{m.ID, m.Receipt, m.Body, m.Attempt}
	}
	return deliveries, err
}

func (h *httpSurface) ack(ctx context.Context, queue string, d delivery) error {
	return h.post(ctx, "/v1/ack/"+d.id, object{"topic": queue, "receipt": d.receipt}, nil)
}

// counts are the stats of a queue.
type counts struct{ Ready, Delayed, Dead, InFlight int }

func (h *httpSurface) stats(t testing.TB, queue string) counts {
	t.Helper()
	var c struct {
		Ready, Delayed, Dead int
		InFlight             int `json:"in_flight"`
	}
	if err := h.post(t.Context(), "/v1/stats", object{"topic": queue}, &c); err != nil {
		t.Fatal(err)
	}
	return counts{c.Ready, c.Delayed, c.Dead, c.InFlight}
}

// rpcSurface uses the generated gRPC client.
type rpcSurface struct {
	client mailboxv1connect.MailboxClient
	token  string
}

func overGRPC(t testing.TB, d *daemon, token string) surface {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client := mailboxv1connect.NewMailboxClient(&http.Client{Transport: transport}, "http://"+d.http, connect.WithGRPC())
	return &rpcSurface{client, token}
}

func (r *rpcSurface) with(ctx context.Context) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+r.token)
	return ctx
}

// refusedRPC returns the refusal in a gRPC error, if it carries one.
func refusedRPC(err error) error {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	for _, detail := range e.Details() {
		if value, err := detail.Value(); err == nil {
			if d, ok := value.(*mailboxv1.ErrorDetail); ok {
				return refusedDetail(d)
			}
		}
	}
	return err
}

func refusedDetail(d *mailboxv1.ErrorDetail) error {
	if d == nil {
		return nil
	}
	return &refusal{code: d.GetCode(), after: time.Duration(d.GetRetryAfterMs() * float64(time.Millisecond)), text: d.GetMessage()}
}

func (r *rpcSurface) send(ctx context.Context, queue, key string, body []byte) (string, bool, error) {
	got, err := r.client.Send(r.with(ctx), &mailboxv1.SendRequest{
		Topic: queue, Messages: []*mailboxv1.Outgoing{{IdemKey: key, Payload: body}},
	})
	if err != nil {
		return "", false, refusedRPC(err)
	}
	result := got.GetResults()[0]
	return result.GetMsgId(), result.GetDuplicate(), refusedDetail(result.GetError())
}

func (r *rpcSurface) receive(ctx context.Context, queue string, want wanted) ([]delivery, error) {
	most, visibility := int32(want.most), float64(want.visibility.Milliseconds())
	got, err := r.client.Recv(r.with(ctx), &mailboxv1.RecvRequest{
		Topic: queue, MaxMessages: &most, VisibilityMs: &visibility, WaitMs: float64(want.wait.Milliseconds()),
	})
	if err != nil {
		return nil, refusedRPC(err)
	}
	deliveries := make([]delivery, len(got.GetMessages()))
	for i, m := range got.GetMessages() {
		deliveries[i] = delivery{m.GetEnvelope().GetMsgId(), m.GetReceipt(), m.GetPayload(), int(m.GetEnvelope().GetAttempt())}
	}
	return deliveries, nil
}

func (r *rpcSurface) ack(ctx context.Context, queue string, d delivery) error {
	got, err := r.client.Ack(r.with(ctx), &mailboxv1.AckRequest{
		Topic: queue, Deliveries: []*mailboxv1.DeliveryRef{{Receipt: d.receipt, MsgId: d.id}},
	})
	if err != nil {
		return refusedRPC(err)
	}
	return refusedDetail(got.GetResults()[0].GetError())
}

// oapSurface uses OAP/1 with the client of this module.
type oapSurface struct {
	backend *remotebox.Backend
	mu      sync.Mutex
	queues  map[string]driver.Queue // open queues
}

func overOAP(t testing.TB, d *daemon, token string) surface {
	t.Helper()
	return openOAP(t, token, &remotebox.Options{Patience: -1}, d.oap)
}

func openOAP(t testing.TB, token string, options *remotebox.Options, addresses ...string) *oapSurface {
	t.Helper()
	s := &oapSurface{backend: remotebox.New(addresses, token, options), queues: make(map[string]driver.Queue)}
	t.Cleanup(func() { _ = s.backend.Close() })
	return s
}

// oapCodes maps the codes of package driver to those of the other protocols.
var oapCodes = map[driver.Code]string{
	driver.ErrInvalid: "E_SCHEMA", driver.ErrUnauthenticated: "E_CAP_AUTH", driver.ErrForbidden: "E_CAP_SCOPE",
	driver.ErrNotFound: "E_NOT_FOUND", driver.ErrReceiptExpired: "E_NOT_FOUND", driver.ErrConflict: "E_DUPLICATE",
	driver.ErrTooLarge: "E_FRAME_TOO_LARGE", driver.ErrIntegrity: "E_INTEGRITY", driver.ErrFull: "E_SATURATED",
	driver.ErrUnavailable: "E_UNAVAILABLE", driver.ErrTimeout: "E_UNAVAILABLE", driver.ErrClosed: "E_UNAVAILABLE",
}

func refusedOAP(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	return &refusal{code: oapCodes[e.Code], after: e.RetryAfter, text: e.Error()}
}

func (o *oapSurface) queue(ctx context.Context, queue string) (driver.Queue, error) {
	o.mu.Lock()
	q := o.queues[queue]
	o.mu.Unlock()
	if q != nil {
		return q, nil
	}
	q, err := o.backend.OpenQueue(ctx, queue)
	if err == nil {
		o.mu.Lock()
		o.queues[queue] = q
		o.mu.Unlock()
	}
	return q, err
}

func (o *oapSurface) use(ctx context.Context, queue string, do func(q driver.Queue) error) error {
	q, err := o.queue(ctx, queue)
	if err == nil {
		err = driver.At(do(q), 0)
	}
	if err != nil {
		return refusedOAP(err)
	}
	return nil
}

func (o *oapSurface) send(ctx context.Context, queue, key string, body []byte) (id string, duplicate bool, err error) {
	err = o.use(ctx, queue, func(q driver.Queue) error {
		sent, err := q.Send(ctx, []driver.Outgoing{{DedupKey: key, Body: body}})
		if len(sent) == 1 {
			id, duplicate = sent[0].ID, sent[0].Duplicate
		}
		return err
	})
	return id, duplicate, err
}

func (o *oapSurface) receive(ctx context.Context, queue string, want wanted) (deliveries []delivery, err error) {
	err = o.use(ctx, queue, func(q driver.Queue) error {
		got, err := q.Receive(ctx, driver.ReceiveRequest{Max: want.most, Visibility: want.visibility, Wait: want.wait})
		for _, m := range got {
			deliveries = append(deliveries, delivery{m.ID, m.Receipt.Handle, m.Body, m.Deliveries})
		}
		return err
	})
	return deliveries, err
}

func (o *oapSurface) ack(ctx context.Context, queue string, d delivery) error {
	return o.use(ctx, queue, func(q driver.Queue) error {
		return q.Ack(ctx, []driver.Receipt{{Handle: d.receipt}})
	})
}

// exchange sends, receives and acks a body over a protocol.
func exchange(t testing.TB, s surface, queue string, body []byte) {
	t.Helper()
	ctx := t.Context()
	if _, _, err := s.send(ctx, queue, fmt.Sprintf("%.20s-%d", body, time.Now().UnixNano()), body); err != nil {
		t.Error(err)
		return
	}
	got, err := s.receive(ctx, queue, wanted{most: 1, visibility: time.Minute, wait: 5 * time.Second})
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].body, body) {
		t.Errorf("receive: %d messages, %v", len(got), err)
		return
	}
	if err := s.ack(ctx, queue, got[0]); err != nil {
		t.Error(err)
	}
}
