package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/dispatch"
	"github.com/mailboxmq/mailbox/membox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type brewed struct{ Drink string }

type served struct{ Table int }

// note returns a subscriber that writes to log.
func note[E any](log *[]string, name string) func(context.Context, E) error {
	return func(_ context.Context, event E) error {
		*log = append(*log, fmt.Sprint(name, " ", event))
		return nil
	}
}

func expectLog(t *testing.T, log *[]string, want ...string) {
	t.Helper()
	if !slices.Equal(*log, want) {
		t.Errorf("log is %q, want %q", *log, want)
	}
	*log = nil
}

func expectError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func TestLOOP7EventsReachSubscribersOfTheirTypeInOrder(t *testing.T) {
	var log []string
	d := dispatch.New(nil)
	expectError(t, dispatch.Publish(t.Context(), d, brewed{"no subscriber"}), nil)
	first := dispatch.Subscribe(d, note[brewed](&log, "first"))
	all := dispatch.SubscribeAll(d, note[any](&log, "all"))
	dispatch.Subscribe(d, note[brewed](&log, "second"))
	dispatch.Subscribe(d, note[served](&log, "served"))

	expectError(t, dispatch.Publish(t.Context(), d, brewed{"tea"}), nil)
	expectLog(t, &log, "first {tea}", "all {tea}", "second {tea}")
	expectError(t, dispatch.Publish(t.Context(), d, served{4}), nil)
	expectLog(t, &log, "all {4}", "served {4}")
	expectError(t, dispatch.Publish(t.Context(), d, 42), nil)
	expectLog(t, &log, "all 42")

	first()
	first() // again is fine
	all()
	expectError(t, dispatch.Publish(t.Context(), d, brewed{"tea"}), nil)
	expectLog(t, &log, "second {tea}")
}

func TestZeroDispatcherIsReady(t *testing.T) {
	var log []string
	var d dispatch.Dispatcher
	dispatch.Subscribe(&d, note[brewed](&log, "x"))
	expectError(t, dispatch.Publish(t.Context(), &d, brewed{"tea"}), nil)
	expectLog(t, &log, "x {tea}")
}

func TestLOOP7FailedSubscriberDoesNotStopOthers(t *testing.T) {
	var log []string
	var failures []error
	d := dispatch.New(&dispatch.Options{Failed: func(_ context.Context, event any, err error) {
		failures = append(failures, fmt.Errorf("%v: %w", event, err))
	}})
	dispatch.Subscribe(d, func(context.Context, brewed) error { return io.EOF })
	dispatch.Subscribe(d, func(context.Context, brewed) error { panic("spilled") })
	dispatch.Subscribe(d, note[brewed](&log, "last"))
	err := dispatch.Publish(t.Context(), d, brewed{"tea"})
	expectLog(t, &log, "last {tea}")
	expectError(t, err, io.EOF)
	if failure, ok := errors.AsType[*dispatch.PanicError](err); !ok || failure.Value != "spilled" || len(failure.Stack) == 0 {
		t.Errorf("error is %v", err)
	}
	if len(failures) != 2 || !errors.Is(failures[0], io.EOF) {
		t.Errorf("failures are %v", failures)
	}
}

func TestSubscribersMayPublishAndSubscribe(t *testing.T) {
	var log []string
	d := dispatch.New(nil)
	var unsubscribe func()
	unsubscribe = dispatch.Subscribe(d, func(ctx context.Context, event brewed) error {
		unsubscribe()
		dispatch.Subscribe(d, note[brewed](&log, "later"))
		return dispatch.Publish(ctx, d, served{7})
	})
	dispatch.Subscribe(d, note[served](&log, "served"))
	expectError(t, dispatch.Publish(t.Context(), d, brewed{"tea"}), nil)
	expectLog(t, &log, "served {7}")
	expectError(t, dispatch.Publish(t.Context(), d, brewed{"more tea"}), nil)
	expectLog(t, &log, "later {more tea}")
}

func TestEventsCanBeInterfaces(t *testing.T) {
	d := dispatch.New(nil)
	var got []error
	dispatch.Subscribe(d, func(_ context.Context, event error) error { got = append(got, event); return nil })
	expectError(t, dispatch.Publish[error](t.Context(), d, io.EOF), nil)
	expectError(t, dispatch.Publish[error](t.Context(), d, nil), nil)
	if len(got) != 2 || !errors.Is(got[0], io.EOF) || got[1] != nil {
		t.Errorf("got %v", got)
	}
}

func TestDispatcherIsSafeForConcurrentUse(t *testing.T) {
	d := dispatch.New(nil)
	var told atomic.Int64
	var group sync.WaitGroup
	steady := dispatch.Subscribe(d, func(context.Context, brewed) error { told.Add(1); return nil })
	for range 8 {
		group.Go(func() {
			for range 200 {
				unsubscribe := dispatch.Subscribe(d, func(context.Context, brewed) error { return nil })
				_ = dispatch.Publish(t.Context(), d, brewed{})
				unsubscribe()
			}
		})
	}
	group.Wait()
	steady()
	if told.Load() != 8*200 {
		t.Errorf("told %d times, want %d", told.Load(), 8*200)
	}
}

// TestLOOP7DispatcherDiffersFromMailbox shows the table of the package comment, row by row.
func TestLOOP7DispatcherDiffersFromMailbox(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	d := dispatch.New(nil)
	open := func() *mailbox.Mailbox[brewed] {
		m, err := mailbox.Open[brewed](t.Context(), backend, "drinks", nil)
		expectError(t, err, nil)
		return m
	}
	sender, one, other := open(), open(), open()

	var early, second, late []string
	dispatch.Subscribe(d, note[brewed](&early, ""))
	dispatch.Subscribe(d, note[brewed](&second, ""))
	expectError(t, dispatch.Publish(t.Context(), d, brewed{"tea"}), nil)
	dispatch.Subscribe(d, note[brewed](&late, ""))
	if _, err := sender.Send(t.Context(), brewed{"tea"}); err != nil {
		t.Fatal(err)
	}

	// Delivery: the event reached all subscribers before Publish returned; a
	// message reaches one receiver.
	if len(early) != 1 || len(second) != 1 {
		t.Errorf("subscribers got %d and %d events", len(early), len(second))
	}
	got, err := one.Receive(t.Context())
	expectError(t, err, nil)
	none, err := other.Receive(t.Context())
	expectError(t, err, nil)
	if len(got) != 1 || len(none) != 0 {
		t.Errorf("receivers got %d and %d messages", len(got), len(none))
	}
	// Durability: a late subscriber gets nothing; a late receiver gets the
	// message, because it has not been acked.
	if len(late) != 0 {
		t.Errorf("a late subscriber got %q", late)
	}
	expectError(t, got[0].Release(t.Context()), nil)
	again, err := other.Receive(t.Context())
	expectError(t, err, nil)
	if len(again) != 1 || again[0].Deliveries != 1 {
		t.Errorf("the message did not come back: %v", again)
	}
	expectError(t, again[0].Ack(t.Context()), nil)
}
