package broker

import (
	"log/slog"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// observe counts and logs a message that was dead-lettered, that retention removed, or that was a duplicate.
// The backend calls it, see driver.Observable.
func (b *Broker) observe(e driver.Ending) {
	key, ok := keyOf(e.Queue)
	if !ok {
		return // a queue of the daemon itself
	}
	meter := b.metrics.Queue(key.tenant, key.name)
	line := ""
	switch e.Kind {
	case driver.EndingDied:
		line = "message.dead"
		meter.Died(string(e.Reason), e.Count)
		if e.ID != "" && decidedByBackend(e.Reason) { // other dead letters are traced with the token that asked for them
			b.traces.note(&key, e.ID, holder{}, EventDeadLettered, e.Deliveries, string(e.Reason), time.Now())
		}
	case driver.EndingRemoved:
		line = "message.removed"
		meter.Removed(e.Count)
	case driver.EndingDropped:
		line = "message.dropped"
		meter.Dropped(e.Count)
	case driver.EndingDuplicate:
		line = "message.duplicate"
		meter.Sent(0, e.Count)
		b.traces.note(&key, e.ID, holder{}, EventRemoved, 0, e.LastError, time.Now())
	}
	attrs := []any{slog.String("reason", string(e.Reason))}
	if e.ID == "" {
		attrs = append(attrs, slog.Int("count", e.Count))
	} else {
		attrs = append(attrs, slog.String("msg_id", e.ID), slog.Int("attempt", e.Deliveries))
	}
	b.logMessage(line, key, attrs...)
}

// decidedByBackend reports whether a backend dead-letters for this reason without a
// request.
func decidedByBackend(reason driver.Reason) bool {
	return reason == driver.ReasonMaxDeliveries || reason == driver.ReasonExpired
}

// logMessage logs an event of one or several messages, at a bounded rate. Bodies, attributes, tokens and the text of an error, which may
// quote a body, are never logged; the trace and the dead letter have the error.
// Each of attrs is a slog.Attr.
func (b *Broker) logMessage(line string, key queueKey, attrs ...any) {
	suppressed, ok := b.messageLines.take(b.now(), linesBurst, linesEvery)
	if !ok {
		return
	}
	attrs = append(key.attrs(), attrs...)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	b.log.Info(line, attrs...)
}

// attrs name the queue in lines about messages.
func (k queueKey) attrs() []any {
	attrs := []any{slog.String("queue", k.name)}
	if k.tenant != "" {
		attrs = append(attrs, slog.String("tenant", k.tenant))
	}
	return attrs
}

// shortened bounds the length of a client's text, for traces.
func shortened(text string) string {
	if len(text) > maxNoteBytes {
		text = text[:maxNoteBytes]
	}
	return strings.ToValidUTF8(text, "") // a character may have been cut in two
}

const (
	// linesBurst and linesEvery bound the lines about single messages: a burst, then one
	// per linesEvery.
	linesBurst = 100
	linesEvery = 50 * time.Millisecond
)
