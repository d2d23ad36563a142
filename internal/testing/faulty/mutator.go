package faulty

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// afterSend changes each result of a send.
func afterSend(change func(q *queue, msg driver.Outgoing, sent *driver.Sent)) sendFunc {
	return func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		sent, err := q.Send(ctx, msgs)
		for i := range sent {
			change(q, msgs[i], &sent[i])
		}
		return sent, err
	}
}

// alterRequest changes each request before the backend gets it.
func alterRequest(change func(q *queue, req *driver.ReceiveRequest)) receiveFunc {
	return func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		change(q, &req)
		return q.Receive(ctx, req)
	}
}

// alterDelivered changes each delivery that is returned.
func alterDelivered(change func(q *queue, d *driver.Delivery)) receiveFunc {
	return afterReceive(func(q *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
		for i := range got {
			change(q, &got[i])
		}
		return got
	})
}

// afterReceive changes the batch that a receive returns.
func afterReceive(change func(q *queue, ctx context.Context, got []driver.Delivery) []driver.Delivery) receiveFunc {
	return func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		got, err := q.Receive(ctx, req)
		return change(q, ctx, got), err
	}
}

// pollEvery polls instead of waiting, if when is nil or reports true.
func pollEvery(pause time.Duration, when func(q *queue, ctx context.Context, req driver.ReceiveRequest) bool) receiveFunc {
	return func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		if when != nil && !when(q, ctx, req) {
			return q.Receive(ctx, req)
		}
		return q.poll(ctx, req, pause)
	}
}

func (q *queue) poll(ctx context.Context, req driver.ReceiveRequest, pause time.Duration) ([]driver.Delivery, error) {
	look := req
	look.Wait = min(req.Wait, 0)
	for end := time.Now().Add(req.Wait); ; {
		got, err := q.Receive(ctx, look)
		rest := time.Until(end)
		if len(got) > 0 || rest <= 0 || err != nil && !errors.Is(err, driver.ErrFull) {
			return got, err
		}
		if err := backoff.Pause(ctx, min(pause, rest)); err != nil {
			return nil, err
		}
	}
}

// alterStats changes the returned counts.
func alterStats(change func(q *queue, stats *driver.Stats)) func(*queue, context.Context) (driver.Stats, error) {
	return func(q *queue, ctx context.Context) (driver.Stats, error) {
		stats, err := q.Stats(ctx)
		change(q, &stats)
		return stats, err
	}
}

// alterTraits changes the traits of a queue.
func alterTraits(change func(q *queue, traits *driver.Traits)) func(*queue) driver.Traits {
	return func(q *queue) driver.Traits {
		traits := q.Traits()
		change(q, &traits)
		return traits
	}
}

// alterDead changes each dead letter as it is listed.
func alterDead(change func(q *queue, letter *driver.DeadLetter)) func(*queue, context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(q *queue, ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
		return func(yield func(driver.DeadLetter, error) bool) {
			for letter, err := range q.DeadLetters(ctx) {
				change(q, &letter)
				if !yield(letter, err) {
					return
				}
			}
		}
	}
}

// alterQuery changes each query before the backend gets it.
func alterQuery(change func(*driver.Query)) peekFunc {
	return func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
		change(&query)
		return q.Peek(ctx, query)
	}
}

// filter yields the elements that keep, which may change them, reports true for.
func filter[E any](all iter.Seq2[E, error], keep func(*E) bool) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for element, err := range all {
			if (err != nil || keep(&element)) && !yield(element, err) {
				return
			}
		}
	}
}

// rearranged yields the elements as change orders them.
func rearranged[E any](all iter.Seq2[E, error], change func([]E)) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		list, err := collect(all)
		if err != nil {
			yield(*new(E), err)
			return
		}
		change(list)
		for _, element := range list {
			if !yield(element, nil) {
				return
			}
		}
	}
}

func collect[E any](all iter.Seq2[E, error]) (list []E, err error) {
	for element, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}

// alterRead changes each configuration that is read back.
func alterRead(change func(b *wrapper, name string, config *driver.Config)) func(*wrapper, context.Context, string) (driver.Config, error) {
	return func(b *wrapper, ctx context.Context, name string) (driver.Config, error) {
		config, err := b.QueueConfig(ctx, name)
		change(b, name, &config)
		return config, err
	}
}

// alterConfig changes each configuration as if it had been asked for.
func alterConfig(change func(*driver.Config)) func(*wrapper, context.Context, string, driver.Config) error {
	return func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
		change(&config)
		return b.ConfigureQueue(ctx, name, config)
	}
}

// set changes a field, if a condition holds.
func set[T any](when bool, field *T, value T) {
	if when {
		*field = value
	}
}

// strict, fair and sharded are conditions of hooks.only.
func strict(q *queue) bool  { return q.Traits().StrictGroups }
func fair(q *queue) bool    { return q.Traits().FairGroups }
func sharded(q *queue) bool { return q.config().Shards > 1 }
