package pgbox

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

// Edit changes a waiting message; see driver.Queue. It blocks for a round trip. Messages have no
// index by id, so the server reads those of the queue, without a lock.
func (h *handle) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	const op = "edit"
	if err := h.check(ctx, op); err != nil {
		return "", err
	}
	traits := h.Traits()
	if err := edit.Check(&traits); err != nil {
		return "", h.named(err, op)
	}
	packed, ok := packedID(id)
	if !ok {
		return "", h.named(driver.NotWaiting(id, ""), op)
	}
	due := int64(0)
	if !edit.DeliverAt.IsZero() {
		due = dueMicros(edit.DeliverAt)
	}
	var priority *int
	if edit.Prioritize {
		priority = &edit.Priority
	}
	for {
		var was, woken, endings *string
		var version int64
		r := request{sql: "SELECT * FROM mailbox.edit($1, $2, $3, $4, $5, $6)", args: []any{packed, edit.Remove, due, false, priority}, wide: 4}
		if err := h.call(ctx, r, one(&was, &version, &woken, &endings)); err != nil {
			return "", h.outcome(err, op)
		}
		h.backend.happened(ctx, endings, woken)
		if was == nil {
			continue
		}
		h.note(ctx, version)
		h.queue.changed(ctx, 1) // it may be ready now, or let its group go on
		state, err := edited(id, *was)
		return state, h.named(err, op)
	}
}

// edited reads a code of the function edit.
func edited(id, code string) (driver.State, error) {
	switch code {
	case "r":
		return driver.StateReady, nil
	case "d":
		return driver.StateDelayed, nil
	case "f":
		return "", driver.NotWaiting(id, driver.StateInFlight)
	case "x":
		return "", driver.NotWaiting(id, driver.StateDead)
	}
	return "", driver.NotWaiting(id, "")
}
