package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// Outgoing is a message to be sent. DedupKey is what the wire calls idem_key.
type Outgoing struct {
	driver.Outgoing
	// SentAt and Signature are set by a sender that seals messages itself: the
	// signature is over the hash chain with this time. Zero means the time of the
	// daemon, and no signature.
	SentAt    time.Time
	Signature envelope.Signature
}

// Send enqueues messages in order and returns one result for each, as
// driver.Queue.Send does, with the same codes: some positions may fail while
// others do not. It creates the queue if it does not exist.
//
// It blocks until the messages are as durable as the backend promises.
// Cancelling ctx may leave them sent. Send keeps no reference to messages.
func (c Caller) Send(ctx context.Context, queue string, messages []Outgoing) ([]driver.Sent, error) {
	b := c.broker
	request := c.request(capability.OpSend, queue)
	request.Load = loadOf(messages)
	if _, err := c.authorizeRequest(ctx, request); err != nil {
		return nil, err
	}
	if err := b.admit("send", queue, lastForWrites); err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		q, err := c.use(ctx, "send", queue, true)
		if err != nil {
			c.slowRefusal(ctx, nil, err)
			return nil, err
		}
		units := unitsOf(len(messages), request.Load.Bytes)
		if err := c.turn(ctx, "send", queue, units); err != nil {
			q.release(b.now())
			return nil, err
		}
		sent, prepared, err := c.sendTo(ctx, q, messages)
		c.done(units)
		retry := !again && c.used(q, err) && !c.existing
		q.release(b.now())
		if !prepared {
			c.slowRefusal(ctx, nil, err)
		}
		if !retry {
			return sent, err
		}
	}
}

// SentKeyless counts messages that a client sent without a dedup key on a surface that
// wants one. It logs the token at a bounded rate, so that operators notice.
func (c Caller) SentKeyless(ctx context.Context, queue string, n int) {
	b := c.broker
	b.metrics.Queue(c.tenant, queue).Keyless(n)
	suppressed, ok := b.keylessLines.take(b.now(), keylessLines, keylessEvery)
	if !ok {
		return
	}
	attrs := c.attrs(queue, slog.Int("count", n))
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	b.log.LogAttrs(ctx, slog.LevelWarn, "send.keyless", attrs...)
}

// keylessLines and keylessEvery bound the lines about sends without dedup keys: such a
// client usually omits the key in every send.
const (
	keylessLines = 3
	keylessEvery = time.Minute
)

// loadOf returns the load of a send for quotas. An empty send counts as one message.
func loadOf(messages []Outgoing) verify.Load {
	l := verify.Load{Messages: max(1, len(messages))}
	for i := range messages {
		size := int64(len(messages[i].Body))
		l.Bytes += size
		l.LargestBody = max(l.LargestBody, size)
	}
	return l
}

// sendTo sends to an open queue. prepared is false if the caller may not send this, or has
// no room for it.
func (c *Caller) sendTo(ctx context.Context, q *queue, messages []Outgoing) (sent []driver.Sent, prepared bool, err error) {
	var call sendCall
	if err := c.prepareSend(ctx, &call, q, messages); err != nil {
		return nil, false, err
	}
	if call.any() {
		sent, err = q.handle.Send(ctx, call.stamped)
	}
	sent, err = call.finish(sent, err)
	return sent, true, err
}

// sendCall is the state of one send.
type sendCall struct {
	caller   *Caller
	queue    *queue
	began    time.Time
	messages int
	failed   []error           // by position; nil while none has failed
	stamped  []driver.Outgoing // those that have not failed
	seals    []byte            // of stamped
	// keys and uniqueKeys were taken from the caller's shares.
	keys, uniqueKeys int64
	window           time.Duration
}

// any reports whether the backend has something to do.
func (s *sendCall) any() bool { return len(s.stamped) > 0 || s.messages == 0 }

// prepareSend seals the messages that can be sent, and takes room for their keys.
func (c *Caller) prepareSend(ctx context.Context, s *sendCall, q *queue, messages []Outgoing) error {
	traits := q.traits(c.limits())
	if err := c.checkBatch("send", q, &traits, len(messages)); err != nil {
		return err
	}
	if err := c.takeKeys(ctx, s, q, &traits, messages); err != nil {
		for range messages {
			c.broker.metrics.Rejected(metricSaturated)
		}
		return err
	}
	s.caller, s.queue, s.began, s.messages, s.window = c, q, time.Now(), len(messages), traits.DedupWindow
	s.stamped = slices.Grow(s.stamped[:0], len(messages))
	s.seals = slices.Grow(s.seals[:0], len(messages)*q.sealBytes())
	for i := range messages {
		m := &messages[i]
		err := m.Check(&traits)
		var out driver.Outgoing
		if err == nil {
			out, s.seals, err = c.stamp(q, m, s.began, s.seals)
		}
		if err != nil {
			c.broker.metrics.Rejected(rejection(err))
			s.failed = driver.FailAt(s.failed, len(messages), i, err)
			continue
		}
		s.stamped = append(s.stamped, out)
	}
	return nil
}

// finish counts what was sent, and returns the results by position.
func (s *sendCall) finish(sent []driver.Sent, err error) ([]driver.Sent, error) {
	c := s.caller
	if s.keys > 0 {
		c.settleKeys(s, sent, err)
	}
	if s.uniqueKeys > 0 {
		c.settleUniqueKeys(s, sent, err)
	}
	if s.failed != nil {
		sent, err = Spread(sent, err, s.failed)
	}
	c.broker.metrics.Enqueue.Observe(time.Since(s.began).Seconds())
	c.countSent(s, sent, err)
	return sent, localised(err, s.queue)
}

// checkBatch returns ErrTooLarge for a batch that is longer than the queue allows,
// before the batch costs anything else.
func (c *Caller) checkBatch(op string, q *queue, traits *driver.Traits, elements int) error {
	if elements <= traits.MaxBatch {
		return nil
	}
	c.broker.metrics.Rejected(metricOversize)
	return &driver.Error{
		Code: driver.ErrTooLarge, Op: op, Queue: q.name, Field: "batch",
		Detail: fmt.Sprintf("has %d elements, at most %d are allowed", elements, traits.MaxBatch),
	}
}

// Spread moves the results of the messages that were sent to their positions in the
// batch, between those that failed before.
func Spread(sent []driver.Sent, err error, failed []error) ([]driver.Sent, error) {
	all := make([]driver.Sent, len(failed))
	next := 0
	for i := range failed {
		if failed[i] != nil {
			continue
		}
		failed[i] = driver.At(err, next)
		if next < len(sent) {
			all[i] = sent[next]
		}
		next++
	}
	return all, driver.NewBatchError(failed)
}

func (c *Caller) countSent(s *sendCall, sent []driver.Sent, err error) {
	duplicates, accepted := 0, 0
	for i := range s.messages {
		if failure := driver.At(err, i); failure != nil {
			c.broker.metrics.Rejected(rejection(failure))
			continue
		}
		if i >= len(sent) {
			break
		}
		if sent[i].Replaced {
			s.queue.meter.Edited("replace")
			c.broker.traces.note(&s.queue.queueKey, sent[i].ID, c.holder, EventReplaced, 0, "", s.began)
			continue
		}
		if sent[i].Duplicate {
			duplicates++
			continue
		}
		accepted++
		c.broker.traces.note(&s.queue.queueKey, sent[i].ID, c.holder, EventSent, 0, "", s.began)
	}
	s.queue.meter.Sent(accepted, duplicates)
	s.queue.flow.sent.Add(uint64(accepted))
}
