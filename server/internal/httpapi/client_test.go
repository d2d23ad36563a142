package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// client is a driver.Opener over the HTTP surface, which runs the conformance suite and
// so shows that the surface is complete. Programs use package remotebox.
type client struct {
	http  *http.Client
	base  string
	token capability.Token
	// shut closes the daemon and the backend of the client.
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
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	return json.Number(fmt.Sprintf("%s%d.%06d", sign, d/time.Millisecond, d%time.Millisecond))
}

// duration reads a duration of the wire.
func duration(ms json.Number) time.Duration {
	d, _ := time.ParseDuration(ms.String() + "ms")
	return d
}

// corrKey is the context key of a request's correlation id.
type corrKey struct{}

// wireError is an error in JSON.
type wireError struct {
	Code         string  `json:"code"`
	Kind         string  `json:"kind"`
	Reason       string  `json:"reason"`
	Op           string  `json:"op"`
	Queue        string  `json:"topic"`
	MessageID    string  `json:"msg_id"`
	Field        string  `json:"field"`
	Detail       string  `json:"detail"`
	RetryAfterMS float64 `json:"retry_after_ms"`
	Done         int     `json:"done"`
}

func (e *wireError) driver() error {
	return wireerr.Error{
		Code: e.Code, Kind: e.Kind, Reason: e.Reason, Op: e.Op, Queue: e.Queue, MessageID: e.MessageID,
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

// post sends a request and returns a successful response.
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

// learn creates a queue, by an empty send, and gets its traits.
func (c *client) learn(ctx context.Context, name string) error {
	if _, err := c.call(ctx, "/v1/send/batch", false, object{"topic": name, "messages": []object{}}, new(object)); err != nil {
		return err
	}
	var t struct {
		Ordering, Durability string
		Exact                bool        `json:"exact_stats"`
		Groups               bool        `json:"groups"`
		Strict               bool        `json:"strict_groups"`
		Fair                 bool        `json:"fair_groups"`
		Dead                 bool        `json:"dead_letters"`
		Peek                 bool        `json:"peek"`
		PeekLast             bool        `json:"peek_last"`
		Pause                bool        `json:"pause"`
		Release              bool        `json:"release"`
		DeliverAt            bool        `json:"deliver_at"`
		Edit                 bool        `json:"edit"`
		TTL                  bool        `json:"ttl"`
		Priorities           bool        `json:"priorities"`
		UniqueKeys           bool        `json:"unique_keys"`
		GroupLimits          bool        `json:"group_limits"`
		Window               json.Number `json:"dedup_window_ms"`
		MaxBody              int         `json:"max_body_bytes"`
		MaxAttributes        int         `json:"max_attributes"`
		MaxAttributeBytes    int         `json:"max_attribute_bytes"`
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
		StrictGroups: t.Strict, FairGroups: t.Fair, DeadLetters: t.Dead, Peek: t.Peek, PeekLast: t.PeekLast, Pause: t.Pause, Release: t.Release, DeliverAt: t.DeliverAt, Edit: t.Edit, TTL: t.TTL, Priorities: t.Priorities, UniqueKeys: t.UniqueKeys, GroupLimits: t.GroupLimits, DedupWindow: duration(t.Window),
		MaxBodyBytes: t.MaxBody, MaxAttributes: t.MaxAttributes, MaxAttributeBytes: t.MaxAttributeBytes, MaxBatch: t.MaxBatch, MaxDelay: duration(t.MaxDelay),
		MaxVisibility: duration(t.MaxVisibility), MaxWait: duration(t.MaxWait),
		PurgeCooldown: duration(t.Cooldown),
	}
	return nil
}

type configJSON struct {
	Shards           int          `json:"shards,omitempty"`
	StrictGroups     bool         `json:"strict_groups"`
	FairGroups       bool         `json:"fair_groups"`
	MaxAttempts      *int         `json:"max_attempts,omitempty"`
	MaxMessages      *int         `json:"max_messages,omitempty"`
	MaxBytes         *int         `json:"max_bytes,omitempty"`
	MaxInFlight      *int         `json:"max_in_flight,omitempty"`
	MaxDead          *int         `json:"max_dead,omitempty"`
	DedupWindowMS    *json.Number `json:"dedup_window_ms,omitempty"`
	DedupMax         *int         `json:"dedup_max,omitempty"`
	RetainReadyMS    *json.Number `json:"retain_ready_ms,omitempty"`
	RetainReadyCount *int         `json:"retain_ready_count,omitempty"`
	RetainDeadMS     *json.Number `json:"retain_dead_ms,omitempty"`
	RetainDeadCount  *int         `json:"retain_dead_count,omitempty"`
	MaxHoldMS        *json.Number `json:"max_hold_ms,omitempty"`
	TTLMS            *json.Number `json:"ttl_ms,omitempty"`
	AgingMS          *json.Number `json:"priority_aging_ms,omitempty"`
	GroupLimits      string       `json:"group_limits"`
	DeadLetterTo     string       `json:"dead_letter_to"`
	DropExpired      bool         `json:"drop_expired"`
	Annotation       string       `json:"annotation"`
}

// number returns a setting in JSON: missing if it is unset, and 0 if it is off.
func number(n int) *int {
	if n == 0 {
		return nil
	}
	n = max(n, 0)
	return &n
}

func spanOf(d time.Duration) *json.Number {
	if d == 0 {
		return nil
	}
	text := ms(max(d, 0))
	return &text
}

// known returns a setting from an answer.
func known(n *int) int {
	if n == nil {
		return 0
	}
	if *n == 0 {
		return driver.Off
	}
	return *n
}

func knownSpan(n *json.Number) time.Duration {
	if n == nil {
		return 0
	}
	if d := duration(*n); d != 0 {
		return d
	}
	return driver.Off
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
		config.Shards, config.StrictGroups, config.FairGroups, number(config.MaxDeliveries), number(config.MaxMessages),
		number(config.MaxBytes), number(config.MaxInFlight), number(config.MaxDead), spanOf(config.DedupWindow), number(config.DedupMax),
		spanOf(config.RetainReady.Age), number(config.RetainReady.Count), spanOf(config.RetainDead.Age), number(config.RetainDead.Count),
		spanOf(config.MaxHold), spanOf(config.TTL), spanOf(config.PriorityAging), config.GroupLimits, config.DeadLetterTo, config.DropExpired, config.Annotation,
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
		Shards: g.Shards, StrictGroups: g.StrictGroups, FairGroups: g.FairGroups, MaxDeliveries: known(g.MaxAttempts),
		MaxMessages: known(g.MaxMessages), MaxBytes: known(g.MaxBytes), MaxInFlight: known(g.MaxInFlight), MaxDead: known(g.MaxDead),
		DedupWindow: knownSpan(g.DedupWindowMS), DedupMax: known(g.DedupMax), MaxHold: knownSpan(g.MaxHoldMS), TTL: knownSpan(g.TTLMS), PriorityAging: knownSpan(g.AgingMS), GroupLimits: g.GroupLimits,
		RetainReady:  driver.Retention{Age: knownSpan(g.RetainReadyMS), Count: known(g.RetainReadyCount)},
		RetainDead:   driver.Retention{Age: knownSpan(g.RetainDeadMS), Count: known(g.RetainDeadCount)},
		DeadLetterTo: g.DeadLetterTo, DropExpired: g.DropExpired, Annotation: g.Annotation,
	}, nil
}

func (c *client) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := c.check("list"); err != nil {
			yield("", err)
			return
		}
		for line, err := range lines[struct {
			Queue string `json:"topic"`
		}](ctx, c, "/v1/queues/list", object{}) {
			if !yield(line.Queue, err) {
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
