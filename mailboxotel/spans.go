package mailboxotel

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/worker"
)

// The attributes of spans: those of the semantic conventions for messaging, and ours.
const (
	attributeSystem        = attribute.Key("messaging.system")
	attributeDestination   = attribute.Key("messaging.destination.name")
	attributeOperation     = attribute.Key("messaging.operation.name")
	attributeOperationType = attribute.Key("messaging.operation.type")
	attributeMessageID     = attribute.Key("messaging.message.id")
	attributeCorrelation   = attribute.Key("messaging.message.conversation_id")
	attributeBatch         = attribute.Key("messaging.batch.message_count")
	attributeErrorType     = attribute.Key("error.type")
	attributeDeliveries    = attribute.Key("mailbox.deliveries")
	attributeDeadReason    = attribute.Key("mailbox.dead.reason")
	attributeReplyTo       = attribute.Key("mailbox.reply_to")
	attributeProgress      = attribute.Key("mailbox.progress.fraction")
	attributeProgressText  = attribute.Key("mailbox.progress.text")
)

// spans turns hook calls into spans.
type spans struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	origins    *origins
}

func (s *spans) hooks() mailbox.Hooks {
	return mailbox.Hooks{
		Sending: s.sending, Sent: s.sent, Received: s.received,
		Poisoned: s.poisoned, Settled: s.settled, Replied: s.replied,
	}
}

// start begins a span named after an operation and a queue.
func (s *spans) start(ctx context.Context, kind trace.SpanKind, operation, operationType, queue string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, operation+" "+queue, append(options, trace.WithSpanKind(kind), trace.WithAttributes(
		attributeSystem.String("mailbox"), attributeDestination.String(queue),
		attributeOperation.String(operation), attributeOperationType.String(operationType),
	))...)
}

// finish ends a span, with an error if there is one.
func finish(span trace.Span, err error, options ...trace.SpanEndOption) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(attributeErrorType.String(errorType(err)))
	}
	span.End(options...)
}

// errorType returns the code of an error. There are few codes, so it may be a label.
func errorType(err error) string {
	if code, ok := errors.AsType[mailbox.Code](err); ok {
		return string(code)
	}
	if failed, ok := errors.AsType[*mailbox.Error](err); ok {
		return string(failed.Code)
	}
	return "_OTHER"
}

// sendKey is the context key for the span of a send. Hooks that run later may put other
// spans into the same context.
type sendKey struct{}

func (s *spans) sending(ctx context.Context, queue string, messages []driver.Outgoing) context.Context {
	ctx, span := s.start(ctx, trace.SpanKindProducer, "send", "send", queue)
	if len(messages) > 1 {
		span.SetAttributes(attributeBatch.Int(len(messages)))
	} else if len(messages) == 1 && messages[0].CorrelationID != "" {
		span.SetAttributes(attributeCorrelation.String(messages[0].CorrelationID))
	}
	for i := range messages {
		s.propagator.Inject(ctx, propagation.MapCarrier(messages[i].Attributes))
	}
	return context.WithValue(ctx, sendKey{}, span)
}

func (s *spans) sent(ctx context.Context, event mailbox.SentEvent) {
	span, ok := ctx.Value(sendKey{}).(trace.Span)
	if !ok {
		return
	}
	if len(event.Results) == 1 && event.Results[0].ID != "" {
		span.SetAttributes(attributeMessageID.String(event.Results[0].ID))
	}
	finish(span, event.Err)
}

// from returns ctx with the span that sent a message as the parent of new spans.
func (s *spans) from(ctx context.Context, attributes map[string]string) context.Context {
	// The receiver's own span does not belong to the message's trace.
	return s.propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), propagation.MapCarrier(attributes))
}

func (s *spans) received(ctx context.Context, queue string, delivery *driver.Delivery) {
	origin := s.from(ctx, delivery.Attributes)
	_, span := s.start(origin, trace.SpanKindConsumer, "receive", "receive", queue, ambient(ctx))
	span.SetAttributes(attributeMessageID.String(delivery.ID), attributeDeliveries.Int(delivery.Deliveries))
	if delivery.CorrelationID != "" {
		span.SetAttributes(attributeCorrelation.String(delivery.CorrelationID))
	}
	span.End()
	parent := trace.SpanContextFromContext(origin)
	if !parent.IsValid() {
		parent = span.SpanContext()
	}
	s.origins.remember(queue, delivery.ID, parent)
}

