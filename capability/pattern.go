package capability

import (
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A Pattern matches names of queues. Make one with [Queue], [QueuesUnder] or
// [AnyQueue].
type Pattern struct{ pattern macaroon.Pattern }

// Queue matches the queue with this name. Names are compared byte by byte, without
// normalisation.
func Queue(name string) Pattern {
	return Pattern{macaroon.Pattern{Kind: macaroon.MatchExact, Text: name}}
}

// QueuesUnder matches the queues under a prefix that ends in a separator (":", "/"
// or "."): "user:4:" matches "user:4:inbox" and not "user:42". It matches neither
// the prefix alone nor a name with an empty segment after the prefix, such as
// "a//b" or "a/../b".
func QueuesUnder(prefix string) Pattern {
	return Pattern{macaroon.Pattern{Kind: macaroon.MatchPrefix, Text: prefix}}
}

// AnyQueue matches every queue, and operations on the node as a whole.
func AnyQueue() Pattern { return Pattern{macaroon.Pattern{Kind: macaroon.MatchAny}} }

// ParsePattern reads the form used in tokens: a name, a prefix with "*" after its
// separator, or "*" alone. In a name "%", "," and "*" are written %25, %2C and %2A.
// The error is ErrInvalid.
func ParsePattern(text string) (Pattern, error) {
	p, ok := macaroon.ParsePattern(text)
	if !ok {
		return Pattern{}, patternError()
	}
	return Pattern{p}, nil
}

func patternError() error {
	return &driver.Error{
		Code: driver.ErrInvalid, Op: "parse", Field: "queue",
		Detail: `want a name of a queue, a prefix that ends in one of ":/." and has no empty segment, or all`,
	}
}

// String returns the form that ParsePattern reads.
func (p Pattern) String() string { return p.pattern.String() }
