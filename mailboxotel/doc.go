// Package mailboxotel instruments Mailbox with OpenTelemetry: spans from send through
// receive to settling, and metrics.
//
// Mailbox itself depends on no telemetry library: it calls hooks. [Telemetry] provides
// them:
//
//	telemetry, err := mailboxotel.New(nil)
//	orders, err := mailbox.Open(ctx, backend, "orders", &mailbox.Options[Order]{Hooks: telemetry.MailboxHooks()})
//	loop := worker.New(orders, handle, &worker.Options[Order]{
//		Hooks:      telemetry.WorkerHooks(),
//		Middleware: []worker.Middleware[Order]{mailboxotel.Middleware(telemetry, orders)},
//	})
//
// This package uses the OpenTelemetry API only. The program chooses the SDK and where the
// data goes.
//
// # Spans
//
// A send is a span, and its context travels with the message in the attributes
// traceparent and tracestate, or those of another propagator. The receiver, in any
// process, adds spans to the same trace: one for the delivery, one for the handler with
// [Middleware], and one for each reply and for settling:
//
//	send orders             the sender
//	├─ receive orders       one for each delivery
//	├─ process orders       the handler, with the spans it makes below it
//	├─ reply orders
//	└─ ack orders           or nack, release, dead-letter
//
// Names of spans and their attributes follow the semantic conventions for messaging.
// A message that is sent without a context begins a trace when it is received. A dead
// letter keeps its attributes, so a redriven message continues the trace in which it was
// dead-lettered.
//
// # Metrics
//
// The metrics are those of package mailboxprom under OpenTelemetry names:
// mailbox.enqueue_latency, in seconds, is mailbox_enqueue_latency_seconds there. An
// exporter to Prometheus translates the names, so the dashboard and the alerts in the
// folder deploy fit both. The number of queue names is bounded in the same way.
package mailboxotel
