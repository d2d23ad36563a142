package oapapi

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// protocol is what lists of workers call this surface.
const protocol = "oap"

// name gives the connection the name of a worker, for the queues that are opened from now on.
func (c *conn) name(f *oap.Frame) {
	name, err := oap.ParseName(f.Payload)
	if !c.readable(f.Correlation, err) {
		return
	}
	if _, err := c.caller.user.Named(name, protocol); err != nil {
		c.fail(f.Correlation, err)
		return
	}
	c.worker.Store(&name)
	c.answer(f.Correlation, oap.StatusOK, nil)
}

// receiver returns the caller of a queue that is opened.
func (c *conn) receiver() *caller {
	name := ""
	if told := c.worker.Load(); told != nil {
		name = *told
	}
	user, err := c.caller.user.Named(name, protocol)
	if err != nil { // name has checked it
		user = c.caller.user
	}
	return &caller{broker: c.caller.broker, user: user, sealed: c.caller.sealed}
}

// workers yields the workers of a queue, or of all.
func (c *caller) workers(ctx context.Context, queue string) iter.Seq2[oap.Worker, error] {
	return func(yield func(oap.Worker, error) bool) {
		all, err := c.user.Workers(ctx, queue)
		if err != nil {
			yield(oap.Worker{}, elsewhere(err))
			return
		}
		for i := range all {
			if !yield(workerOf(&all[i]), nil) {
				return
			}
		}
	}
}

func workerOf(w *broker.Worker) oap.Worker {
	out := oap.Worker{
		Queue: w.Queue, Name: w.Name, Protocol: w.Protocol, Address: w.AddressText(), Token: w.Token.String(), Since: w.Since, Seen: w.Seen,
		Waiting: w.Waiting, InFlight: w.InFlight, Acked: w.Acked, Failed: w.Failed, Expired: w.Expired,
	}
	for _, held := range w.Held {
		message := oap.HeldMessage{ID: held.ID, Attempt: held.Attempt, TakenAt: held.TakenAt, Until: held.Until}
		if held.Progress != nil {
			message.Progress, message.ReportedAt = &held.Progress.Progress, held.Progress.At
		}
		out.Held = append(out.Held, message)
	}
	return out
}
