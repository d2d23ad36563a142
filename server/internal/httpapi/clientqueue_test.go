package httpapi_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// clientQueue is a handle.
type clientQueue struct {
	driver.Unsupported
	client  *client
	name    string
	once    sync.Once
	closing chan struct{}
}

func (q *clientQueue) check(op string) error {
	select {
	case <-q.closing:
		return &driver.Error{Code: driver.ErrClosed, Op: op, Queue: q.name}
	default:
		return nil
	}
}

func (q *clientQueue) Traits() driver.Traits {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	return q.client.traits[q.name]
}

func (q *clientQueue) Close() error {
	q.once.Do(func() { close(q.closing) })
	return nil
}

// until cancels the receive with this correlation id when ctx ends or the handle
// is closed. The receive then returns, with the messages it has leased by then, which
// would be lost if its connection were closed.
func (q *clientQueue) until(ctx context.Context, corr string) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-q.closing:
		case <-ctx.Done():
		case <-stopped:
			return
		}
		// The receive may not have arrived yet.
		for answer := struct{ Cancelled int }{}; answer.Cancelled == 0; {
			if _, err := q.client.call(context.WithoutCancel(ctx), "/v1/recv/cancel", true, object{"corr_id": corr}, &answer); err != nil {
				return
			}
			select {
			case <-stopped:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}

// batch sends elements in requests that are small enough, and combines the results.
// encode returns an error for an element that must not be sent.
func batch[E any](ctx context.Context, q *clientQueue, path, field string, elements []E, encode func(E) (any, error)) ([]driver.Sent, error) {
	sent, _, err := batchOf(ctx, q, path, field, elements, encode)
	return sent, err
}

// batchOf is batch that also returns the granted extensions.
func batchOf[E any](ctx context.Context, q *clientQueue, path, field string, elements []E, encode func(E) (any, error)) ([]driver.Sent, []time.Duration, error) {
	const most = 900 << 10
	errs := make([]error, len(elements))
	sent := make([]driver.Sent, len(elements))
	granted := make([]time.Duration, len(elements))
	var chunk []json.RawMessage
	var at []int
	size := 0
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		var answer struct {
			Results []struct {
				MessageID string     `json:"msg_id"`
				Duplicate bool       `json:"duplicate"`
				Replaced  bool       `json:"replaced"`
				Error     *wireError `json:"error"`

				VisibilityMS json.Number `json:"visibility_ms"`
			}
		}
		if _, err := q.client.call(ctx, path, true, object{"topic": q.name, field: chunk}, &answer); err != nil {
			return err
		}
		for i, r := range answer.Results {
			sent[at[i]] = driver.Sent{ID: r.MessageID, Duplicate: r.Duplicate, Replaced: r.Replaced}
			if r.VisibilityMS != "" {
				granted[at[i]] = duration(r.VisibilityMS)
			}
			if r.Error != nil {
				errs[at[i]] = r.Error.driver()
			}
		}
		chunk, at, size = nil, nil, 0
		return nil
	}
	for i := range elements {
		value, err := encode(elements[i])
		if err != nil {
			errs[i] = err
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, nil, err
		}
		if size += len(text) + 1; size > most {
			if err := flush(); err != nil {
				return nil, nil, err
			}
			size = len(text) + 1
		}
		chunk, at = append(chunk, text), append(at, i)
	}
	if err := flush(); err != nil {
		return nil, nil, err
	}
	return sent, granted, driver.NewBatchError(errs)
}

func (q *clientQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := q.check("send"); err != nil {
		return nil, err
	}
	traits := q.Traits()
	return batch(ctx, q, "/v1/send/batch", "messages", msgs, func(m driver.Outgoing) (any, error) {
		if err := m.Check(&traits); err != nil {
			return nil, err
		}
		body := m.Body
		if body == nil {
			body = []byte{}
		}
		message := object{"payload_b64": body, "idem_key": m.DedupKey, "delay_ms": ms(m.Delay), "group": m.Group, "reply_to": m.ReplyTo, "correlation_id": m.CorrelationID}
		if m.Attributes != nil {
			message["attrs"] = m.Attributes
		}
		if m.TTL != 0 {
			message["ttl_ms"] = ms(m.TTL)
		}
		if m.Priority != 0 {
			message["priority"] = m.Priority
		}
		if m.UniqueKey != "" || m.Replace {
			message["unique_key"], message["replace"] = m.UniqueKey, m.Replace
		}
		if !m.DeliverAt.IsZero() {
			message["deliver_at"] = m.DeliverAt.Format(time.RFC3339Nano)
		}
		return message, nil
	})
}

