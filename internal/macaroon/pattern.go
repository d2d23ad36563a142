package macaroon

import (
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// A Pattern matches names of queues.
type Pattern struct {
	Kind PatternKind
	Text string // the name, or the prefix with its separator
}

// A PatternKind says how a pattern matches.
type PatternKind uint8

// The kinds of pattern. The zero Pattern matches nothing.
const (
	MatchExact PatternKind = iota + 1
	MatchPrefix
	MatchAny
)

// Separators end a segment of a queue's name: "user:42", "orders/eu" and
// "orders.eu" have two segments each.
const Separators = ":/."

// The signs of a list in a caveat.
const (
	Wildcard      = "*"
	ListSeparator = ","
)

// ParsePattern reads the form used in tokens.
func ParsePattern(text string) (Pattern, bool) {
	if text == Wildcard {
		return Pattern{Kind: MatchAny}, true
	}
	prefix, isPrefix := strings.CutSuffix(text, Wildcard)
	name, ok := unescapeQueue(prefix)
	if !ok {
		return Pattern{}, false
	}
	p := Pattern{Kind: MatchExact, Text: name}
	if isPrefix {
		p.Kind = MatchPrefix
	}
	return p, p.Valid()
}

// Valid reports whether a token can contain the pattern.
func (p Pattern) Valid() bool {
	switch p.Kind {
	case MatchAny:
		return p.Text == ""
	case MatchExact:
		return driver.CheckName(p.Text) == nil
	case MatchPrefix:
		last := len(p.Text) - 1
		return last > 0 && isSeparator(p.Text[last]) && segmented(p.Text[:last]) && driver.CheckName(p.Text) == nil
	}
	return false
}

// String returns the form that ParsePattern reads.
func (p Pattern) String() string {
	switch p.Kind {
	case MatchAny:
		return Wildcard
	case MatchExact:
		return queueEscaper.Replace(p.Text)
	case MatchPrefix:
		return queueEscaper.Replace(p.Text) + Wildcard
	}
	return ""
}

// Matches reports whether the pattern matches the name of a queue.
func (p Pattern) Matches(queue string) bool {
	switch p.Kind {
	case MatchAny:
		return true
	case MatchExact:
		return queue == p.Text && queue != ""
	case MatchPrefix:
		rest, ok := strings.CutPrefix(queue, p.Text)
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

func isSeparator(c byte) bool { return strings.IndexByte(Separators, c) >= 0 }

var queueEscaper = strings.NewReplacer("%", "%25", ",", "%2C", "*", "%2A")

// unescapeQueue reverses queueEscaper, and accepts no other escapes, so that a name
// has one form.
func unescapeQueue(text string) (name string, ok bool) {
	if strings.ContainsAny(text, Wildcard+ListSeparator) {
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

// CommonQueues returns the patterns that all queue caveats allow.
func (s *Scope) CommonQueues() []Pattern {
	left := []Pattern{{Kind: MatchAny}}
	for _, patterns := range s.Queues {
		var both []Pattern
		for _, a := range left {
			for _, b := range patterns {
				if p := a.meet(b); p.Valid() && !slices.Contains(both, p) {
					both = append(both, p)
				}
			}
		}
		left = both
	}
	return left
}

// meet returns the pattern of the queues that both patterns match, and the zero
// Pattern if there are none.
func (p Pattern) meet(other Pattern) Pattern {
	switch {
	case other.Covers(p):
		return p
	case p.Covers(other):
		return other
	}
	return Pattern{}
}

// Covers reports whether the pattern matches all queues that another one matches.
func (p Pattern) Covers(narrow Pattern) bool {
	switch {
	case p.Kind == MatchAny:
		return true
	case narrow.Kind == MatchExact:
		return p.Matches(narrow.Text)
	}
	return p.Kind == MatchPrefix && narrow.Kind == MatchPrefix && strings.HasPrefix(narrow.Text, p.Text)
}
