package httpapi

import (
	"strconv"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

type keyBody struct {
	KeyID     string `json:"key_id"`
	Current   bool   `json:"current"`
	RetiredAt string `json:"retired_at,omitempty"`
}

// answerKeys answers with the current keys.
func (c *call) answerKeys(states []broker.KeyState, err error) error {
	if err != nil {
		return err
	}
	keys := make([]keyBody, len(states))
	for i, state := range states {
		keys[i] = keyBody{state.ID.String(), state.Current, timeText(state.RetiredAt)}
	}
	return c.ok(struct {
		Keys []keyBody `json:"keys"`
	}{keys})
}

// keys is POST /v1/keys/list.
func (h *Handler) keys(c *call) error {
	if err := c.decodeOptional(&struct{}{}); err != nil {
		return err
	}
	return c.answerKeys(c.caller.Keys(c.ctx()))
}

// rotateKeys is POST /v1/keys/rotate.
func (h *Handler) rotateKeys(c *call) error {
	if err := c.decodeOptional(&struct{}{}); err != nil {
		return err
	}
	return c.answerKeys(c.caller.RotateKeys(c.ctx()))
}

type keyRequest struct {
	KeyID string `json:"key_id"`
}

// retireKey is POST /v1/keys/retire.
func (h *Handler) retireKey(c *call) error {
	var r keyRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	id, err := strconv.ParseUint(r.KeyID, 16, 32)
	if err != nil || capability.KeyID(id).String() != r.KeyID {
		return schemaError("key_id", "is not the 8 hex digits of a key")
	}
	return c.answerKeys(c.caller.RetireKey(c.ctx(), capability.KeyID(id)))
}
