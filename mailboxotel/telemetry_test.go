package mailboxotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/telemetry"
	"github.com/mailboxmq/mailbox/mailboxotel"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

var errMilk = errors.New("no milk")

// An env is an SDK whose spans and metrics can be read, and a backend that can fail.
type env struct {
	*testing.T
	spans     *tracetest.SpanRecorder
	tracer    trace.Tracer
	reader    *metric.ManualReader
	telemetry *mailboxotel.Telemetry
	faults    *mailboxtest.Faults
	replies   driver.ReplyStore
}

func newEnv(t *testing.T, options mailboxotel.Options) *env {
	t.Helper()
	s := &env{
		T: t, spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader(),
		faults: mailboxtest.NewFaults(nil), replies: reply.NewMemory(nil),
	}
	t.Cleanup(func() { _ = s.faults.Close() })
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.tracer = tracers.Tracer("test")
	options.TracerProvider, options.MeterProvider = tracers, metric.NewMeterProvider(metric.WithReader(s.reader))
	var err error
	s.telemetry, err = mailboxotel.New(&options)
	s.must(err)
	return s
}

func (s *env) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *env) open(name string) *mailbox.Mailbox[string] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.faults, name, &mailbox.Options[string]{Hooks: s.telemetry.MailboxHooks(), Replies: s.replies})
	s.must(err)
	s.Cleanup(func() { _ = m.Close() })
	return m
}

// span returns the n-th span of this name.
func (s *env) span(name string, n int) sdktrace.ReadOnlySpan {
	s.Helper()
	var names []string
	for _, span := range s.spans.Ended() {
		names = append(names, span.Name())
		if span.Name() == name {
			if n == 0 {
				return span
			}
			n--
		}
	}
	s.Fatalf("no span %q, only %q", name, names)
	return nil
}

// expectBelow checks that parent is the parent of child.
func (s *env) expectBelow(parent, child sdktrace.ReadOnlySpan) {
	s.Helper()
	if child.Parent().SpanID() != parent.SpanContext().SpanID() || child.SpanContext().TraceID() != parent.SpanContext().TraceID() {
		s.Errorf("%q is not below %q", child.Name(), parent.Name())
	}
}

// expect checks an attribute of a span.
func (s *env) expect(span sdktrace.ReadOnlySpan, key string, want any) {
	s.Helper()
	for _, pair := range span.Attributes() {
		if string(pair.Key) == key {
			if got := pair.Value.AsInterface(); got != want {
				s.Errorf("%s of %q is %v, want %v", key, span.Name(), got, want)
			}
			return
		}
	}
	s.Errorf("%q has no %s", span.Name(), key)
}

func TestSpansLeadFromSendToSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{})
		requests := s.open("requests")
		ctx, asking := s.tracer.Start(s.Context(), "asking")
		future, err := reply.NewClient[string, string](requests, s.replies, nil).Send(ctx, "tea", mailbox.WithCorrelationID("c-7"))
		s.must(err)
		asking.End()
		time.Sleep(time.Minute)
		_, err = worker.New(requests, worker.Serve(func(ctx context.Context, m *mailbox.Message[string]) (string, error) {
			_, brewing := s.tracer.Start(ctx, "brewing")
			time.Sleep(time.Second)
			brewing.End()
			return strings.ToUpper(m.Body), nil
		}, nil), &worker.Options[string]{
			Middleware: []worker.Middleware[string]{mailboxotel.Middleware(s.telemetry, requests)},
		}).RunOnce(s.Context())
		s.must(err)
		answer, err := future.Wait(s.Context())
		if err != nil || answer != "TEA" {
			t.Fatal(answer, err)
		}

		send, process := s.span("send requests", 0), s.span("process requests", 0)
		s.expectBelow(s.span("asking", 0), send)
		s.expectBelow(send, s.span("receive requests", 0))
		s.expectBelow(send, process)
		s.expectBelow(process, s.span("brewing", 0))
		for _, name := range []string{"reply requests", "ack requests"} {
			if span := s.span(name, 0); span.SpanContext().TraceID() != send.SpanContext().TraceID() {
				t.Errorf("%q is in another trace", name)
			}
		}
		id := s.value(send, "messaging.message.id")
		for _, span := range []sdktrace.ReadOnlySpan{process, s.span("receive requests", 0), s.span("ack requests", 0)} {
			s.expect(span, "messaging.message.id", id)
			s.expect(span, "messaging.system", "mailbox")
			s.expect(span, "messaging.destination.name", "requests")
			s.expect(span, "mailbox.deliveries", int64(1))
		}
		for _, span := range []sdktrace.ReadOnlySpan{send, process, s.span("receive requests", 0)} {
			s.expect(span, "messaging.message.conversation_id", "c-7")
		}
		s.expect(s.span("ack requests", 0), "messaging.operation.type", "settle")
		if send.SpanKind() != trace.SpanKindProducer || process.SpanKind() != trace.SpanKindConsumer || process.EndTime().Sub(process.StartTime()) != time.Second {
			t.Errorf("sending is a %v, handling a %v of %v", send.SpanKind(), process.SpanKind(), process.EndTime().Sub(process.StartTime()))
		}
	})
}

