package diskbox

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// edit removes a message, makes it ready, or changes its due time. Messages that do not wait are
// refused, or not found, as expected.
func (c *crashClient) edit(q crashQueue) error {
	if q.model.prioritizes() && c.chance(2) {
		return c.prioritize(q)
	}
	if q.model.hasKeys() && !c.chance(4) {
		return c.replace(q)
	}
	models := &c.env.models
	edit, due := driver.Edit{Remove: true}, time.Now()
	switch c.rng.IntN(3) {
	case 0:
		edit = driver.Edit{Ready: true}
	case 1:
		due = due.Add(c.pick(-time.Second, time.Second, 10*time.Second, 30*time.Second))
		edit = driver.Edit{DeliverAt: due}
	}
	kind := opEdit
	if edit.Remove {
		kind = opRemove
	}
	models.mu.Lock()
	var op *crashOp
	id := ""
	if n := len(q.model.messages); n > 0 {
		token := c.rng.IntN(n)
		if id = q.model.messages[token].id; id != "" && !q.model.replacing(token) {
			token = q.model.latest(id)
			op = models.beginLocked(q.model, kind, []int{token})
			q.model.messages[token].beginEdit(op)
		}
	}
	models.mu.Unlock()
	if op == nil {
		return nil
	}
	was, err := q.queue.Edit(c.ctx, id, edit)
	models.edited(op, was, due, err)
	if errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrConflict) {
		return nil
	}
	return err
}

// prioritize changes the priority of a message.
func (c *crashClient) prioritize(q crashQueue) error {
	models := &c.env.models
	id := ""
	models.mu.Lock()
	if n := len(q.model.messages); n > 0 {
		i := &q.model.messages[c.rng.IntN(n)]
		id, i.prioritized = i.id, true
	}
	models.mu.Unlock()
	if id == "" {
		return nil
	}
	_, err := q.queue.Edit(c.ctx, id, driver.Edit{Prioritize: true, Priority: c.rng.IntN(driver.MaxPriority + 1)})
	if errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrConflict) {
		return nil
	}
	return err
}

// beginEdit records that the due time of a message may change from now on.
func (i *crashMessage) beginEdit(d *crashOp) {
	if d.kind == opEdit {
		i.edited, i.readied = true, false
		i.born = earlier(i.born, d.at)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// edited records the result of an edit; due is the new due time.
func (l *crashModels) edited(d *crashOp, was driver.State, due time.Time, err error) {
	if errors.Is(err, driver.ErrUnavailable) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	i := &d.model.messages[d.tokens[0]]
	switch {
	case err != nil:
	case d.kind == opRemove: // permanent, whatever else is pending
		i.gone, i.goneAt, i.may = true, l.tick, isAbsent
	default:
		if i.changed > d.began {
			i.notBefore, i.bornBy = time.Time{}, time.Time{}
		} else if was == driver.StateDelayed || due.After(d.at) {
			i.notBefore, i.bornBy = due, time.Now()
			if due.After(i.bornBy) {
				i.bornBy = due
			}
		}
		l.becomes(i, d, isWaiting)
		i.readied = !i.fuzzy && !due.After(d.at)
	}
}
