package faulty

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var pauseFaults = []Saboteur{
	{Name: "pause-stops-sends", Breaks: "FLOW-2",
		What: "A paused queue refuses messages.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			if q.isPaused(ctx) {
				return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "send", Queue: q.name}
			}
			return q.Send(ctx, msgs)
		}}},
	{Name: "pause-stops-acks", Breaks: "FLOW-2",
		What: "A paused queue refuses acks.",
		on: hooks{ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			if q.isPaused(ctx) {
				return &driver.Error{Code: driver.ErrUnavailable, Op: "ack", Queue: q.name}
			}
			return q.Ack(ctx, receipts)
		}}},
	{Name: "pause-serves-waiting-receives", Breaks: "FLOW-2",
		What: "A receive that waits when its queue is paused still gets messages.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if req.Wait == 0 || q.isPaused(ctx) {
				return q.Receive(ctx, req)
			}
			for end := time.Now().Add(req.Wait); ; {
				part := req
				part.Wait = min(max(time.Until(end), 0), 50*time.Millisecond)
				got, err := q.Receive(ctx, part)
				if len(got) == 0 && err == nil && q.isPaused(ctx) {
					got, err = q.receivePaused(ctx, req)
				}
				if len(got) > 0 || err != nil || !time.Now().Before(end) {
					return got, err
				}
			}
		}}},
	{Name: "pause-is-ignored", Breaks: "FLOW-2",
		What: "A paused queue delivers, and only says that it is paused.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if q.isPaused(ctx) {
				return q.receivePaused(ctx, req)
			}
			return q.Receive(ctx, req)
		}}},
	{Name: "pause-keeps-leases", Breaks: "FLOW-2",
		What: "Leases do not end while a queue is paused.",
		on: hooks{pause: func(q *queue, ctx context.Context) error {
			for _, receipt := range q.delivered.keys() {
				_, _ = q.Extend(ctx, []driver.Extension{{Receipt: receipt, Visibility: time.Hour}}) // fails if it was settled
			}
			return q.Pause(ctx)
		}}},
	{Name: "pause-is-one-handles", Breaks: "FLOW-2",
		What: "A pause holds for the handle that it was made with.",
		on: hooks{
			pause: func(q *queue, ctx context.Context) error {
				state[marks](q.own).put("paused", true)
				return q.Pause(ctx)
			},
			resume: func(q *queue, ctx context.Context) error {
				state[marks](q.own).drop("paused")
				return q.Resume(ctx)
			},
			receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
				if q.isPaused(ctx) && !state[marks](q.own).at("paused") {
					return q.receivePaused(ctx, req)
				}
				return q.Receive(ctx, req)
			},
		}},
	{Name: "resume-wakes-none", Breaks: "FLOW-2",
		What: "A receive that waits on a paused queue notices after a while that it is resumed.",
		// Cases resume after whole seconds, which a poll must not coincide with.
		on: hooks{receive: pollEvery(1300*time.Millisecond, func(q *queue, ctx context.Context, _ driver.ReceiveRequest) bool {
			return q.isPaused(ctx)
		})}},
	{Name: "resume-purges", Breaks: "FLOW-2",
		What: "Messages that were sent during a pause are gone when it ends.",
		on: hooks{resume: func(q *queue, ctx context.Context) error {
			if _, err := q.Purge(ctx); err != nil {
				return err
			}
			return q.Resume(ctx)
		}}},
	{Name: "paused-receives-do-not-wait", Breaks: "FLOW-2",
		What: "A receive of a paused queue waits for a second at most.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if q.isPaused(ctx) {
				req.Wait = min(req.Wait, time.Second)
			}
			return q.Receive(ctx, req)
		}}},
	{Name: "paused-receives-fail", Breaks: "FLOW-2",
		What: "A receive of a paused queue is an error.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if q.isPaused(ctx) {
				return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "receive", Queue: q.name}
			}
			return q.Receive(ctx, req)
		}}},
	{Name: "pause-is-not-in-stats", Breaks: "FLOW-2",
		What: "Stats does not say that a queue is paused.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.Paused = false })}},
	{Name: "purge-resumes", Breaks: "FLOW-2",
		What: "Purging a queue ends its pause.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			if err := q.Resume(ctx); err != nil {
				return 0, err
			}
			return q.Purge(ctx)
		}}},
	{Name: "configuring-resumes", Breaks: "FLOW-2",
		What: "Configuring a queue ends its pause.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			if err := b.ConfigureQueue(ctx, name, config); err != nil {
				return err
			}
			q, err := b.inner.OpenQueue(ctx, name)
			if err != nil {
				return err
			}
			_ = q.Resume(ctx) // not all can
			return q.Close()
		}}},
	{Name: "forgets-the-pause-on-restart", Breaks: "FLOW-2",
		What:    "After a restart a paused queue delivers.",
		restart: func(q *queue, ctx context.Context) error { return q.Resume(ctx) }},
	{Name: "pauses-again-on-restart", Breaks: "FLOW-2",
		What: "After a restart a queue that was ever paused is paused.",
		on: hooks{pause: func(q *queue, ctx context.Context) error {
			q.wrapper.log.put(q.name, []driver.Message{{}})
			return q.Pause(ctx)
		}},
		restart: func(q *queue, ctx context.Context) error {
			if len(q.wrapper.log.at(q.name)) == 0 {
				return nil
			}
			return q.Pause(ctx)
		}},
}

// isPaused reports whether the queue is paused.
func (q *queue) isPaused(ctx context.Context) bool {
	stats, err := q.Stats(ctx)
	return err == nil && stats.Paused
}

// receivePaused receives from a paused queue.
func (q *queue) receivePaused(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := q.Resume(ctx); err != nil {
		return nil, err
	}
	req.Wait = 0
	got, err := q.Receive(ctx, req)
	if failure := q.Pause(ctx); failure != nil {
		return got, failure
	}
	return got, err
}
