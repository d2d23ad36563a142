package mailboxotel_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mailboxotel"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// The spans of a message from send to ack. Programs export spans to a backend; this one
// keeps them in memory.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	telemetry, err := mailboxotel.New(&mailboxotel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	orders, err := mailbox.Open(ctx, membox.New(nil), "orders", &mailbox.Options[string]{Hooks: telemetry.MailboxHooks()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	_, _ = orders.Send(ctx, "tea")
	_, _ = worker.New(orders, func(context.Context, *mailbox.Message[string]) error { return nil }, &worker.Options[string]{
		Middleware: []worker.Middleware[string]{mailboxotel.Middleware(telemetry, orders)},
	}).RunOnce(ctx)

	first := spans.GetSpans()[0].SpanContext.TraceID()
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.SpanContext.TraceID() == first)
	}
	// Output:
	// send orders true
	// receive orders true
	// process orders true
	// ack orders true
}
