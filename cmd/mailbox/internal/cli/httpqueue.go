package cli

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An httpQueue sends and receives over HTTP, where OAP/1 cannot be used: through a
// socket or a proxy.
type httpQueue struct {
	api  *api
	name string
}

var _ messageQueue = (*httpQueue)(nil)

type (
	outgoingBody struct {
		IdemKey       string            `json:"idem_key,omitempty"`
		Payload       []byte            `json:"payload_b64"`
		Attributes    map[string]string `json:"attrs,omitempty"`
		DelayMS       int64             `json:"delay_ms,omitempty"`
		DeliverAt     time.Time         `json:"deliver_at,omitzero"`
		TTLMS         float64           `json:"ttl_ms,omitempty"`
		Priority      int               `json:"priority,omitempty"`
		UniqueKey     string            `json:"unique_key,omitempty"`
		Replace       bool              `json:"replace,omitempty"`
		Group         string            `json:"group,omitempty"`
		ReplyTo       string            `json:"reply_to,omitempty"`
		CorrelationID string            `json:"correlation_id,omitempty"`
	}
	sendBody struct {
		Queue    string         `json:"topic"`
		Messages []outgoingBody `json:"messages"`
	}
	batchAnswer struct {
		Results []struct {
			OK        bool   `json:"ok"`
			MessageID string `json:"msg_id"`
			Duplicate bool   `json:"duplicate"`
			Replaced  bool   `json:"replaced"`
			// VisibilityMS is what an extension was granted, absent in answers of
			// earlier daemons.
			VisibilityMS *float64     `json:"visibility_ms"`
			Error        *refusalBody `json:"error"`
		} `json:"results"`
	}
	receiveBody struct {
		Queue        string `json:"topic"`
		VisibilityMS int64  `json:"visibility_ms"`
		MaxMessages  int    `json:"max_messages"`
		WaitMS       int64  `json:"wait_ms,omitempty"`
		Details      bool   `json:"details"`
	}
	deliveryBody struct {
		MessageID  string            `json:"msg_id"`
		Payload    []byte            `json:"payload_b64"`
		Receipt    string            `json:"receipt"`
		Attributes map[string]string `json:"attrs"`
		Attempt    int               `json:"attempt"`
		Details    struct {
			Group           string    `json:"group"`
			Priority        int       `json:"priority"`
			ReplyTo         string    `json:"reply_to"`
			CorrelationID   string    `json:"correlation_id"`
			EnqueuedAt      time.Time `json:"enqueued_at"`
			FirstReceivedAt time.Time `json:"first_received_at"`
			LastError       string    `json:"last_error"`
		} `json:"details"`
	}
	settleElement struct {
		Receipt      string `json:"receipt"`
		DelayMS      *int64 `json:"delay_ms,omitempty"`
		Reason       string `json:"reason,omitempty"`
		VisibilityMS *int64 `json:"visibility_ms,omitempty"`
		Mode         string `json:"mode,omitempty"`
	}
)

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// Send sends messages.
func (q *httpQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	body := sendBody{Queue: q.name, Messages: make([]outgoingBody, len(msgs))}
	for i, m := range msgs {
		body.Messages[i] = outgoingBody{m.DedupKey, m.Body, m.Attributes, m.Delay.Milliseconds(), m.DeliverAt, float64(m.TTL) / float64(time.Millisecond), m.Priority, m.UniqueKey, m.Replace, m.Group, m.ReplyTo, m.CorrelationID}
		if m.Body == nil {
			body.Messages[i].Payload = []byte{}
		}
	}
	var answer batchAnswer
	if err := q.api.call(ctx, apiRequest{path: "/v1/send/batch", body: body, creates: true}, &answer); err != nil {
		return nil, err
	}
	sent := make([]driver.Sent, len(msgs))
	for i := range min(len(sent), len(answer.Results)) {
		sent[i] = driver.Sent{ID: answer.Results[i].MessageID, Duplicate: answer.Results[i].Duplicate, Replaced: answer.Results[i].Replaced}
	}
	return sent, answer.failures(len(msgs))
}

