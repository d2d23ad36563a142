package httpapi

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func required(field string) error { return schemaError(field, "is missing") }

func asBatch(err error) (*driver.BatchError, bool) { return errors.AsType[*driver.BatchError](err) }

// messageRequest is a message in a send request.
type messageRequest struct {
	IdemKey       string            `json:"idem_key"`
	Payload       *[]byte           `json:"payload_b64"`
	Attributes    map[string]string `json:"attrs"`
	DelayMS       duration          `json:"delay_ms"`
	DeliverAt     string            `json:"deliver_at"`
	TTLMS         duration          `json:"ttl_ms"`
	Priority      int               `json:"priority"`
	UniqueKey     string            `json:"unique_key"`
	Replace       bool              `json:"replace"`
	Group         string            `json:"group"`
	ReplyTo       string            `json:"reply_to"`
	CorrelationID string            `json:"correlation_id"`
	SentAt        string            `json:"ts"`
	Signature     string            `json:"sig"`
}

type sendRequest struct {
	Queue string `json:"topic"`
	messageRequest
}

// timeLayout is the form of ts in an envelope.
const timeLayout = "2006-01-02T15:04:05.000Z"

func (m *messageRequest) outgoing() (broker.Outgoing, error) {
	if m.Payload == nil {
		return broker.Outgoing{}, required("payload_b64")
	}
	out := broker.Outgoing{Outgoing: driver.Outgoing{
		Body: *m.Payload, Attributes: m.Attributes, Delay: time.Duration(m.DelayMS), TTL: time.Duration(m.TTLMS), Priority: m.Priority, DedupKey: m.IdemKey,
		UniqueKey: m.UniqueKey, Replace: m.Replace, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID,
	}}
	var err error
	if out.DeliverAt, err = dueTime(m.DeliverAt); err != nil {
		return out, err
	}
	if (m.Signature == "") != (m.SentAt == "") {
		return out, schemaError("ts", "and sig go together: the signature covers the time; set both or none")
	}
	if m.Signature == "" {
		return out, nil
	}
	if out.SentAt, err = time.Parse(timeLayout, m.SentAt); err != nil {
		return out, schemaError("ts", "is not a time; want one like 2026-01-02T03:04:05.678Z")
	}
	out.Signature, err = envelope.ParseSignature(m.Signature)
	return out, err
}

const dueTimeForm = "is not a time; want one like 2026-01-02T03:04:05Z"

// dueTime reads deliver_at; the empty text is none.
func dueTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		return at, schemaError("deliver_at", dueTimeForm)
	}
	return at, nil
}

type sendResponse struct {
	MessageID string `json:"msg_id"`
	Duplicate bool   `json:"duplicate"`
	Replaced  bool   `json:"replaced,omitempty"`
}

// The values of X-Idempotency-Mode: how a repeated send is answered.
const (
	modeFlag     = "200-flag"
	modeConflict = "409-conflict"
)

// send is POST /v1/send.
func (h *Handler) send(c *call) error {
	mode := c.request.Header.Get(headerIdempotency)
	if mode != "" && mode != modeFlag && mode != modeConflict {
		return schemaError(headerIdempotency, "want 200-flag or 409-conflict")
	}
	var request sendRequest
	if text := bytes.TrimSpace(c.body); len(text) > 0 && text[0] != '{' {
		c.handler.broker.Metrics().Rejected("schema")
		return schemaError("body", "want a JSON object; POST /v1/queues/{topic}/messages sends a body as it is")
	}
	if err := c.decode(&request); err != nil {
		return err
	}
	switch {
	case request.Queue == "":
		return required("topic")
	case request.IdemKey == "":
		return schemaError("idem_key", "is missing; /v1/send/batch and /v1/queues/{topic}/messages do without")
	}
	out, err := request.outgoing()
	if err != nil {
		return err
	}
	sent, err := c.caller.Send(c.ctx(), request.Queue, []broker.Outgoing{out})
	if err = driver.At(err, 0); err != nil {
		return err
	}
	status := http.StatusOK
	if sent[0].Duplicate && mode == modeConflict {
		status = http.StatusConflict
	}
	c.answer(status, sendResponse{sent[0].ID, sent[0].Duplicate, sent[0].Replaced})
	return nil
}

type sendBatchRequest struct {
	Queue    string           `json:"topic"`
	Messages []messageRequest `json:"messages"`
}

// sendBatch is POST /v1/send/batch.
func (h *Handler) sendBatch(c *call) error {
	var request sendBatchRequest
	if err := c.decode(&request); err != nil {
		return err
	}
	if request.Queue == "" {
		return required("topic")
	}
	messages := make([]broker.Outgoing, len(request.Messages))
	for i := range messages {
		var err error
		if messages[i], err = request.Messages[i].outgoing(); err != nil {
			return err
		}
	}
	sent, err := c.caller.Send(c.ctx(), request.Queue, messages)
	return c.answerPositions(len(messages), err, sent)
}
