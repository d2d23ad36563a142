package diskbox

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

// crashPause is what clients know of a queue's pause.
type crashPause struct {
	paused  bool
	pending bool // a client pauses or resumes it, or did when the power was cut
}

// pause pauses a queue or, more often, resumes it, one client at a time.
func (c *crashClient) pause(q crashQueue) error {
	models, known := &c.env.models, &q.model.pause
	paused := c.chance(4)
	models.mu.Lock()
	if known.pending {
		models.mu.Unlock()
		return nil
	}
	known.pending = true
	models.mu.Unlock()
	change := q.queue.Resume
	if paused {
		change = q.queue.Pause
	}
	if err := change(c.ctx); err != nil {
		return err // it stays pending
	}
	models.mu.Lock()
	defer models.mu.Unlock()
	*known = crashPause{paused: paused}
	return nil
}

// checkPaused compares whether a queue is paused with what clients know.
func (v *crashResult) checkPaused(model *crashModel, c *crashContent) {
	if c.exists && !model.pause.pending && c.paused != model.pause.paused {
		v.addf("queue %s: paused is %v, and should be %v", model.name, c.paused, model.pause.paused)
	}
}

// resume resumes a queue that was found paused, so that it can be drained.
func (c *crashContent) resume(ctx context.Context, q driver.Queue) error {
	if !c.paused {
		return nil
	}
	return q.Resume(ctx)
}
