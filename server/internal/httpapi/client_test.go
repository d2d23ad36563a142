package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// client is a driver.Opener that speaks to the HTTP surface, so that the
// conformance suite can be run through it. It shows that the surface is complete;
// programs use package remotebox.
type client struct {
	http  *http.Client
	base  string
	token capability.Token
	// shut closes what the client stands on.
	shut func() error

	mu     sync.Mutex
	closed bool
	queues map[*clientQueue]struct{}
	traits map[string]driver.Traits
	once   sync.Once
	err    error
}

func newClient(httpClient *http.Client, base string, token capability.Token, shut func() error) *client {
	return &client{
		http: httpClient, base: base, token: token, shut: shut,
		queues: make(map[*clientQueue]struct{}), traits: make(map[string]driver.Traits),
	}
}

// ms is a duration on the wire: milliseconds, with decimals.
func ms(d time.Duration) json.Number {
	return json.Number(fmt.Sprintf("%d.%06d", d/time.Millisecond, d%time.Millisecond))
}

// duration reads what the daemon writes.
func duration(ms json.Number) time.Duration {
	d, _ := time.ParseDuration(ms.String() + "ms")
	return d
}

// corrKey finds the correlation id of a request in its context.
type corrKey struct{}

// wireError is an error in JSON.
type wireError struct {
	Code         string  `json:"code"`
	Kind         string  `json:"kind"`
	Reason       string  `json:"reason"`
	Op           string  `json:"op"`
	Topic        string  `json:"topic"`
	MessageID    string  `json:"msg_id"`
	Field        string  `json:"field"`
	Detail       string  `json:"detail"`
	RetryAfterMS float64 `json:"retry_after_ms"`
	Done         int     `json:"done"`
}

func (e *wireError) driver() error {
	return wireerr.Error{
		Code: e.Code, Kind: e.Kind, Reason: e.Reason, Op: e.Op, Topic: e.Topic, MessageID: e.MessageID,
		Field: e.Field, Detail: e.Detail, RetryAfter: time.Duration(math.Round(e.RetryAfterMS * float64(time.Millisecond))),
	}.Driver()
}

func (c *client) check(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &driver.Error{Code: driver.ErrClosed, Op: op}
	}
	return nil
}

// post sends a request and returns the response if it is a good one.
func (c *client) post(ctx context.Context, path string, existing bool, request any) (*http.Response, *wireError, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if corr, ok := ctx.Value(corrKey{}).(string); ok {
		r.Header.Set("X-Corr-Id", corr)
	}
	r.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	if existing {
		r.Header.Set("X-Mailbox-Existing", "true")
	}
	response, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, &driver.Error{Code: driver.ErrUnavailable, Op: path, Err: err}
	}
	if response.StatusCode == http.StatusOK {
		return response, nil, nil
	}
	defer response.Body.Close()
	failure := new(wireError)
	if err := json.NewDecoder(response.Body).Decode(failure); err != nil {
		return nil, nil, &driver.Error{Code: driver.ErrUnavailable, Op: path, Detail: response.Status, Err: err}
	}
	return nil, failure, failure.driver()
}

// call posts and reads one object.
func (c *client) call(ctx context.Context, path string, existing bool, request, result any) (*wireError, error) {
	response, failure, err := c.post(ctx, path, existing, request)
	if err != nil {
		return failure, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &driver.Error{Code: driver.ErrUnavailable, Op: path, Err: err}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return nil, nil
}

// lines posts and yields the lines of the answer.
func lines[T any](ctx context.Context, c *client, path string, request any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		response, _, err := c.post(ctx, path, true, request)
		if err != nil {
			yield(none, err)
			return
		}
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			var line struct {
				Error *wireError `json:"error"`
			}
			var value T
			if err := errors.Join(json.Unmarshal(scanner.Bytes(), &line), json.Unmarshal(scanner.Bytes(), &value)); err != nil {
				if ctx.Err() != nil {
					err = ctx.Err() // the line was cut off
				}
				yield(none, err)
				return
			}
			if line.Error != nil {
				yield(none, line.Error.driver())
				return
			}
			if !yield(value, nil) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			yield(none, err)
		}
	}
}

type object map[string]any

func (c *client) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := c.check("open"); err != nil {
		return nil, err
	}
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if err := c.learn(ctx, name); err != nil {
		return nil, err
	}
	q := &clientQueue{client: c, name: name, closing: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[q] = struct{}{}
	return q, nil
}