// ambient returns an option that links a span to the current span of ctx, if any.
func ambient(ctx context.Context) trace.SpanStartOption {
	if current := trace.SpanContextFromContext(ctx); current.IsValid() {
		return trace.WithLinks(trace.Link{SpanContext: current})
	}
	return trace.WithLinks()
}

// within returns ctx with a parent for spans about a delivered message: the caller's span,
// or else the span that sent the message.
func (s *spans) within(ctx context.Context, queue, messageID string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, s.origins.of(queue, messageID))
}

// past records a span for an operation that has just ended.
func (s *spans) past(ctx context.Context, operation, operationType, queue, messageID string, took time.Duration, err error, attributes ...attribute.KeyValue) {
	ended := time.Now()
	_, span := s.start(s.within(ctx, queue, messageID), trace.SpanKindClient, operation, operationType, queue, trace.WithTimestamp(ended.Add(-took)))
	span.SetAttributes(append(attributes, attributeMessageID.String(messageID))...)
	finish(span, err, trace.WithTimestamp(ended))
}

func (s *spans) settled(ctx context.Context, event mailbox.SettledEvent) {
	attributes := []attribute.KeyValue{attributeDeliveries.Int(event.Deliveries)}
	if event.Outcome == mailbox.OutcomeDeadLetter {
		attributes = append(attributes, attributeDeadReason.String(string(event.Reason)))
	}
	s.past(ctx, string(event.Outcome), "settle", event.Queue, event.MessageID, event.Duration, event.Err, attributes...)
	if event.Err == nil || errors.Is(event.Err, mailbox.ErrReceiptExpired) {
		s.origins.forget(event.Queue, event.MessageID)
	}
}

func (s *spans) poisoned(ctx context.Context, event mailbox.PoisonedEvent) {
	s.past(ctx, "decode", "process", event.Queue, event.Delivery.ID, 0, event.Cause)
	s.origins.forget(event.Queue, event.Delivery.ID)
}

func (s *spans) replied(ctx context.Context, event mailbox.RepliedEvent) {
	s.past(ctx, "reply", "send", event.Queue, event.MessageID, event.Duration, event.Err, attributeReplyTo.String(printable(event.ReplyTo)))
}

// slotShown is how many characters of a reply slot's id a span shows: enough to tell slots
// apart, too few to read the answer in one.
const slotShown = 8

// printable returns a reply address without its secrets.
func printable(address string) string {
	if id, isSlot := driver.SlotID(address); isSlot {
		if len(id) > slotShown {
			id = strings.ToValidUTF8(id[:slotShown], "") + "…"
		}
		return driver.SlotAddress(id)
	}
	scheme, _, isURI := strings.Cut(address, "://")
	if !isURI {
		return address
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return scheme + "://…" // any part of it may be the password
	}
	return parsed.Redacted()
}

// Middleware makes a span for each call of a handler of messages of this mailbox. The
// handler finds it in its context, so its own spans belong to the message's trace.
func Middleware[T any](t *Telemetry, from *mailbox.Mailbox[T]) worker.Middleware[T] {
	s, queue := t.spans, from.Name()
	return worker.Tracing(func(ctx context.Context, message *mailbox.Message[T]) (context.Context, func(error)) {
		parent := s.from(ctx, message.Attributes)
		if !trace.SpanContextFromContext(parent).IsValid() {
			parent = trace.ContextWithSpanContext(parent, s.origins.of(queue, message.ID))
		}
		traced, span := s.start(parent, trace.SpanKindConsumer, "process", "process", queue, ambient(ctx))
		span.SetAttributes(attributeMessageID.String(message.ID), attributeDeliveries.Int(message.Deliveries))
		if message.CorrelationID != "" {
			span.SetAttributes(attributeCorrelation.String(message.CorrelationID))
		}
		return traced, func(err error) { finish(span, err) }
	})
}

// progress adds what a handler reports to its span, as an event.
func progress(ctx context.Context, event worker.ProgressEvent) {
	var attributes []attribute.KeyValue
	if event.Progress.Fraction >= 0 {
		attributes = append(attributes, attributeProgress.Float64(event.Progress.Fraction))
	}
	if event.Progress.Text != "" {
		attributes = append(attributes, attributeProgressText.String(event.Progress.Text))
	}
	trace.SpanFromContext(ctx).AddEvent("progress", trace.WithAttributes(attributes...))
}