// failures returns the errors of a batch of n.
func (a *batchAnswer) failures(n int) error {
	errs := make([]error, n)
	for i := range errs {
		switch {
		case i >= len(a.Results):
			errs[i] = &driver.Error{Code: driver.ErrUnavailable, Detail: "the answer of the daemon lacks its result"}
		case a.Results[i].Error != nil:
			errs[i] = a.Results[i].Error.error()
		}
	}
	return driver.NewBatchError(errs)
}

// Receive receives messages.
func (q *httpQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	body := receiveBody{q.name, req.Visibility.Milliseconds(), req.Max, req.Wait.Milliseconds(), true}
	var answer struct {
		Messages []deliveryBody `json:"messages"`
	}
	if err := q.api.call(ctx, apiRequest{path: "/v1/recv", body: body, creates: true, waits: req.Wait}, &answer); err != nil {
		return nil, err
	}
	deliveries := make([]driver.Delivery, len(answer.Messages))
	for i := range answer.Messages {
		m := &answer.Messages[i]
		deliveries[i] = driver.Delivery{
			Message: driver.Message{
				ID: m.MessageID, Body: m.Payload, Attributes: m.Attributes, Group: m.Details.Group, Priority: m.Details.Priority, ReplyTo: m.Details.ReplyTo,
				CorrelationID: m.Details.CorrelationID, Deliveries: m.Attempt, EnqueuedAt: m.Details.EnqueuedAt,
				FirstReceivedAt: m.Details.FirstReceivedAt, LastError: m.Details.LastError,
			},
			Receipt: driver.Receipt{Handle: m.Receipt},
		}
	}
	return deliveries, nil
}

// Ack removes messages permanently.
func (q *httpQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	texts := make([]string, len(receipts))
	for i := range receipts {
		texts[i] = receipts[i].Handle
	}
	return q.settle(ctx, "/v1/ack", "receipts", texts, len(texts), new(batchAnswer))
}

// nackModes are the modes of a nack in requests.
var nackModes = map[driver.NackMode]string{driver.NackRelease: modeRelease, driver.NackPutBack: modePutBack}

// Nack returns messages to the queue.
func (q *httpQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	elements := make([]settleElement, len(nacks))
	for i, n := range nacks {
		elements[i] = settleElement{Receipt: n.Receipt.Handle, DelayMS: milliseconds(n.Delay), Reason: n.Cause, Mode: nackModes[n.Mode]}
	}
	return q.settle(ctx, "/v1/nack", "nacks", elements, len(elements), new(batchAnswer))
}

// Extend extends leases. A daemon of an earlier version does not report what it
// granted; then the result is what was requested.
func (q *httpQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	elements := make([]settleElement, len(extensions))
	for i, e := range extensions {
		elements[i] = settleElement{Receipt: e.Receipt.Handle, VisibilityMS: milliseconds(e.Visibility)}
	}
	var answer batchAnswer
	err := q.settle(ctx, "/v1/extend", "extensions", elements, len(elements), &answer)
	granted := driver.GrantedAsAsked(extensions, err)
	for i := range min(len(granted), len(answer.Results)) {
		if ms := answer.Results[i].VisibilityMS; ms != nil {
			granted[i] = time.Duration(*ms * float64(time.Millisecond))
		}
	}
	return granted, err
}

func (q *httpQueue) settle(ctx context.Context, path, field string, elements any, n int, answer *batchAnswer) error {
	if err := q.api.call(ctx, apiRequest{path: path, body: map[string]any{"topic": q.name, field: elements}}, answer); err != nil {
		return err
	}
	return answer.failures(n)
}

// Close does nothing: requests are independent.
func (q *httpQueue) Close() error { return nil }