// learn asks for the traits of a queue, and makes it.
func (c *client) learn(ctx context.Context, name string) error {
	var t struct {
		Ordering, Durability string
		Exact                bool        `json:"exact_stats"`
		Groups               bool        `json:"groups"`
		Strict               bool        `json:"strict_groups"`
		Dead                 bool        `json:"dead_letters"`
		Window               json.Number `json:"dedup_window_ms"`
		MaxBody              int         `json:"max_body_bytes"`
		MaxBatch             int         `json:"max_batch"`
		MaxDelay             json.Number `json:"max_delay_ms"`
		MaxVisibility        json.Number `json:"max_visibility_ms"`
		MaxWait              json.Number `json:"max_wait_ms"`
		Cooldown             json.Number `json:"purge_cooldown_ms"`
	}
	if _, err := c.call(ctx, "/v1/traits", false, object{"topic": name}, &t); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traits[name] = driver.Traits{
		Ordering: driver.Ordering(t.Ordering), Durability: driver.Durability(t.Durability), ExactStats: t.Exact, Groups: t.Groups,
		StrictGroups: t.Strict, DeadLetters: t.Dead, DedupWindow: duration(t.Window),
		MaxBodyBytes: t.MaxBody, MaxBatch: t.MaxBatch, MaxDelay: duration(t.MaxDelay),
		MaxVisibility: duration(t.MaxVisibility), MaxWait: duration(t.MaxWait),
		PurgeCooldown: duration(t.Cooldown),
	}
	return nil
}

type configJSON struct {
	Shards           int         `json:"shards"`
	StrictGroups     bool        `json:"strict_groups"`
	MaxAttempts      int         `json:"max_attempts"`
	MaxMessages      int         `json:"max_messages"`
	MaxBytes         int         `json:"max_bytes"`
	MaxInFlight      int         `json:"max_in_flight"`
	MaxDead          int         `json:"max_dead"`
	DedupWindowMS    json.Number `json:"dedup_window_ms"`
	DedupMax         int         `json:"dedup_max"`
	RetainReadyMS    json.Number `json:"retain_ready_ms"`
	RetainReadyCount int         `json:"retain_ready_count"`
	RetainDeadMS     json.Number `json:"retain_dead_ms"`
	RetainDeadCount  int         `json:"retain_dead_count"`
	MaxHold          int         `json:"max_hold"`
	DeadLetterTo     string      `json:"dead_letter_to"`
}

func (c *client) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := c.check("configure"); err != nil {
		return err
	}
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return err
	}
	_, err := c.call(ctx, "/v1/queues/configure", false, object{"topic": name, "config": configJSON{
		config.Shards, config.StrictGroups, config.MaxDeliveries, config.MaxMessages, config.MaxBytes, config.MaxInFlight,
		config.MaxDead, ms(config.DedupWindow), config.DedupMax, ms(config.RetainReady.Age), config.RetainReady.Count,
		ms(config.RetainDead.Age), config.RetainDead.Count, config.MaxHold, config.DeadLetterTo,
	}}, &struct{}{})
	if err != nil {
		return err
	}
	return c.learn(ctx, name)
}

func (c *client) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := c.check("configure"); err != nil {
		return driver.Config{}, err
	}
	var answer struct{ Config configJSON }
	if _, err := c.call(ctx, "/v1/queues/get", false, object{"topic": name}, &answer); err != nil {
		return driver.Config{}, err
	}
	g := answer.Config
	return driver.Config{
		Shards: g.Shards, StrictGroups: g.StrictGroups, MaxDeliveries: g.MaxAttempts, MaxMessages: g.MaxMessages, MaxBytes: g.MaxBytes,
		MaxInFlight: g.MaxInFlight, MaxDead: g.MaxDead, DedupWindow: duration(g.DedupWindowMS), DedupMax: g.DedupMax,
		RetainReady: driver.Retention{Age: duration(g.RetainReadyMS), Count: g.RetainReadyCount},
		RetainDead:  driver.Retention{Age: duration(g.RetainDeadMS), Count: g.RetainDeadCount},
		MaxHold:     g.MaxHold, DeadLetterTo: g.DeadLetterTo,
	}, nil
}

func (c *client) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := c.check("list"); err != nil {
			yield("", err)
			return
		}
		for line, err := range lines[struct{ Topic string }](ctx, c, "/v1/queues/list", object{}) {
			if !yield(line.Topic, err) {
				return
			}
		}
	}
}

