package oapapi

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/maxhold"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// once runs do on a goroutine of its own, unless the request with this ticket was done
// before.
func (c *conn) once(correlation uint64, ticket oap.Ticket, do func() (fill func(dst []byte) []byte, err error)) {
	r := &request{correlation: correlation, ticket: ticket}
	if !c.admit(r) {
		return
	}
	c.work.Go(func() {
		fill, err := do()
		var round completion.Round
		c.respond(&round, r, elsewhere(err), fill)
		round.End()
	})
}

// administer does requests that concern no open queue.
func (c *conn) administer(ctx context.Context, f *oap.Frame) {
	correlation := f.Correlation
	var none oap.Ticket
	switch f.Code {
	case oap.OpPing:
		c.once(correlation, none, func() (func([]byte) []byte, error) { return nil, c.caller.user.Ping(ctx) })
	case oap.OpJoin:
		c.joins.Store(true)
		c.answer(correlation, oap.StatusOK, nil)
	case oap.OpKnow:
		if known, err := oap.ParseKnown(f.Payload); c.readable(correlation, err) {
			c.knows.Store(known)
			c.answer(correlation, oap.StatusOK, nil)
		}
	case oap.OpName:
		c.name(f)
	case oap.OpWorkers:
		if name, err := oap.ParseName(f.Payload); c.readable(correlation, err) {
			stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[oap.Worker, error] {
				return c.caller.workers(ctx, name)
			}, func(dst []byte, w *oap.Worker) []byte { return oap.AppendWorker(dst, w, c.knows.Load()) })
		}
	case oap.OpQueues:
		stream(ctx, c, correlation, c.caller.queues, func(dst []byte, name *string) []byte {
			return oap.AppendQueueName(dst, *name)
		})
	case oap.OpOpen:
		if name, err := oap.ParseName(f.Payload); c.readable(correlation, err) {
			c.once(correlation, none, func() (func([]byte) []byte, error) { return c.open(ctx, opening{name: name}) })
		}
	case oap.OpOpenIdentified:
		if name, identity, err := oap.ParseIdentifiedName(f.Payload); c.readable(correlation, err) {
			c.once(correlation, none, func() (func([]byte) []byte, error) {
				return c.open(ctx, opening{name: name, identified: true, identity: identity})
			})
		}
	case oap.OpConfig:
		if name, err := oap.ParseName(f.Payload); c.readable(correlation, err) {
			c.once(correlation, none, func() (func([]byte) []byte, error) {
				config, err := c.caller.user.Config(ctx, name)
				oap.TellConfig(&config, c.knows.Load())
				return func(dst []byte) []byte { return oap.AppendConfig(dst, &config) }, err
			})
		}
	case oap.OpConfigure:
		if ticket, name, config, err := oap.ParseConfigure(f.Payload); c.readable(correlation, err) {
			config.MaxHold = maxhold.Read(int64(config.MaxHold))
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				if err := c.caller.user.Configure(ctx, name, config); err != nil {
					return nil, err
				}
				c.server.configured(ctx, name)
				return nil, nil
			})
		}
	case oap.OpDelete:
		if ticket, name, err := oap.ParseDelete(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) { return nil, c.caller.user.Delete(ctx, name) })
		}
	}
}

// readable reports whether a payload could be read, and answers the request if
// not.
func (c *conn) readable(correlation uint64, err error) bool {
	if err != nil {
		c.failPayload(correlation, err)
	}
	return err == nil
}

