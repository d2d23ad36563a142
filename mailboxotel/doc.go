// Package mailboxotel follows messages with OpenTelemetry: spans from send over receive
// to settling, and metrics.
//
// Mailbox itself depends on no telemetry library: it calls hooks. A [Telemetry] fills
// them:
//
//	telemetry, err := mailboxotel.New(ctx, nil)
//	orders, err := mailbox.Open(ctx, backend, "orders", &mailbox.Options[Order]{Trace: telemetry.Trace()})
//	loop := worker.New(orders, handle, &worker.Options[Order]{
//		Hooks:      telemetry.Hooks(),
//		Middleware: []worker.Middleware[Order]{mailboxotel.Middleware(telemetry, orders)},
//	})
//
// This package uses the API of OpenTelemetry only. Which SDK there is, and where the
// data goes, is the program's business.
//
// # Spans
//
// A send is a span, and its context travels with the message in the attributes
// traceparent and tracestate, or whatever else the propagator uses. Who receives the
// message, in whatever process, makes spans in the same trace: one for the delivery, one
// for the handler with [Middleware], and one for each reply and for settling:
//
//	send orders             who sent it
//	├─ receive orders       one for each delivery
//	├─ process orders       the handler, and below it whatever it does
//	├─ reply orders
//	└─ ack orders           or nack, release, dead-letter
//
// Names of spans and their attributes follow the semantic conventions for messaging.
// A message that is sent without a context begins a trace when it is received. A dead
// letter keeps its attributes, so a message that is redriven goes on in the trace it
// died in.
//
// # Metrics
//
// They are those of package mailboxprom, with names as OpenTelemetry writes them:
// mailbox.enqueue_latency, in seconds, is what mailboxprom calls
// mailbox_enqueue_latency_seconds. An exporter to Prometheus turns the one into the
// other, so that the dashboard and the alerts in the folder deploy fit both. The number
// of names of queues is bounded as it is there.
package mailboxotel
