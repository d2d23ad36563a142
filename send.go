package mailbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Outgoing is a message for SendMessages. All fields but Body are optional; each has
// the meaning of the SendOption of that name.
type Outgoing[T any] struct {
	Body          T
	Attributes    map[string]string
	Delay         time.Duration
	DeliverAt     time.Time
	TTL           time.Duration
	Priority      int
	DedupKey      string
	UniqueKey     string
	Replace       bool
	Group         string
	ReplyTo       string
	CorrelationID string
}

// Send enqueues body and returns the message's id. When it returns, the
// message is as durable as Traits says.
//
// It does not wait for room in a full queue. After an error the message was not
// sent, except that after ErrUnavailable or an error of the context it may have been:
// repeating is then safe only with WithDedupKey. Codes: ErrEncoding, ErrTooLarge,
// ErrFull, ErrConflict (the dedup key), and ErrUnsupported for an option that the
// backend does not support.
func (m *Mailbox[T]) Send(ctx context.Context, body T, options ...SendOption) (Sent, error) {
	if err := m.ready(ctx, opSend); err != nil {
		return Sent{}, err
	}
	encoded, err := m.codec.Encode(body)
	if err != nil {
		return Sent{}, m.encodingError(opSend, "", err)
	}
	single := singleSends.get()
	defer single.release()
	msg := &single.messages[0]
	msg.Body = encoded
	applySend(msg, options)
	traits := m.Queue().Traits()
	if err := msg.Check(&traits); err != nil {
		return Sent{}, m.located(err)
	}
	results, err := m.dispatch(ctx, single.messages[:], 1)
	if err != nil {
		return Sent{}, driver.At(err, 0)
	}
	return results[0], nil
}

// singleSend is the batch of one message that Send passes to the backend. It is pooled,
// because it would otherwise be an allocation in every Send. That is safe because
// backends do not keep the slices that they are given.
type singleSend struct{ messages [1]driver.Outgoing }

var singleSends pool[singleSend]

func (s *singleSend) release() {
	s.messages[0] = driver.Outgoing{}
	singleSends.put(s)
}

// SendAll enqueues bodies in order, each with the same options, and returns
// one result for each.
//
// Each body succeeds or fails on its own. If any fails, the error is a *BatchError in
// which position i belongs to bodies[i], and the result at that position is empty; see
// ErrorAt. Any other error means that no message was sent. More than Traits.MaxBatch
// bodies are sent in several calls of the backend, up to the first that fails as a
// whole. Codes of a position are those of Send, and mean the same. Messages with dedup
// keys, which must differ, take SendMessages.
func (m *Mailbox[T]) SendAll(ctx context.Context, bodies []T, options ...SendOption) ([]Sent, error) {
	return m.sendBatch(ctx, len(bodies), func(i int, msg *driver.Outgoing) T {
		applySend(msg, options)
		return bodies[i]
	})
}

// SendMessages is SendAll for messages with different settings.
func (m *Mailbox[T]) SendMessages(ctx context.Context, messages []Outgoing[T]) ([]Sent, error) {
	return m.sendBatch(ctx, len(messages), func(i int, msg *driver.Outgoing) T {
		from := &messages[i]
		*msg = driver.Outgoing{
			Attributes:    from.Attributes,
			Delay:         from.Delay,
			DeliverAt:     from.DeliverAt,
			TTL:           from.TTL,
			Priority:      from.Priority,
			DedupKey:      from.DedupKey,
			UniqueKey:     from.UniqueKey,
			Replace:       from.Replace,
			Group:         from.Group,
			ReplyTo:       from.ReplyTo,
			CorrelationID: from.CorrelationID,
		}
		return from.Body
	})
}

