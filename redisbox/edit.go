package redisbox

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Edit changes a waiting message; see driver.Queue. It blocks for a round trip to each shard up
// to that of the message, and for one more for every 2,000 ready messages before it.
func (h *handle) Edit(ctx context.Context, id string, edit driver.Edit) (was driver.State, err error) {
	if err := h.check(ctx, "edit"); err != nil {
		return "", err
	}
	traits := h.Settings.Load().Traits
	if err := edit.Check(&traits); err != nil {
		return "", h.outcome(err, "edit")
	}
	what, value := "wait", 0.0
	switch {
	case edit.Remove:
		what = "remove"
	case edit.Prioritize:
		what, value = "prioritize", float64(edit.Priority)
	case !edit.DeliverAt.IsZero():
		value = shard.WallMicros(edit.DeliverAt)
	}
	for _, s := range h.Shards {
		code, err := s.Edit(ctx, id, what, value)
		if err == nil {
			was, err = edited(id, code)
		}
		if was != "" || err != nil {
			return was, h.outcome(err, "edit")
		}
	}
	return "", h.outcome(driver.NotWaiting(id, ""), "edit")
}

// edited reads a code of edit.lua; was is empty if the message is not in the shard.
func edited(id, code string) (was driver.State, err error) {
	switch code {
	case "r":
		return driver.StateReady, nil
	case "d":
		return driver.StateDelayed, nil
	case "f":
		return "", driver.NotWaiting(id, driver.StateInFlight)
	case "g":
		return "", driver.NotWaiting(id, driver.StateDead)
	}
	return "", nil
}
