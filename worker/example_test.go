package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// Order is the message type of the examples.
type Order struct{ Item string }

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if _, err := orders.SendAll(ctx, []Order{{"tea"}, {"coffee"}}); err != nil {
		fmt.Println(err)
		return
	}

	loop := worker.New(orders, func(_ context.Context, order *mailbox.Message[Order]) error {
		fmt.Println("brewing", order.Body.Item)
		if order.Body.Item == "coffee" {
			stop() // as a signal would; see Group
		}
		return nil
	}, nil)
	if err := loop.Run(ctx); err != nil {
		fmt.Println(err)
	}
	stats, err := orders.Stats(context.Background())
	fmt.Println(stats.Waiting(), "left", err)
	// Output:
	// brewing tea
	// brewing coffee
	// 0 left <nil>
}

// The result of a handler decides how the message is settled.
func ExampleNew_outcomes() {
	ctx := context.Background()
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	for _, item := range []string{"tea", "cocoa", "whisky", "mud", "water"} {
		if _, err := orders.Send(ctx, Order{item}); err != nil {
			fmt.Println(err)
			return
		}
	}
	loop := worker.New(orders, func(_ context.Context, order *mailbox.Message[Order]) error {
		switch order.Body.Item {
		case "cocoa":
			return errors.New("no milk") // retried in a minute
		case "whisky":
			return worker.RetryAfter(time.Hour, errors.New("too early"))
		case "mud":
			return worker.Permanent(errors.New("not a drink")) // dead-lettered
		case "water":
			return worker.Discard(errors.New("help yourself")) // acked
		}
		return nil // acked
	}, &worker.Options[Order]{Concurrency: 5})
	handled, err := loop.RunOnce(ctx)
	if err != nil {
		fmt.Println(err)
	}
	stats, err := orders.Stats(ctx)
	fmt.Println(handled, "handled,", stats.Delayed, "come back,", stats.Dead, "dead", err)
	// Output: 5 handled, 2 come back, 1 dead <nil>
}

