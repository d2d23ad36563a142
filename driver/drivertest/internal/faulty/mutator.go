package faulty

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// changed returns a copy of a batch with each element changed.
func changed[E any](q *queue, batch []E, change func(*queue, *E)) []E {
	batch = append([]E(nil), batch...)
	for i := range batch {
		change(q, &batch[i])
	}
	return batch
}

// alterEach changes the elements of a batch before the backend gets them.
func alterEach[E any](pass settleFunc[E], change func(*queue, *E)) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error { return pass(q, ctx, changed(q, batch, change)) }
}

// alterSent changes each message before the backend gets it.
func alterSent(change func(q *queue, msg *driver.Outgoing)) sendFunc {
	return func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		return q.Send(ctx, changed(q, msgs, change))
	}
}

// alterExtensions changes each extension before the backend gets it.
func alterExtensions(change func(q *queue, extension *driver.Extension)) extendFunc {
	return func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
		return q.Extend(ctx, changed(q, extensions, change))
	}
}

// oneByOne settles a batch one by one.
func oneByOne[E any](settle func(q *queue, ctx context.Context, element E) error) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error {
		return each(batch, func(element E) error { return settle(q, ctx, element) })
	}
}

// sendOneByOne sends a batch message by message.
func sendOneByOne(send func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error)) sendFunc {
	return func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) { return send(q, ctx, msg) })
	}
}

// extendOneByOne extends a batch one by one.
func extendOneByOne(extend func(q *queue, ctx context.Context, extension driver.Extension) ([]time.Duration, error)) extendFunc {
	return func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
		return eachExtension(extensions, func(extension driver.Extension) ([]time.Duration, error) { return extend(q, ctx, extension) })
	}
}

// afterEach passes a batch on and calls then for each element that succeeded.
func afterEach[E any](pass settleFunc[E], then func(q *queue, element E)) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error {
		err := pass(q, ctx, batch)
		for i, element := range batch {
			if driver.At(err, i) == nil {
				then(q, element)
			}
		}
		return err
	}
}

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

// alterError returns a copy of err with changed details, if it has any.
func alterError(err error, change func(*driver.Error)) error {
	detail, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	other := *detail
	change(&other)
	return &other
}

// unless returns err, or nil if ignored.
func unless(ignored bool, err error) error {
	if ignored {
		return nil
	}
	return err
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

// shiftErrors moves the errors of a batch one position up.
func shiftErrors[E any](pass settleFunc[E]) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error { return shifted(pass(q, ctx, batch), len(batch)) }
}

// shifted moves the errors of a batch one position up.
func shifted(err error, n int) error {
	return replaced(err, n, func(i int) int { return (i + 1) % n })
}

// replaced moves the errors of a batch to other positions.
func replaced(err error, n int, position func(int) int) error {
	if !ofBatch(err) || n < 2 {
		return err
	}
	errs := make([]error, n)
	for i := range errs {
		errs[position(i)] = driver.At(err, i)
	}
	return driver.NewBatchError(errs)
}
