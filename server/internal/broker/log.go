package broker

import (
	"log/slog"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
)

// levelRefusal is the level of refused tokens.
const levelRefusal = slog.LevelWarn

func attrReason(reason string) slog.Attr { return slog.String("reason", reason) }

func attrOperation(o capability.Operation) slog.Attr { return slog.String("op", o.String()) }

// attrs returns the attributes of every line of a caller. Tokens appear as ids only;
// bodies and attributes of messages are never logged.
func (c *Caller) attrs(queue string, more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 6+len(more))
	attrs = append(attrs, slog.String("corr_id", c.origin.CorrelationID), slog.String("token", c.token.ID().String()))
	if queue != "" {
		attrs = append(attrs, slog.String("queue", queue))
	}
	if c.tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.tenant))
	}
	if c.origin.Client.IsValid() {
		attrs = append(attrs, slog.String("client", c.origin.Client.String()))
	}
	return append(attrs, more...)
}

// refusalLines and refusalEvery bound the lines about refused tokens: a burst, and then
// one line in this time. Forged tokens cost a client nothing.
const (
	refusalLines = 20
	refusalEvery = 2 * time.Second
)

// A logLimiter bounds a kind of log lines. The zero value has a whole burst left.
type logLimiter struct {
	mu         sync.Mutex    // guards the fields below
	free       time.Duration // on the broker's clock: when a whole burst is allowed again
	suppressed int           // since the last line that was logged
}

// take reports whether a line may be logged, and how many were suppressed before.
func (p *logLimiter) take(now time.Duration, burst int, every time.Duration) (suppressed int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > now+time.Duration(burst-1)*every {
		p.suppressed++
		return 0, false
	}
	p.free = max(p.free, now) + every
	suppressed, p.suppressed = p.suppressed, 0
	return suppressed, true
}

// rest returns how many lines were suppressed and not mentioned.
func (p *logLimiter) rest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	suppressed := p.suppressed
	p.suppressed = 0
	return suppressed
}

// logSuppressed logs how many lines were suppressed since the last one. Measure and
// Close call it.
func (b *Broker) logSuppressed() {
	if n := b.forgedLines.rest() + b.refusedLines.rest(); n > 0 {
		b.log.Warn("auth.denied", slog.Int("suppressed", n))
	}
}
