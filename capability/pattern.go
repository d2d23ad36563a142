package capability

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// A Pattern says which topics a token is for. Make one with [Topic],
// [TopicsUnder] or [AnyTopic].
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

// separators end a segment of a topic's name: "user:42", "orders/eu" and
// "orders.eu" have two segments each.
const separators = ":/."

const (
	wildcard      = "*"
	listSeparator = ","
)

// Topic matches the one topic of this name. Names are compared byte by byte;
// nothing is normalised.
func Topic(name string) Pattern { return Pattern{kind: patternExact, text: name} }

// TopicsUnder matches the topics below a prefix that ends in a separator (":",
// "/" or "."): "user:4:" is the start of "user:4:inbox" and not of "user:42". It
// does not match the prefix alone, nor anything with an empty segment behind it,
// such as "a//b" or "a/../b".
func TopicsUnder(prefix string) Pattern { return Pattern{kind: patternPrefix, text: prefix} }

// AnyTopic matches every topic, and operations on the node as a whole.
func AnyTopic() Pattern { return Pattern{kind: patternAny} }

// ParsePattern reads the form that stands in tokens: a name, a prefix with "*"
// behind its separator, or "*" alone. In a name "%", "," and "*" are written
// %25, %2C and %2A. The error is ErrInvalid.
func ParsePattern(text string) (Pattern, error) {
	p, ok := parsePattern(text)
	if !ok {
		return Pattern{}, patternError()
	}
	return p, nil
}

func patternError() error {
	return &driver.Error{
		Code: driver.ErrInvalid, Op: "parse", Field: "topic",
		Detail: `want a name of a queue, a prefix that ends in one of ":/." and has no empty segment, or all`,
	}
}

func parsePattern(text string) (Pattern, bool) {
	if text == wildcard {
		return AnyTopic(), true
	}
	prefix, isPrefix := strings.CutSuffix(text, wildcard)
	name, ok := unescapeTopic(prefix)
	if !ok {
		return Pattern{}, false
	}
	p := Topic(name)
	if isPrefix {
		p = TopicsUnder(name)
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
		return topicEscaper.Replace(p.text)
	case patternPrefix:
		return topicEscaper.Replace(p.text) + wildcard
	}
	return ""
}

func (p Pattern) matches(topic string) bool {
	switch p.kind {
	case patternAny:
		return true
	case patternExact:
		return topic == p.text && topic != ""
	case patternPrefix:
		rest, ok := strings.CutPrefix(topic, p.text)
		return ok && segmented(rest)
	}
	return false
}

// segmented reports whether text is made of segments none of which is empty.
// Since the dot separates too, "." and ".." are no segments: a topic cannot name
// its way out, whatever a store makes of its name.
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

var topicEscaper = strings.NewReplacer("%", "%25", ",", "%2C", "*", "%2A")

// unescapeTopic undoes topicEscaper, and only that: a name has one form.
func unescapeTopic(text string) (name string, ok bool) {
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
