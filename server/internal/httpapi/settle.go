package httpapi

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

type okResponse struct {
	OK bool `json:"ok"`
}

type ackOneRequest struct {
	Queue   string `json:"topic"`
	Receipt string `json:"receipt"`
}

type nackOneRequest struct {
	Queue   string    `json:"topic"`
	Receipt string    `json:"receipt"`
	Reason  string    `json:"reason"`
	DelayMS *duration `json:"delay_ms"`
	Mode    nackMode  `json:"mode"`
}

type extendOneRequest struct {
	Queue        string    `json:"topic"`
	Receipt      string    `json:"receipt"`
	VisibilityMS *duration `json:"visibility_ms"`
	Progress     *progress `json:"progress"`
}

type deadLetterOneRequest struct {
	Queue     string `json:"topic"`
	Receipt   string `json:"receipt"`
	Reason    string `json:"reason"`
	Error     string `json:"error"`
	ErrorType string `json:"error_type"`
}

func (c *call) target(queue, receipt string) broker.Target {
	return broker.Target{Queue: queue, ID: c.request.PathValue("msg_id"), Receipt: receipt}
}

func (c *call) okUnless(err error) error {
	if err != nil {
		return err
	}
	return c.ok(okResponse{true})
}

// ackOne is POST /v1/ack/{msg_id}.
func (h *Handler) ackOne(c *call) error {
	var r ackOneRequest
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	return c.okUnless(c.caller.AckOne(c.ctx(), c.target(r.Queue, r.Receipt)))
}

// nackMode is how a delivery is given back: failed, or empty, which is the same, release or
// put_back.
type nackMode string

var nackModes = map[nackMode]driver.NackMode{
	"": driver.NackFailed, "failed": driver.NackFailed, "release": driver.NackRelease, "put_back": driver.NackPutBack,
}

// nackOne is POST /v1/nack/{msg_id}. Without delay_ms the daemon chooses one for a failed
// delivery.
func (h *Handler) nackOne(c *call) error {
	var r nackOneRequest
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	nack, err := nackOf(&nackElement{DelayMS: r.DelayMS, Reason: r.Reason, Mode: r.Mode})
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.NackOne(c.ctx(), c.target(r.Queue, r.Receipt), nack))
}

func nackOf(e *nackElement) (broker.Nack, error) {
	mode, ok := nackModes[e.Mode]
	if !ok {
		return broker.Nack{}, &driver.Error{
			Code: driver.ErrInvalid, Op: "nack", Field: "Mode",
			Detail: fmt.Sprintf("%.40q is not a mode; want failed, release or put_back", e.Mode),
		}
	}
	nack := broker.Nack{Receipt: e.Receipt, Backoff: e.DelayMS == nil, Cause: e.Reason, Mode: mode}
	if e.DelayMS != nil {
		nack.Delay = time.Duration(*e.DelayMS)
	}
	return nack, nil
}

// extendOneResponse has the remaining lease of the delivery.
type extendOneResponse struct {
	OK           bool     `json:"ok"`
	VisibilityMS duration `json:"visibility_ms"`
}

// extendOne is POST /v1/extend/{msg_id}.
func (h *Handler) extendOne(c *call) error {
	var r extendOneRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.VisibilityMS == nil {
		return required("visibility_ms")
	}
	extension := broker.Extension{Visibility: time.Duration(*r.VisibilityMS), Progress: r.Progress.report()}
	granted, err := c.caller.ExtendOne(c.ctx(), c.target(r.Queue, r.Receipt), extension)
	if err != nil {
		return err
	}
	return c.ok(extendOneResponse{true, duration(granted)})
}

// deadLetterOne is POST /v1/bury/{msg_id}.
func (h *Handler) deadLetterOne(c *call) error {
	var r deadLetterOneRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	request := broker.DeadLetterRequest{Reason: driver.Reason(r.Reason), Error: r.Error, ErrorType: r.ErrorType}
	return c.okUnless(c.caller.DeadLetterOne(c.ctx(), c.target(r.Queue, r.Receipt), request))
}

type ackBatchRequest struct {
	Queue    string   `json:"topic"`
	Receipts []string `json:"receipts"`
}

// ackBatch is POST /v1/ack.
func (h *Handler) ackBatch(c *call) error {
	var r ackBatchRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	return c.answerPositions(len(r.Receipts), c.caller.Ack(c.ctx(), r.Queue, r.Receipts), nil)
}

type nackElement struct {
	Receipt string    `json:"receipt"`
	DelayMS *duration `json:"delay_ms"`
	Reason  string    `json:"reason"`
	Mode    nackMode  `json:"mode"`
}

type nackBatchRequest struct {
	Queue string        `json:"topic"`
	Nacks []nackElement `json:"nacks"`
}

// nackBatch is POST /v1/nack.
func (h *Handler) nackBatch(c *call) error {
	var r nackBatchRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	nacks := make([]broker.Nack, len(r.Nacks))
	for i := range r.Nacks {
		nack, err := nackOf(&r.Nacks[i])
		if err != nil {
			return err
		}
		nacks[i] = nack
	}
	return c.answerPositions(len(nacks), c.caller.Nack(c.ctx(), r.Queue, nacks), nil)
}

type extensionElement struct {
	Receipt      string    `json:"receipt"`
	VisibilityMS *duration `json:"visibility_ms"`
	Progress     *progress `json:"progress"`
}

type extendBatchRequest struct {
	Queue      string             `json:"topic"`
	Extensions []extensionElement `json:"extensions"`
}

// extendBatch is POST /v1/extend.
func (h *Handler) extendBatch(c *call) error {
	var r extendBatchRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	extensions := make([]broker.Extension, len(r.Extensions))
	for i, e := range r.Extensions {
		if e.VisibilityMS == nil {
			return required("visibility_ms")
		}
		extensions[i] = broker.Extension{Receipt: e.Receipt, Visibility: time.Duration(*e.VisibilityMS), Progress: e.Progress.report()}
	}
	granted, err := c.caller.Extend(c.ctx(), r.Queue, extensions)
	return c.answerBatch(len(extensions), err, func(i int, p *position) {
		visibility := duration(granted[i])
		p.VisibilityMS = &visibility
	})
}

type deadLetterElement struct {
	Receipt   string `json:"receipt"`
	Reason    string `json:"reason"`
	Error     string `json:"error"`
	ErrorType string `json:"error_type"`
}

type deadLetterBatchRequest struct {
	Queue    string              `json:"topic"`
	Requests []deadLetterElement `json:"burials"`
}

// deadLetterBatch is POST /v1/bury.
func (h *Handler) deadLetterBatch(c *call) error {
	var r deadLetterBatchRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	requests := make([]broker.DeadLetterRequest, len(r.Requests))
	for i, b := range r.Requests {
		requests[i] = broker.DeadLetterRequest{Receipt: b.Receipt, Reason: driver.Reason(b.Reason), Error: b.Error, ErrorType: b.ErrorType}
	}
	return c.answerPositions(len(requests), c.caller.DeadLetter(c.ctx(), r.Queue, requests), nil)
}
