package httpapi

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// defaultSlotTTL is how long a reply slot lives if its client does not say.
const defaultSlotTTL = 5 * time.Minute

type createSlotRequest struct {
	Slot  *string   `json:"slot"`
	TTLMS *duration `json:"ttl_ms"`
}

type createSlotResponse struct {
	Slot string `json:"slot"`
	// ReplyTo is the address for the request.
	ReplyTo string `json:"reply_to"`
}

// createSlot is POST /v1/replies/create.
func (h *Handler) createSlot(c *call) error {
	var r createSlotRequest
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	id := broker.NewSlotID()
	if r.Slot != nil {
		id = *r.Slot
	}
	ttl := defaultSlotTTL
	if r.TTLMS != nil {
		ttl = time.Duration(*r.TTLMS)
	}
	if err := c.caller.Replies().Create(c.ctx(), id, ttl); err != nil {
		return err
	}
	return c.ok(createSlotResponse{id, driver.SlotAddress(id)})
}

type resolveSlotRequest struct {
	Slot      string `json:"slot"`
	Payload   []byte `json:"payload_b64"`
	Error     string `json:"error"`
	ErrorKind string `json:"error_kind"`
}

// resolveSlot is POST /v1/replies/resolve.
func (h *Handler) resolveSlot(c *call) error {
	var r resolveSlotRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Slot == "" {
		return required("slot")
	}
	return c.okUnless(c.caller.Replies().Resolve(c.ctx(), r.Slot, driver.Answer{Body: r.Payload, Failure: r.Error, FailureKind: r.ErrorKind}))
}

// slotRequest names a reply slot.
type slotRequest struct {
	Slot string `json:"slot"`
}

func (c *call) readSlot() (id string, err error) {
	var r slotRequest
	if err := c.decode(&r); err != nil {
		return "", err
	}
	if r.Slot == "" {
		return "", required("slot")
	}
	return r.Slot, nil
}

type waitSlotRequest struct {
	Slot   string   `json:"slot"`
	WaitMS duration `json:"wait_ms"`
}

// waitSlot is POST /v1/replies/wait.
func (h *Handler) waitSlot(c *call) error {
	var r waitSlotRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Slot == "" {
		return required("slot")
	}
	return c.answerSlot(c.caller.Replies().Wait(c.ctx(), r.Slot, time.Duration(r.WaitMS)))
}

// getSlot is POST /v1/replies/get.
func (h *Handler) getSlot(c *call) error {
	id, err := c.readSlot()
	if err != nil {
		return err
	}
	return c.answerSlot(c.caller.Replies().Get(c.ctx(), id))
}

// consumeSlot is POST /v1/replies/consume.
func (h *Handler) consumeSlot(c *call) error {
	id, err := c.readSlot()
	if err != nil {
		return err
	}
	return c.answerSlot(c.caller.Replies().Consume(c.ctx(), id))
}

// cancelSlot is POST /v1/replies/cancel.
func (h *Handler) cancelSlot(c *call) error {
	id, err := c.readSlot()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.Replies().Cancel(c.ctx(), id))
}

// deleteSlot is POST /v1/replies/delete.
func (h *Handler) deleteSlot(c *call) error {
	id, err := c.readSlot()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.Replies().Delete(c.ctx(), id))
}

// slotsRequest bounds how many slots are listed or removed.
type slotsRequest struct {
	Limit int `json:"limit"`
}

// listSlots is POST /v1/replies/list.
func (h *Handler) listSlots(c *call) error {
	var r struct{}
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	out := &lines{call: c}
	for slot, err := range c.caller.Replies().List(c.ctx()) {
		if err != nil {
			return out.end(err)
		}
		if err := out.addValue(slotResponseOf(&slot)); err != nil {
			return out.end(err)
		}
	}
	return out.end(nil)
}

// expiredSlots is POST /v1/replies/expired.
func (h *Handler) expiredSlots(c *call) error {
	var r slotsRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	ids, err := c.caller.Replies().Expired(c.ctx(), r.Limit)
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []string{}
	}
	return c.ok(struct {
		Slots []string `json:"slots"`
	}{ids})
}

// sweepSlots is POST /v1/replies/sweep.
func (h *Handler) sweepSlots(c *call) error {
	var r slotsRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	removed, err := c.caller.Replies().Sweep(c.ctx(), r.Limit)
	return c.answerRemoved(removed, err)
}

// slotResponse is a reply slot. Only one that is resolved has an answer: a payload, or an error.
type slotResponse struct {
	Slot       string `json:"slot"`
	State      string `json:"state"`
	Payload    []byte `json:"payload_b64,omitempty"`
	Error      string `json:"error,omitempty"`
	ErrorKind  string `json:"error_kind,omitempty"`
	CreatedAt  string `json:"created_at"`
	ExpiresAt  string `json:"expires_at"`
	ResolvedAt string `json:"resolved_at,omitempty"`
}

func (c *call) answerSlot(s driver.Slot, err error) error {
	if err != nil {
		return err
	}
	return c.ok(slotResponseOf(&s))
}

func slotResponseOf(s *driver.Slot) slotResponse {
	return slotResponse{
		Slot: s.ID, State: string(s.State), Payload: s.Answer.Body, Error: s.Answer.Failure, ErrorKind: s.Answer.FailureKind,
		CreatedAt: timeText(s.CreatedAt), ExpiresAt: timeText(s.ExpiresAt), ResolvedAt: timeText(s.ResolvedAt),
	}
}
