package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/membox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeQueue is a queue whose answers are written by the test. An answer that is
// missing is the dullest one: sends succeed, receives find nothing. It keeps no
// dead letters and cannot peek.
type fakeQueue struct {
	driver.Unsupported
	traits  driver.Traits
	send    func(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error)
	receive func(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error)
	ack     func(ctx context.Context, receipts []driver.Receipt) error
	nack    func(ctx context.Context, nacks []driver.Nack) error
	extend  func(ctx context.Context, extensions []driver.Extension) error
	granted []time.Duration // what extensions are granted; nil does not say
	closing func() error

	mu    sync.Mutex // guards calls
	calls []string
}

var fakeTraits = driver.Traits{
	Ordering: driver.OrderingFIFO, ExactStats: true, Groups: true,
	DedupWindow: driver.DefaultDedupWindow, MaxBodyBytes: 1000, MaxBatch: 10,
	MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
	MaxDelay: driver.DefaultMaxDelay, MaxVisibility: driver.DefaultMaxVisibility,
}

func newFake() *fakeQueue { return &fakeQueue{traits: fakeTraits} }

func (q *fakeQueue) note(call string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, call)
}

// count returns how many calls there were, of every kind.
func (q *fakeQueue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.calls)
}

func (q *fakeQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	q.note("send")
	if q.send != nil {
		return q.send(ctx, msgs)
	}
	sent := make([]driver.Sent, len(msgs))
	for i := range msgs {
		sent[i].ID = "id of " + string(msgs[i].Body)
	}
	return sent, nil
}

func (q *fakeQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.note("receive")
	if q.receive != nil {
		return q.receive(ctx, req)
	}
	return nil, backoff.Pause(ctx, req.Wait)
}

func (q *fakeQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	q.note("ack")
	if q.ack != nil {
		return q.ack(ctx, receipts)
	}
	return nil
}

func (q *fakeQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	q.note("nack")
	if q.nack != nil {
		return q.nack(ctx, nacks)
	}
	return nil
}

func (q *fakeQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	q.note("extend")
	if q.extend != nil {
		return nil, q.extend(ctx, extensions)
	}
	return q.granted, nil
}

func (q *fakeQueue) Purge(context.Context) (int, error) { q.note("purge"); return 0, nil }

func (q *fakeQueue) Stats(context.Context) (driver.Stats, error) {
	q.note("stats")
	return driver.Stats{}, nil
}

func (q *fakeQueue) Traits() driver.Traits { return q.traits }

func (q *fakeQueue) Close() error {
	q.note("close")
	if q.closing != nil {
		return q.closing()
	}
	return nil
}

// delivery is the first delivery of a message whose id and receipt are id.
func delivery(id, body string) driver.Delivery {
	return driver.Delivery{
		Message: driver.Message{ID: id, Body: []byte(body), Deliveries: 1},
		Receipt: driver.Receipt{Handle: id},
	}
}

// deliver makes a receive answer that hands out each batch once, in order, and
// then finds nothing.
func deliver(batches ...[]driver.Delivery) func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
	var mu sync.Mutex
	return func(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		mu.Lock()
		if len(batches) == 0 {
			mu.Unlock()
			return nil, backoff.Pause(ctx, req.Wait)
		}
		defer mu.Unlock()
		batch := batches[0]
		batches = batches[1:]
		return batch, nil
	}
}

// onMemory opens a mailbox of strings on a memory backend of its own.
func onMemory(t *testing.T, options *mailbox.Options[string]) (*mailbox.Mailbox[string], *membox.Backend) {
	t.Helper()
	backend := membox.New(nil)
	orders, err := mailbox.Open(t.Context(), backend, "orders", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close(); backend.Close() })
	return orders, backend
}

func mustSend[T any](t *testing.T, m *mailbox.Mailbox[T], bodies ...T) {
	t.Helper()
	if _, err := m.SendAll(t.Context(), bodies); err != nil {
		t.Fatal(err)
	}
}

// mustReceive receives exactly n messages at once.
func mustReceive[T any](t *testing.T, m *mailbox.Mailbox[T], n int, options ...mailbox.ReceiveOption) []*mailbox.Message[T] {
	t.Helper()
	messages, err := m.Receive(t.Context(), append([]mailbox.ReceiveOption{mailbox.WithMax(n)}, options...)...)
	if err != nil || len(messages) != n {
		t.Fatalf("received %d messages and error %v, want %d", len(messages), err, n)
	}
	return messages
}

// bodies returns the bodies of messages.
func bodies[T any](messages []*mailbox.Message[T]) []T {
	var all []T
	for _, message := range messages {
		all = append(all, message.Body)
	}
	return all
}

// wantError fails unless err is target, or nil where target is.
func wantError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

// wantField fails unless err is an Error of that code about that field of the
// queue called orders, and says something about it.
func wantField(t *testing.T, err error, code mailbox.Code, field string) {
	t.Helper()
	e, ok := errors.AsType[*mailbox.Error](err)
	if !ok || e.Code != code || e.Field != field || e.Queue != "orders" || e.Op == "" || e.Detail == "" {
		t.Errorf("error is %+v, want %q about field %q of orders", err, code, field)
	}
}

func wantEqual[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// wantSame compares what does not compare, by how it prints.
func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	wantEqual(t, what, fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
}

func wantStats[T any](t *testing.T, m *mailbox.Mailbox[T], want mailbox.Stats) {
	t.Helper()
	got, err := m.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "stats", got, want)
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

var errUnavailable = &driver.Error{Code: driver.ErrUnavailable, Detail: "the cable was cut"}