// value returns an attribute of a span.
func (s *env) value(span sdktrace.ReadOnlySpan, key string) any {
	for _, pair := range span.Attributes() {
		if string(pair.Key) == key {
			return pair.Value.AsInterface()
		}
	}
	return nil
}

func TestFailuresAreInTheSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{})
		orders := s.open("orders")
		_, err := orders.Send(s.Context(), "tea")
		s.must(err)
		_, err = worker.New(orders, func(context.Context, *mailbox.Message[string]) error { panic(errMilk) }, &worker.Options[string]{
			Middleware: []worker.Middleware[string]{mailboxotel.Middleware(s.telemetry, orders)}, Backoff: worker.NoBackoff,
		}).RunOnce(s.Context())
		s.must(err)
		if process := s.span("process orders", 0); process.Status().Code != codes.Error || !strings.Contains(process.Status().Description, "no milk") {
			t.Errorf("the status is %+v", process.Status())
		}
		got, err := orders.Receive(s.Context())
		s.must(err)
		s.must(got[0].DeadLetter(s.Context(), mailbox.ReasonFatal, errMilk))
		s.expectBelow(s.span("send orders", 0), s.span("receive orders", 1))
		s.expectBelow(s.span("send orders", 0), s.span("dead-letter orders", 0))
		s.expect(s.span("dead-letter orders", 0), "mailbox.dead.reason", "fatal")
		s.expect(s.span("receive orders", 1), "mailbox.deliveries", int64(2))

		s.faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrUnavailable})
		if _, err = orders.SendAll(s.Context(), []string{"a", "b"}); err == nil {
			t.Fatal("the fault did not hit")
		}
		failed := s.span("send orders", 1)
		s.expect(failed, "messaging.batch.message_count", int64(2))
		s.expect(failed, "error.type", string(mailbox.ErrUnavailable))
	})
}

func TestMessagesWithoutAContextBeginATrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{})
		orders := s.open("orders")
		_, err := orders.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte(`"tea"`)}, {Body: []byte("{not json")}})
		s.must(err)
		polling, span := s.tracer.Start(s.Context(), "polling")
		got, err := orders.Receive(polling, mailbox.WithMax(2))
		s.must(err)
		span.End()
		s.must(got[0].Ack(s.Context()))
		received := s.span("receive orders", 0)
		if received.Parent().IsValid() || len(received.Links()) != 1 || received.Links()[0].SpanContext.SpanID() != span.SpanContext().SpanID() {
			t.Errorf("the parent is %v, the links are %v", received.Parent(), received.Links())
		}
		s.expectBelow(received, s.span("ack orders", 0))
		if s.span("decode orders", 0).Status().Code != codes.Error {
			t.Error("an undecodable body is not an error")
		}
	})
}

func TestDeliveriesThatAreNeverSettledAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{MaxHeld: 3})
		orders := s.open("orders")
		for range 5 {
			_, err := orders.Send(s.Context(), "tea")
			s.must(err)
		}
		got, err := orders.Receive(s.Context(), mailbox.WithMax(5))
		s.must(err)
		for _, m := range got {
			s.must(m.Ack(s.Context()))
		}
		for i := range 5 {
			known := s.span("ack orders", i).SpanContext().TraceID() == s.span("send orders", i).SpanContext().TraceID()
			if known != (i >= 2) {
				t.Errorf("message %d is known: %v", i, known)
			}
		}
	})
}