func (c *client) DeleteQueue(ctx context.Context, name string) error {
	if err := c.check("delete"); err != nil {
		return err
	}
	_, err := c.call(ctx, "/v1/queues/delete", false, object{"topic": name}, &struct{}{})
	return err
}

func (c *client) Ping(ctx context.Context) error {
	if err := c.check("ping"); err != nil {
		return err
	}
	_, err := c.call(ctx, "/v1/ping", false, object{}, &struct{}{})
	return err
}

func (c *client) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		queues := c.queues
		c.queues = nil
		c.mu.Unlock()
		for q := range queues {
			_ = q.Close()
		}
		c.err = c.shut()
	})
	return c.err
}

// clientQueue is a handle.
type clientQueue struct {
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
// is closed. The receive then ends by itself, and what it has taken by then is
// not lost, as it would be if its connection was cut.
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

// batch sends elements in requests that are small enough, and puts the results
// together. refuse returns what is wrong with an element before it is sent.
func batch[E any](ctx context.Context, q *clientQueue, path, field string, elements []E, encode func(E) (any, error)) ([]driver.Sent, error) {
	const most = 900 << 10
	errs := make([]error, len(elements))
	sent := make([]driver.Sent, len(elements))
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
				Error     *wireError `json:"error"`
			}
		}
		if _, err := q.client.call(ctx, path, true, object{"topic": q.name, field: chunk}, &answer); err != nil {
			return err
		}
		for i, r := range answer.Results {
			sent[at[i]] = driver.Sent{ID: r.MessageID, Duplicate: r.Duplicate}
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
			return nil, err
		}
		if size += len(text) + 1; size > most {
			if err := flush(); err != nil {
				return nil, err
			}
			size = len(text) + 1
		}
		chunk, at = append(chunk, text), append(at, i)
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return sent, driver.NewBatchError(errs)
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
		return message, nil
	})
}

type detailsJSON struct {
	Group           string    `json:"group"`
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
				ID: m.MessageID, Body: m.Payload, Attributes: m.Attrs, Group: m.Details.Group, ReplyTo: m.Details.ReplyTo,
				CorrelationID: m.Details.CorrelationID, Deliveries: m.Attempt, EnqueuedAt: m.Details.EnqueuedAt,
				FirstReceivedAt: m.Details.FirstReceivedAt, LastError: m.Details.LastError,
			},
			Receipt: driver.Receipt{Handle: m.Receipt},
		})
	}
	return deliveries, nil
}

// sealed is the receipt that the daemon gave. Place and nonce are not used here,
// and who sets them has made the receipt up.
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
		return object{"receipt": sealed(n.Receipt), "delay_ms": ms(n.Delay), "reason": cause},
			driver.CheckVisibility("nack", "Delay", n.Delay, &traits)
	})
	return err
}

func (q *clientQueue) Extend(ctx context.Context, extensions []driver.Extension) error {
	if err := q.check("extend"); err != nil {
		return err
	}
	traits := q.Traits()
	_, err := batch(ctx, q, "/v1/extend", "extensions", extensions, func(e driver.Extension) (any, error) {
		return object{"receipt": sealed(e.Receipt), "visibility_ms": ms(e.Visibility)},
			driver.CheckVisibility("extend", "Visibility", e.Visibility, &traits)
	})
	return err
}

func (q *clientQueue) DeadLetter(ctx context.Context, burials []driver.Burial) error {
	if err := q.check("dead-letter"); err != nil {
		return err
	}
	_, err := batch(ctx, q, "/v1/bury", "burials", burials, func(b driver.Burial) (any, error) {
		return object{"receipt": sealed(b.Receipt), "reason": b.Reason, "error": driver.TrimCause(b.Error), "error_type": b.ErrorType}, nil
	})
	return err
}

// lookedJSON is a message that was looked at.
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
				ID: l.MessageID, Body: l.Payload, Attributes: l.Attrs, Group: l.Group, ReplyTo: l.ReplyTo, CorrelationID: l.CorrelationID,
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
	request := object{"topic": q.name, "msg_id": query.ID, "older_than_ms": ms(query.OlderThan), "reason": query.Reason, "limit": query.Limit}
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
	}
	_, err := q.client.call(ctx, "/v1/stats", true, object{"topic": q.name}, &s)
	return driver.Stats{Ready: s.Ready, Delayed: s.Delayed, InFlight: s.InFlight, Dead: s.Dead}, err
}
