package capability

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// A Pattern matches names of queues. Make one with [Queue], [QueuesUnder] or
// [AnyQueue].
type Pattern struct {
	kind patternKind
	text string // the name, or the prefix with its separator
}

type patternKind uint8

const (
	patternNone patternKind = iota // matches nothing: the zero Pattern
	patternExact
	patternPrefix
	patternAny
)

// separators end a segment of a queue's name: "user:42", "orders/eu" and
// "orders.eu" have two segments each.
const separators = ":/."

const (
	wildcard      = "*"
	listSeparator = ","
)

// Queue matches the queue with this name. Names are compared byte by byte, without
// normalisation.
func Queue(name string) Pattern { return Pattern{kind: patternExact, text: name} }

// QueuesUnder matches the queues under a prefix that ends in a separator (":", "/"
// or "."): "user:4:" matches "user:4:inbox" and not "user:42". It matches neither
// the prefix alone nor a name with an empty segment after the prefix, such as
// "a//b" or "a/../b".
func QueuesUnder(prefix string) Pattern { return Pattern{kind: patternPrefix, text: prefix} }

// AnyQueue matches every queue, and operations on the node as a whole.
func AnyQueue() Pattern { return Pattern{kind: patternAny} }

// ParsePattern reads the form used in tokens: a name, a prefix with "*" after its
// separator, or "*" alone. In a name "%", "," and "*" are written %25, %2C and %2A.
// The error is ErrInvalid.
func ParsePattern(text string) (Pattern, error) {
	p, ok := parsePattern(text)
	if !ok {
		return Pattern{}, patternError()
	}
	return p, nil
}

func patternError() error {
	return &driver.Error{
		Code: driver.ErrInvalid, Op: "parse", Field: "queue",
		Detail: `want a name of a queue, a prefix that ends in one of ":/." and has no empty segment, or all`,
	}
}

func parsePattern(text string) (Pattern, bool) {
	if text == wildcard {
		return AnyQueue(), true
	}
	prefix, isPrefix := strings.CutSuffix(text, wildcard)
	name, ok := unescapeQueue(prefix)
	if !ok {
		return Pattern{}, false
	}
	p := Queue(name)
	if isPrefix {
		p = QueuesUnder(name)
	}
	return p, p.valid()
}

func (p Pattern) valid() bool {
	switch p.kind {
	case patternAny:
		return p.text == ""
	case patternExact:
		return driver.CheckName(p.text) == nil
	case patternPrefix:
		last := len(p.text) - 1
		return last > 0 && isSeparator(p.text[last]) && segmented(p.text[:last]) && driver.CheckName(p.text) == nil
	}
	return false
}

// String returns the form that ParsePattern reads.
func (p Pattern) String() string {
	switch p.kind {
	case patternAny:
		return wildcard
	case patternExact:
		return queueEscaper.Replace(p.text)
	case patternPrefix:
		return queueEscaper.Replace(p.text) + wildcard
	}
	return ""
}

func (p Pattern) matches(queue string) bool {
	switch p.kind {
	case patternAny:
		return true
	case patternExact:
		return queue == p.text && queue != ""
	case patternPrefix:
		rest, ok := strings.CutPrefix(queue, p.text)
		return ok && segmented(rest)
	}
	return false
}

// segmented reports whether text consists of segments that are not empty. Since
// the dot is a separator too, "." and ".." are not segments: a name cannot escape
// its prefix, even if a store treats it as a path.
func segmented(text string) bool {
	inside := false // a segment
	for i := range len(text) {
		if !isSeparator(text[i]) {
			inside = true
			continue
		}
		if !inside {
			return false
		}
		inside = false
	}
	return inside
}

func isSeparator(c byte) bool { return strings.IndexByte(separators, c) >= 0 }

var queueEscaper = strings.NewReplacer("%", "%25", ",", "%2C", "*", "%2A")

// unescapeQueue reverses queueEscaper, and accepts no other escapes, so that a name
// has one form.
func unescapeQueue(text string) (name string, ok bool) {
	if strings.ContainsAny(text, wildcard+listSeparator) {
		return "", false
	}
	if !strings.Contains(text, "%") {
		return text, true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		if i+3 > len(text) {
			return "", false
		}
		switch text[i+1 : i+3] {
		case "25":
			b.WriteByte('%')
		case "2C":
			b.WriteByte(',')
		case "2A":
			b.WriteByte('*')
		default:
			return "", false
		}
		i += 2
	}
	return b.String(), true
}