// sendBatch sends n messages. fill sets all fields of message i but its body, and
// returns the body.
func (m *Mailbox[T]) sendBatch(ctx context.Context, n int, fill func(i int, msg *driver.Outgoing) T) ([]Sent, error) {
	if err := m.ready(ctx, opSend); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	traits := m.Queue().Traits()
	errs := make([]error, n)
	messages := make([]driver.Outgoing, 0, n)
	positions := make([]int, 0, n) // positions[j] is that of messages[j] in the caller's batch
	for i := range n {
		var msg driver.Outgoing
		body := fill(i, &msg)
		if errs[i] = m.prepare(&msg, body, &traits); errs[i] == nil {
			messages = append(messages, msg)
			positions = append(positions, i)
		}
	}
	if len(messages) == 0 {
		return make([]Sent, n), driver.NewBatchError(errs)
	}
	sent, err := m.dispatch(ctx, messages, traits.MaxBatch)
	if err == nil && len(messages) == n {
		return sent, nil
	}
	results := make([]Sent, n)
	for j, i := range positions {
		if errs[i] = ErrorAt(err, j); errs[i] == nil {
			results[i] = sent[j]
		}
	}
	return results, driver.NewBatchError(errs)
}

// prepare encodes a body and checks the message against the limits of the queue.
func (m *Mailbox[T]) prepare(msg *driver.Outgoing, body T, traits *driver.Traits) error {
	encoded, err := m.codec.Encode(body)
	if err != nil {
		return m.encodingError(opSend, "", err)
	}
	msg.Body = encoded
	if err := msg.Check(traits); err != nil {
		return m.located(err)
	}
	return nil
}

// dispatch passes messages to the backend, at most maxBatch in a call. It returns a
// result for each message, unless the error is not a *BatchError.
func (m *Mailbox[T]) dispatch(ctx context.Context, messages []driver.Outgoing, maxBatch int) ([]Sent, error) {
	ctx = m.sending(ctx, messages)
	start := startIf(m.hooks.Sent != nil)
	var results []Sent
	var err error
	if len(messages) <= maxBatch || maxBatch <= 0 {
		results, err = m.Queue().Send(ctx, messages)
		results, err = m.complete(results, err, len(messages))
	} else {
		results, err = m.dispatchSteps(ctx, messages, maxBatch)
	}
	if m.hooks.Sent != nil {
		m.hooks.Sent(ctx, SentEvent{
			Queue: m.name, Messages: messages, Results: results,
			Duration: time.Since(start), Err: err,
		})
	}
	return results, err
}

func (m *Mailbox[T]) dispatchSteps(ctx context.Context, messages []driver.Outgoing, maxBatch int) ([]Sent, error) {
	results := make([]Sent, len(messages))
	errs := make([]error, len(messages))
	for start := 0; start < len(messages); start += maxBatch {
		step := messages[start:min(start+maxBatch, len(messages))]
		sent, err := m.Queue().Send(ctx, step)
		sent, err = m.complete(sent, err, len(step))
		for j := range step {
			if errs[start+j] = ErrorAt(err, j); errs[start+j] == nil {
				results[start+j] = sent[j]
			}
		}
		if err != nil && !isBatch(err) {
			for rest := start + len(step); rest < len(messages); rest++ {
				errs[rest] = err
			}
			break
		}
	}
	return results, driver.NewBatchError(errs)
}

// complete checks that a backend has returned a result for each message that was
// sent, so that a faulty backend causes an error and not a panic.
func (m *Mailbox[T]) complete(results []Sent, err error, n int) ([]Sent, error) {
	if len(results) >= n || (err != nil && !isBatch(err)) {
		return results, err
	}
	for i := len(results); i < n; i++ {
		if ErrorAt(err, i) == nil {
			return nil, m.fail(opSend, ErrUnavailable, "",
				fmt.Sprintf("the backend returned %d results for %d messages", len(results), n))
		}
	}
	return append(results, make([]Sent, n-len(results))...), err
}

// A pool is a sync.Pool of values of type T.
type pool[T any] struct{ free sync.Pool }

func (p *pool[T]) get() *T {
	if value, ok := p.free.Get().(*T); ok {
		return value
	}
	return new(T)
}

func (p *pool[T]) put(value *T) { p.free.Put(value) }