// Serve makes a handler from a function that returns the answer to a request.
func ExampleServe() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := reply.NewMemory(nil)
	questions, err := mailbox.Open(ctx, membox.New(nil), "questions", &mailbox.Options[string]{Replies: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer questions.Close()
	loop := worker.New(questions, worker.Serve(func(_ context.Context, question *mailbox.Message[string]) (string, error) {
		return strings.ToUpper(question.Body), nil
	}, nil), &worker.Options[string]{Concurrency: 4})
	ended := make(chan error)
	go func() { ended <- loop.Run(ctx) }()

	client := reply.NewClient[string, string](questions, store, nil)
	answer, err := client.Call(ctx, "tea?")
	fmt.Println(answer, err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// TEA? <nil>
	// <nil>
}

// A mux has a handler, a type and a codec for each kind of message.
func ExampleMux() {
	ctx, backend := context.Background(), membox.New(nil)
	mux, err := worker.NewMux(nil,
		worker.Kind("order", nil, func(_ context.Context, order *mailbox.Message[Order]) error {
			fmt.Println("brewing", order.Body.Item)
			return nil
		}),
		worker.Kind("note", mailbox.String(), func(_ context.Context, note *mailbox.Message[string]) error {
			fmt.Println("noted:", note.Body)
			return nil
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs, err := mailbox.Open(ctx, backend, "jobs", mux.Options(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer jobs.Close()

	// Senders have a mailbox of the type that they send.
	orders, _ := mailbox.Open[Order](ctx, backend, "jobs", nil)
	defer orders.Close()
	notes, _ := mailbox.Open(ctx, backend, "jobs", &mailbox.Options[string]{Codec: mailbox.String()})
	defer notes.Close()
	_, err1 := orders.Send(ctx, Order{"tea"}, mailbox.WithKind("order"))
	_, err2 := notes.Send(ctx, "no milk left", mailbox.WithKind("note"))
	_, err3 := notes.Send(ctx, "?", mailbox.WithKind("riddle"))

	_, err4 := worker.New(jobs, mux.Handle, &worker.Options[worker.Work]{Prefetch: 2}).RunOnce(ctx)
	stats, err5 := jobs.Stats(ctx)
	fmt.Println(stats.Dead, "of an unknown kind", errors.Join(err1, err2, err3, err4, err5))
	// Output:
	// brewing tea
	// noted: no milk left
	// 1 of an unknown kind <nil>
}

// A batch handler gets several messages, and each is settled on its own.
func ExampleNewBatch() {
	ctx := context.Background()
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if _, err := orders.SendAll(ctx, []Order{{"tea"}, {"mud"}, {"coffee"}}); err != nil {
		fmt.Println(err)
		return
	}
	loop := worker.NewBatch(orders, func(_ context.Context, batch []*mailbox.Message[Order]) error {
		fmt.Println("brewing", len(batch), "drinks")
		errs := make([]error, len(batch))
		for i, order := range batch {
			if order.Body.Item == "mud" {
				errs[i] = worker.Permanent(errors.New("not a drink"))
			}
		}
		return &mailbox.BatchError{Errs: errs}
	}, &worker.BatchOptions[Order]{Size: 50, Fill: time.Second})
	if _, err := loop.RunOnce(ctx); err != nil {
		fmt.Println(err)
	}
	stats, err := orders.Stats(ctx)
	fmt.Println(stats.Waiting(), "left,", stats.Dead, "dead", err)
	// Output:
	// brewing 3 drinks
	// 0 left, 1 dead <nil>
}

// A handler lets the group of a message wait when the server it calls asks for that.
func ExampleThrottle() {
	ctx := context.Background()
	backend := membox.New(nil)
	if err := backend.ConfigureQueue(ctx, "orders", driver.Config{FairGroups: true}); err != nil {
		fmt.Println(err)
		return
	}
	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	for _, bar := range []string{"north", "north", "south"} {
		if _, err := orders.Send(ctx, Order{"tea"}, mailbox.WithGroup(bar)); err != nil {
			fmt.Println(err)
			return
		}
	}
	loop := worker.New(orders, func(_ context.Context, order *mailbox.Message[Order]) error {
		if order.Group == "north" {
			return worker.Throttle(time.Minute, errors.New("the bar is busy")) // as its Retry-After says
		}
		return nil
	}, &worker.Options[Order]{Concurrency: 3})
	if _, err := loop.RunOnce(ctx); err != nil {
		fmt.Println(err)
	}
	stats, err := orders.Stats(ctx)
	fmt.Println(stats.Ready, "ready,", stats.Throttled, "throttled", err)
	// Output: 2 ready, 2 throttled <nil>
}

// A long handler tells how far it has come.
func ExampleSetProgress() {
	ctx := context.Background()
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, Order{"a banquet"}); err != nil {
		fmt.Println(err)
		return
	}
	loop := worker.New(orders, func(ctx context.Context, _ *mailbox.Message[Order]) error {
		for i, course := range []string{"soup", "roast"} {
			worker.SetProgress(ctx, float64(i)/2, "cooking the "+course)
		}
		return nil
	}, &worker.Options[Order]{Hooks: worker.Hooks{
		Progress: func(_ context.Context, event worker.ProgressEvent) {
			fmt.Printf("%.0f%% %s\n", 100*event.Progress.Fraction, event.Progress.Text)
		},
	}})
	if _, err := loop.RunOnce(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0% cooking the soup
	// 50% cooking the roast
}

// A group runs loops and consumers of dead letters until a signal.
func ExampleGroup() {
	ctx := context.Background()
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	policy := &deadletter.Policy[Order]{
		MaxDeliveries: 3,
		Never:         []deadletter.Matcher{deadletter.Is(mailbox.ErrUnavailable)},
	}
	var group *worker.Group
	loop := worker.New(orders, func(context.Context, *mailbox.Message[Order]) error {
		return errors.New("no milk")
	}, &worker.Options[Order]{DeadLetters: policy, Backoff: worker.NoBackoff})
	consumer := deadletter.NewConsumer(policy.Queue(orders), func(_ context.Context, letter deadletter.Message[Order]) (deadletter.Action, error) {
		fmt.Printf("%s failed %d times: %s\n", letter.Body.Item, letter.Deliveries, letter.LastError)
		group.Stop()
		return deadletter.Drop, nil
	}, &deadletter.ConsumerOptions{Poll: 10 * time.Millisecond})
	group = worker.NewGroup(&worker.GroupOptions{HealthAddr: "127.0.0.1:0"}, loop, consumer)

	if _, err := orders.Send(ctx, Order{"cocoa"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(group.Run(ctx))
	// Output:
	// cocoa failed 3 times: no milk
	// <nil>
}

// Middleware wraps handlers; hooks are for metrics.
func ExampleOptions() {
	ctx := context.Background()
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, Order{"tea"}); err != nil {
		fmt.Println(err)
		return
	}
	loop := worker.New(orders, func(context.Context, *mailbox.Message[Order]) error { return nil }, &worker.Options[Order]{
		Concurrency: 8,
		Prefetch:    32,
		Timeout:     time.Minute,
		Middleware: []worker.Middleware[Order]{
			worker.Logging[Order](slog.New(slog.DiscardHandler)),
			worker.RateLimit[Order](worker.NewLimiter(100, time.Second, 10)),
		},
		Hooks: worker.Hooks{
			Settled: func(_ context.Context, event worker.SettledEvent) { fmt.Println(event.Queue, event.Result) },
		},
	})
	if _, err := loop.RunOnce(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: orders acked
}

// This is the code of docs/workers.md.
func Example_page() { //nolint:ineffassign,staticcheck // the page leaves out what to do with errors
	ctx, backend := context.Background(), membox.New(nil)
	sendEmail := func(context.Context, *mailbox.Message[string]) error { return nil }
	makeThumbnail := func(context.Context, *mailbox.Message[[]byte]) error { return nil }
	quote := func(context.Context, *mailbox.Message[Order]) (int, error) { return 1, nil }

	mux, err := worker.NewMux(nil,
		worker.Kind("email", nil, sendEmail), // func(context.Context, *mailbox.Message[Email]) error; JSON
		worker.Kind("thumbnail", mailbox.Bytes(), makeThumbnail),
		worker.Kind("quote", nil, worker.Serve(quote, nil)))
	jobs, err := mailbox.Open(ctx, backend, "jobs", mux.Options(nil))
	loop := worker.New(jobs, mux.Handle, &worker.Options[worker.Work]{Concurrency: 8})
	if err != nil {
		return
	}
	_, _ = loop.RunOnce(ctx)
}

// This is the code of docs/workers.md for batches.
func Example_pageBatch() {
	insert := func(_ context.Context, batch []*mailbox.Message[Order]) []error { return make([]error, len(batch)) }
	orders, err := mailbox.Open[Order](context.Background(), membox.New(nil), "orders", nil)
	if err != nil {
		return
	}

	loop := worker.NewBatch(orders, func(ctx context.Context, batch []*mailbox.Message[Order]) error {
		errs := insert(ctx, batch) // an error or nil for each
		return &mailbox.BatchError{Errs: errs}
	}, &worker.BatchOptions[Order]{Size: 500, Fill: time.Second})
	_, _ = loop.RunOnce(context.Background())
}
