package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxprom"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server"
	"github.com/mailboxmq/mailbox/worker"
)

var errBroken = errors.New("broken")

// A workshop is a program that uses the daemon through the library, measured by
// mailboxprom.
type workshop struct {
	t        *testing.T
	faults   *mailboxtest.Faults
	metrics  *mailboxprom.Metrics
	endpoint *httptest.Server
	replies  driver.ReplyStore

	orders, full, leases, work, letters, requests *mailbox.Mailbox[string]
}

func startWorkshop(t *testing.T, d *daemon) *workshop {
	t.Helper()
	remote, err := remotebox.Open(t.Context(), []string{d.Address(server.OAP)}, d.OperatorToken().Reveal(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close() })
	w := &workshop{t: t, faults: mailboxtest.NewFaults(remote), replies: reply.NewMemory(nil)}
	queues := prometheus.NewRegistry()
	w.metrics, err = mailboxprom.New(queues, nil)
	w.must(err)
	w.endpoint = httptest.NewServer(promhttp.HandlerFor(queues, promhttp.HandlerOpts{}))
	t.Cleanup(w.endpoint.Close)
	for name, place := range map[string]**mailbox.Mailbox[string]{
		"orders": &w.orders, "full": &w.full, "leases": &w.leases, "work": &w.work, "letters": &w.letters, "requests": &w.requests,
	} {
		*place, err = mailbox.Open(t.Context(), w.faults, name, &mailbox.Options[string]{Hooks: w.metrics.MailboxHooks(), Replies: w.replies})
		w.must(err)
		t.Cleanup(func() { _ = (*place).Close() })
	}
	w.metrics.Watch(t.Context(), w.orders, &mailboxprom.WatchOptions{Capacity: 1000})
	w.reports()
	return w
}

// reports runs a handler that has reported its progress, until the test ends.
func (w *workshop) reports() {
	long, err := mailbox.Open(w.t.Context(), w.faults, "long", &mailbox.Options[string]{Hooks: w.metrics.MailboxHooks()})
	w.must(err)
	_, err = long.Send(w.t.Context(), "report")
	w.must(err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = worker.New(long, func(ctx context.Context, _ *mailbox.Message[string]) error {
			worker.SetProgress(ctx, 0.5, "half")
			<-ctx.Done()
			return ctx.Err()
		}, &worker.Options[string]{Name: "long", Hooks: w.metrics.WorkerHooks()}).RunOnce(ctx)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
		_ = long.Close()
	})
}

func (w *workshop) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *workshop) expect(err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Fatalf("got %v, want %v", err, want)
	}
}

// round does everything that is measured once.
func (w *workshop) round(i int) {
	w.lives(i)
	w.losesLease()
	w.answers()
	w.handles()
	w.consumesLetters()
	queues := registry.New(&registry.Options{Fallback: w.faults, Hooks: w.metrics.RegistryHooks()})
	for range 2 {
		queue, err := queues.Resolve(w.t.Context(), "orders")
		w.must(err)
		w.must(queue.Close())
	}
	queues.Close()
}

// lives sends, receives and settles in all ways.
func (w *workshop) lives(i int) {
	ctx, key := w.t.Context(), mailbox.WithDedupKey(fmt.Sprint(i))
	_, err := w.orders.Send(ctx, "tea", key)
	w.must(err)
	_, err = w.orders.Send(ctx, "tea", key)
	w.must(err)
	_, err = w.orders.Send(ctx, "pie", key)
	w.expect(err, mailbox.ErrConflict)
	_, err = w.full.Send(ctx, "tea")
	w.expect(err, mailbox.ErrFull)
	_, err = w.orders.SendAll(ctx, []string{"a", "b", "c", "d"})
	w.must(err)
	_, err = w.orders.Queue().Send(ctx, []driver.Outgoing{{Body: []byte("{not json")}})
	w.must(err)
	got, err := w.orders.Receive(ctx, mailbox.WithMax(10), mailbox.WithVisibility(10*time.Minute))
	w.must(err)
	if len(got) < 5 {
		w.t.Fatalf("received %d messages", len(got))
	}
	w.must(got[0].Nack(ctx, 0, errBroken))
	w.must(got[1].DeadLetter(ctx, mailbox.ReasonFatal, errBroken))
	w.must(got[2].Extend(ctx, 10*time.Minute))
	for _, m := range got[2:] {
		w.must(m.Ack(ctx))
	}
	again, err := w.orders.Receive(ctx, mailbox.WithVisibility(10*time.Minute))
	w.must(err)
	for _, m := range again {
		w.must(m.Ack(ctx))
	}
	_, err = w.orders.Send(ctx, "stays")
	w.must(err)
}

// losesLease settles a delivery whose lease is over: its message was delivered again.
func (w *workshop) losesLease() {
	ctx := w.t.Context()
	_, err := w.leases.Send(ctx, "tea")
	w.must(err)
	first, err := w.leases.Receive(ctx, mailbox.WithVisibility(250*time.Millisecond))
	w.must(err)
	second, err := w.leases.Receive(ctx, mailbox.WithWait(10*time.Second))
	w.must(err)
	w.expect(first[0].Ack(ctx), mailbox.ErrReceiptExpired)
	w.must(second[0].Ack(ctx))
}

func (w *workshop) answers() {
	ctx := w.t.Context()
	_, err := reply.NewClient[string, string](w.requests, w.replies, nil).Send(ctx, "tea")
	w.must(err)
	got, err := w.requests.Receive(ctx)
	w.must(err)
	w.must(mailbox.NewReplyChannel[string](got[0], nil).Send(ctx, "TEA"))
	w.must(got[0].Ack(ctx))
}

// handles runs a loop whose handlers work, fail and panic, and one whose backend fails.
func (w *workshop) handles() {
	ctx := w.t.Context()
	bodies := []string{"ok", "error", "panic"}
	_, err := w.work.SendAll(ctx, bodies)
	w.must(err)
	loop := worker.New(w.work, func(_ context.Context, m *mailbox.Message[string]) error {
		switch m.Body {
		case "panic":
			panic("broken")
		case "error":
			return errBroken
		}
		return nil
	}, &worker.Options[string]{Name: "work", Hooks: w.metrics.WorkerHooks()})
	for range bodies {
		_, err = loop.RunOnce(ctx)
		w.must(err)
	}
	w.metrics.Stuck(worker.StuckEvent{Member: "work"})
	remove := w.faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable})
	defer remove()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	w.must(loop.Run(short))
}

func (w *workshop) consumesLetters() {
	ctx := w.t.Context()
	box := deadletter.NewQueue(w.letters, nil)
	_, err := w.letters.Send(ctx, "tea")
	w.must(err)
	got, err := w.letters.Receive(ctx)
	w.must(err)
	for _, m := range got {
		_, err = box.DeadLetter(ctx, m, mailbox.ReasonFatal, errBroken)
		w.must(err)
	}
	hooks := w.metrics.DeadLetterHooks()
	hooks.Duplicate("letters", "7")
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	w.must(deadletter.NewConsumer(box, func(context.Context, deadletter.Message[string]) (deadletter.Action, error) {
		return deadletter.Redrive, nil
	}, &deadletter.ConsumerOptions{Name: "letters", Hooks: hooks}).Run(short))
}