type detailsJSON struct {
	Group           string    `json:"group"`
	Priority        int       `json:"priority"`
	ReplyTo         string    `json:"reply_to"`
	CorrelationID   string    `json:"correlation_id"`
	EnqueuedAt      time.Time `json:"enqueued_at"`
	FirstReceivedAt time.Time `json:"first_received_at"`
	LastError       string    `json:"last_error"`
}

func (q *clientQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := q.check("receive"); err != nil {
		return nil, err
	}
	traits := q.Traits()
	req, err := req.Check(&traits)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	corr := rand.Text()
	stop := q.until(ctx, corr)
	defer stop()
	var answer struct {
		Messages []struct {
			MessageID string            `json:"msg_id"`
			Payload   []byte            `json:"payload_b64"`
			Receipt   string            `json:"receipt"`
			Attempt   int               `json:"attempt"`
			Attrs     map[string]string `json:"attrs"`
			Details   detailsJSON       `json:"details"`
		}
	}
	_, err = q.client.call(context.WithValue(context.WithoutCancel(ctx), corrKey{}, corr), "/v1/recv", true, object{
		"topic": q.name, "visibility_ms": ms(req.Visibility), "max_messages": req.Max, "max_bytes": req.MaxBytes,
		"wait_ms": ms(req.Wait), "details": true,
	}, &answer)
	switch {
	case err != nil && q.check("receive") != nil:
		return nil, q.check("receive")
	case err != nil:
		return nil, err
	case len(answer.Messages) == 0 && ctx.Err() != nil:
		return nil, ctx.Err()
	case len(answer.Messages) == 0:
		return nil, q.check("receive")
	}
	var deliveries []driver.Delivery
	for _, m := range answer.Messages {
		deliveries = append(deliveries, driver.Delivery{
			Message: driver.Message{
				ID: m.MessageID, Body: m.Payload, Attributes: m.Attrs, Group: m.Details.Group, Priority: m.Details.Priority, ReplyTo: m.Details.ReplyTo,
				CorrelationID: m.Details.CorrelationID, Deliveries: m.Attempt, EnqueuedAt: m.Details.EnqueuedAt,
				FirstReceivedAt: m.Details.FirstReceivedAt, LastError: m.Details.LastError,
			},
			Receipt: driver.Receipt{Handle: m.Receipt},
		})
	}
	return deliveries, nil
}

// sealed returns the receipt of the daemon. Place and nonce are not used here; a receipt
// that has them is not one of the daemon.
func sealed(r driver.Receipt) string {
	if r.Place != 0 || r.Nonce != 0 {
		return r.String()
	}
	return r.Handle
}

func (q *clientQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := q.check("ack"); err != nil {
		return err
	}
	_, err := batch(ctx, q, "/v1/ack", "receipts", receipts, func(r driver.Receipt) (any, error) { return sealed(r), nil })
	return err
}

func (q *clientQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := q.check("nack"); err != nil {
		return err
	}
	traits := q.Traits()
	_, err := batch(ctx, q, "/v1/nack", "nacks", nacks, func(n driver.Nack) (any, error) {
		cause := strings.ToValidUTF8(driver.TrimCause(n.Cause), "\ufffd")
		mode := map[driver.NackMode]string{driver.NackRelease: "release", driver.NackPutBack: "put_back"}[n.Mode]
		return object{"receipt": sealed(n.Receipt), "delay_ms": ms(n.Delay), "reason": cause, "mode": mode}, n.Check(&traits)
	})
	return err
}

func (q *clientQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if err := q.check("extend"); err != nil {
		return nil, err
	}
	traits := q.Traits()
	_, granted, err := batchOf(ctx, q, "/v1/extend", "extensions", extensions, func(e driver.Extension) (any, error) {
		return object{"receipt": sealed(e.Receipt), "visibility_ms": ms(e.Visibility)},
			e.Check(&traits)
	})
	return granted, err
}

func (q *clientQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	if err := q.check("dead-letter"); err != nil {
		return err
	}
	_, err := batch(ctx, q, "/v1/bury", "burials", requests, func(b driver.DeadLetterRequest) (any, error) {
		return object{"receipt": sealed(b.Receipt), "reason": b.Reason, "error": driver.TrimCause(b.Error), "error_type": b.ErrorType}, nil
	})
	return err
}

// lookedJSON is a message that was read without a lease.
type lookedJSON struct {
	detailsJSON
	MessageID string            `json:"msg_id"`
	State     driver.State      `json:"state"`
	Payload   []byte            `json:"payload_b64"`
	Attrs     map[string]string `json:"attrs"`
	Attempt   int               `json:"attempt"`
	DueAt     time.Time         `json:"due_at"`
	Source    string            `json:"source"`
	Reason    driver.Reason     `json:"reason"`
	ErrorType string            `json:"error_type"`
	DeadAt    time.Time         `json:"dead_at"`
	Redrives  int               `json:"redrives"`
}