// collected returns the metrics by name.
func (s *env) collected() map[string]metricdata.Metrics {
	s.Helper()
	var all metricdata.ResourceMetrics
	s.must(s.reader.Collect(s.Context(), &all))
	byName := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// figure returns the value of a metric with these labels; for a histogram its count.
func figure(m metricdata.Metrics, labels ...attribute.KeyValue) float64 {
	set := attribute.NewSet(labels...)
	switch data := m.Data.(type) {
	case metricdata.Sum[float64]:
		for _, point := range data.DataPoints {
			if point.Attributes.Equals(&set) {
				return point.Value
			}
		}
	case metricdata.Gauge[float64]:
		for _, point := range data.DataPoints {
			if point.Attributes.Equals(&set) {
				return point.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, point := range data.DataPoints {
			if point.Attributes.Equals(&set) {
				return float64(point.Count)
			}
		}
	}
	return -1
}

func TestMetricsAreThoseOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{MaxQueues: 1})
		orders := s.open("orders")
		s.telemetry.Watch(s.Context(), orders, &mailboxotel.WatchOptions{Capacity: 4})
		_, err := orders.SendAll(s.Context(), []string{"tea", "milk"})
		s.must(err)
		_, err = s.open("others").Send(s.Context(), "tea")
		s.must(err)
		_, err = worker.New(orders, func(context.Context, *mailbox.Message[string]) error {
			if got := figure(s.collected()["mailbox.handlers_running"], attribute.String("loop", "orders")); got != 1 {
				t.Errorf("%v handlers run", got)
			}
			return nil
		}, &worker.Options[string]{Hooks: s.telemetry.WorkerHooks()}).RunOnce(s.Context())
		s.must(err)
		s.telemetry.DeadLetterHooks().Depth("dead letters", 7)
		got := s.collected()
		queue := attribute.String("queue", "orders")
		for _, want := range []struct {
			name   string
			unit   string
			value  float64
			labels []attribute.KeyValue
		}{
			{"mailbox.enqueued", "{message}", 2, []attribute.KeyValue{queue}},
			{"mailbox.enqueued", "{message}", 1, []attribute.KeyValue{attribute.String("queue", "other")}},
			{"mailbox.enqueue_latency", "s", 1, []attribute.KeyValue{queue}},
			{"mailbox.queue_depth", "{message}", 1, []attribute.KeyValue{queue, attribute.String("state", "ready")}},
			{"mailbox.saturation", "", 0.25, []attribute.KeyValue{queue}},
			{"mailbox.handlers_running", "{handler}", 0, []attribute.KeyValue{attribute.String("loop", "orders")}},
			{"mailbox.worker_settled", "{message}", 1, []attribute.KeyValue{attribute.String("loop", "orders"), attribute.String("result", "acked")}},
			{"mailbox.dlq_consumer_depth", "{message}", 7, []attribute.KeyValue{attribute.String("consumer", "other")}},
		} {
			if value := figure(got[want.name], want.labels...); value != want.value || got[want.name].Unit != want.unit {
				t.Errorf("%s%v is %v %q, want %v %q", want.name, want.labels, value, got[want.name].Unit, want.value, want.unit)
			}
		}
	})
}

func TestEveryInstrumentCanBeMade(t *testing.T) {
	// New fails if the SDK refuses an instrument. Two names that differ only in the
	// suffix would be the same.
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{})
		names := make(map[string]string)
		for _, i := range telemetry.All() {
			short := strings.TrimSuffix(strings.TrimSuffix(i.Name, "_total"), "_seconds")
			if other, taken := names[short]; taken {
				s.Errorf("%s and %s have the same name", i.Name, other)
			}
			names[short] = i.Name
		}
	})
}

func TestSpansDoNotTellSecretsOfReplyAddresses(t *testing.T) {
	s := newEnv(t, mailboxotel.Options{})
	requests, err := mailbox.Open(s.Context(), s.faults, "requests", &mailbox.Options[string]{
		Hooks: s.telemetry.MailboxHooks(), Replies: s.replies, Resolver: mailboxtest.NewResolver(),
	})
	s.must(err)
	defer requests.Close()
	const slot = "0123456789abcdef0123456789abcdef"
	s.must(s.replies.Create(s.Context(), slot, time.Hour))
	for i, address := range []struct{ replyTo, want string }{
		{"redis://user:secret@cache:6379/replies", "redis://user:xxxxx@cache:6379/replies"},
		{"redis://user:secret%@cache/replies", "redis://…"},
		{driver.SlotAddress(slot), "reply:01234567…"}, // the whole id would let a reader of spans read the answer
		{"replies", "replies"},
	} {
		_, err := requests.Send(s.Context(), "tea", mailbox.WithReplyTo(address.replyTo))
		s.must(err)
		got, err := requests.Receive(s.Context())
		s.must(err)
		s.must(mailbox.Reply(s.Context(), got[0], "tea!"))
		s.expect(s.span("reply requests", i), "mailbox.reply_to", address.want)
		_ = got[0].Ack(s.Context()) // replying to a slot has acked it
	}
}

func TestProgressIsInTheSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, mailboxotel.Options{})
		orders := s.open("orders")
		_, err := orders.Send(s.Context(), "tea")
		s.must(err)
		_, err = worker.New(orders, func(ctx context.Context, _ *mailbox.Message[string]) error {
			worker.SetProgress(ctx, 0.5, "half")
			worker.SetProgress(ctx, -1, "")
			return nil
		}, &worker.Options[string]{
			Middleware: []worker.Middleware[string]{mailboxotel.Middleware(s.telemetry, orders)},
			Hooks:      s.telemetry.WorkerHooks(),
		}).RunOnce(s.Context())
		s.must(err)
		events := s.span("process orders", 0).Events()
		if len(events) != 2 || events[0].Name != "progress" || len(events[0].Attributes) != 2 || len(events[1].Attributes) != 0 ||
			events[0].Attributes[0].Value.AsFloat64() != 0.5 || events[0].Attributes[1].Value.AsString() != "half" {
			t.Errorf("the events are %+v", events)
		}
	})
}
