package broker

import (
	"log/slog"

	"github.com/mailboxmq/mailbox/capability"
)

// levelRefusal is that of refused tokens: worth a look, and no fault of ours.
const levelRefusal = slog.LevelWarn

func attrReason(reason string) slog.Attr { return slog.String("reason", reason) }

func attrOperation(o capability.Operation) slog.Attr { return slog.String("op", o.String()) }

// attrs are those of every line: who, from where, on behalf of what. Tokens are
// named by their ids and never shown; payloads and attributes are not logged.
func (c *Caller) attrs(topic string, more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 6+len(more))
	attrs = append(attrs, slog.String("corr_id", c.origin.CorrelationID), slog.String("token", c.token.ID().String()))
	if topic != "" {
		attrs = append(attrs, slog.String("topic", topic))
	}
	if c.tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.tenant))
	}
	if c.origin.Client.IsValid() {
		attrs = append(attrs, slog.String("client", c.origin.Client.String()))
	}
	return append(attrs, more...)
}