func (l *lookedJSON) peeked() driver.Peeked {
	return driver.Peeked{
		DeadLetter: driver.DeadLetter{
			Message: driver.Message{
				ID: l.MessageID, Body: l.Payload, Attributes: l.Attrs, Group: l.Group, Priority: l.Priority, ReplyTo: l.ReplyTo, CorrelationID: l.CorrelationID,
				Deliveries: l.Attempt, EnqueuedAt: l.EnqueuedAt, FirstReceivedAt: l.FirstReceivedAt, LastError: l.LastError,
			},
			Source: l.Source, Reason: l.Reason, ErrorType: l.ErrorType, DeadAt: l.DeadAt, Redrives: l.Redrives,
		},
		State: l.State, DueAt: l.DueAt,
	}
}

func (q *clientQueue) look(ctx context.Context, op, path string, request object) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		if err := q.check(op); err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		for line, err := range lines[lookedJSON](ctx, q.client, path, request) {
			if !yield(line.peeked(), err) {
				return
			}
		}
	}
}

func (q *clientQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		for peeked, err := range q.look(ctx, "list dead letters", "/v1/dlq/list", object{"topic": q.name}) {
			if !yield(peeked.DeadLetter, err) {
				return
			}
		}
	}
}

func (q *clientQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if query.Cursor != nil && query.Last == 0 { // a client that stops has no last line
		return driver.Unsupported{}.Peek(ctx, query)
	}
	request := object{"topic": q.name, "msg_id": query.ID, "older_than_ms": ms(query.OlderThan), "reason": query.Reason, "limit": query.Limit, "last": query.Last}
	if query.Cursor != nil {
		request["cursor"] = *query.Cursor
	}
	if query.States != nil {
		request["states"] = query.States
	}
	if query.Attributes != nil {
		request["attrs"] = query.Attributes
	}
	return q.look(ctx, "peek", "/v1/peek", request)
}

// count is a call that answers with a number.
func (q *clientQueue) count(ctx context.Context, op, path string, request object) (int, error) {
	if err := q.check(op); err != nil {
		return 0, err
	}
	var answer struct{ Moved, Removed int }
	request["topic"] = q.name
	failure, err := q.client.call(ctx, path, true, request, &answer)
	if failure != nil {
		return failure.Done, err
	}
	return answer.Moved + answer.Removed, err
}

func (q *clientQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	request := object{"limit": limit}
	if ids != nil {
		request["msg_ids"] = ids
	}
	return q.count(ctx, "redrive", "/v1/dlq/reprocess", request)
}

func (q *clientQueue) Discard(ctx context.Context, ids []string) (int, error) {
	if ids == nil {
		ids = []string{}
	}
	return q.count(ctx, "discard", "/v1/dlq/discard", object{"msg_ids": ids})
}

func (q *clientQueue) PurgeDead(ctx context.Context) (int, error) {
	return q.count(ctx, "purge dead letters", "/v1/dlq/purge", object{})
}

func (q *clientQueue) Pause(ctx context.Context) error {
	_, err := q.count(ctx, "pause", "/v1/pause", object{})
	return err
}

func (q *clientQueue) Resume(ctx context.Context) error {
	_, err := q.count(ctx, "resume", "/v1/resume", object{})
	return err
}

func (q *clientQueue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	_, err := q.count(ctx, "throttle", "/v1/throttle", object{"group": group, "wait_ms": ms(wait)})
	return err
}

func (q *clientQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	if err := q.check("edit"); err != nil {
		return "", err
	}
	request := object{"topic": q.name, "msg_id": id, "remove": edit.Remove, "ready": edit.Ready}
	if !edit.DeliverAt.IsZero() {
		request["deliver_at"] = edit.DeliverAt.Format(time.RFC3339Nano)
	}
	if edit.Prioritize {
		request["priority"] = edit.Priority
	}
	var answer struct{ State driver.State }
	_, err := q.client.call(ctx, "/v1/edit", true, request, &answer)
	return answer.State, err
}

func (q *clientQueue) Purge(ctx context.Context) (int, error) {
	return q.count(ctx, "purge", "/v1/purge", object{})
}

func (q *clientQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if err := q.check("stats"); err != nil {
		return driver.Stats{}, err
	}
	var s struct {
		Ready, Delayed, Dead int
		InFlight             int `json:"in_flight"`
		Paused               bool
		Throttled            int
	}
	_, err := q.client.call(ctx, "/v1/stats", true, object{"topic": q.name}, &s)
	return driver.Stats{Ready: s.Ready, Delayed: s.Delayed, InFlight: s.InFlight, Dead: s.Dead, Paused: s.Paused, Throttled: s.Throttled}, err
}