// attend does requests that concern an open queue and are rare.
func (c *conn) attend(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	correlation, ticket := f.Correlation, target.Ticket
	count := func(do func(context.Context, string) (int, error)) {
		if _, err := oap.ParseTarget(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				n, err := do(ctx, q.name)
				return func(dst []byte) []byte { return oap.AppendCount(dst, n) }, err
			})
		}
	}
	set := func(do func(context.Context, string) error) {
		if _, err := oap.ParseTarget(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) { return nil, do(ctx, q.name) })
		}
	}
	switch f.Code {
	case oap.OpPause:
		set(q.caller.user.Pause)
	case oap.OpResume:
		set(q.caller.user.Resume)
	case oap.OpClose:
		c.closeQueue(correlation, q.handle)
	case oap.OpPurge:
		count(q.caller.user.Purge)
	case oap.OpPurgeDead:
		count(q.caller.user.PurgeDead)
	case oap.OpStats:
		c.once(correlation, ticket, func() (func([]byte) []byte, error) {
			stats, err := q.caller.user.Stats(ctx, q.name)
			return func(dst []byte) []byte { return oap.AppendStats(dst, stats) }, err
		})
	case oap.OpStatsPaused:
		c.once(correlation, ticket, func() (func([]byte) []byte, error) {
			stats, err := q.caller.user.Stats(ctx, q.name)
			oap.TellStats(&stats, c.knows.Load())
			return func(dst []byte) []byte { return oap.AppendStatsPaused(dst, stats) }, err
		})
	case oap.OpRedrive:
		if redrive, err := oap.ParseRedrive(f.Payload); c.readable(correlation, err) {
			c.redrive(ctx, correlation, q, &redrive)
		}
	case oap.OpDiscard:
		if _, ids, err := oap.ParseDiscard(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				n, err := q.caller.user.Discard(ctx, q.name, ids)
				return func(dst []byte) []byte { return oap.AppendCount(dst, n) }, err
			})
		}
	case oap.OpEdit:
		c.edit(ctx, f, q)
	case oap.OpThrottle:
		if _, group, wait, err := oap.ParseThrottle(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				return nil, q.caller.user.Throttle(ctx, q.name, group, wait)
			})
		}
	case oap.OpFire:
		c.fire(ctx, f, q)
	case oap.OpPeek, oap.OpDeadLetters, oap.OpSchedules:
		c.list(ctx, f, q)
	case oap.OpSubscribe:
		if s, err := oap.ParseSubscribe(f.Payload); c.readable(correlation, err) {
			c.subscribe(ctx, correlation, q, s)
		}
	}
}

// list answers with a stream.
func (c *conn) list(ctx context.Context, f *oap.Frame, q *queue) {
	correlation := f.Correlation
	switch f.Code {
	case oap.OpPeek:
		if _, query, err := oap.ParsePeek(f.Payload); c.readable(correlation, err) {
			stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[driver.Peeked, error] {
				return q.caller.peek(ctx, q.name, query)
			}, func(dst []byte, p *driver.Peeked) []byte {
				oap.TellMessage(&p.Message, c.knows.Load())
				return oap.AppendPeeked(dst, p)
			})
		}
	case oap.OpDeadLetters:
		stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
			return q.caller.deadLetters(ctx, q.name)
		}, func(dst []byte, l *driver.DeadLetter) []byte {
			oap.TellMessage(&l.Message, c.knows.Load())
			return oap.AppendDeadLetter(dst, l)
		})
	case oap.OpSchedules:
		if _, name, err := oap.ParseSchedulesRequest(f.Payload); c.readable(correlation, err) {
			stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[driver.Schedule, error] {
				return q.caller.user.Schedules(ctx, q.name, name)
			}, oap.AppendSchedule)
		}
	}
}

func (c *conn) edit(ctx context.Context, f *oap.Frame, q *queue) {
	target, id, edit, err := oap.ParseEdit(f.Payload)
	if !c.readable(f.Correlation, err) {
		return
	}
	c.once(f.Correlation, target.Ticket, func() (func([]byte) []byte, error) {
		was, err := q.caller.user.Edit(ctx, q.name, id, edit)
		return func(dst []byte) []byte { return oap.AppendEdited(dst, was) }, err
	})
}

func (c *conn) fire(ctx context.Context, f *oap.Frame, q *queue) {
	target, firing, err := oap.ParseFire(f.Payload)
	if !c.readable(f.Correlation, err) {
		return
	}
	c.once(f.Correlation, target.Ticket, func() (func([]byte) []byte, error) {
		now, done, err := q.caller.user.Fire(ctx, q.name, firing)
		return func(dst []byte) []byte { return oap.AppendFired(dst, done, &now) }, err
	})
}

// redrive answers with what was moved also if not all could be.
func (c *conn) redrive(ctx context.Context, correlation uint64, q *queue, d *oap.Redrive) {
	ids := d.IDs
	if d.All {
		ids = nil
	} else if ids == nil {
		ids = []string{}
	}
	c.once(correlation, d.Ticket, func() (func([]byte) []byte, error) {
		moved, err := q.caller.user.Redrive(ctx, q.name, ids, d.Limit)
		if moved == 0 && err != nil {
			return nil, err
		}
		return func(dst []byte) []byte { return oap.AppendMoved(dst, moved, elsewhere(err)) }, nil
	})
}
