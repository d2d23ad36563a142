package capability

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// operationList lists the operations that are allowed.
func (s *scope) operationList() (list []Operation) {
	for o := OpSend; o.valid(); o++ {
		if s.operations.has(o) {
			list = append(list, o)
		}
	}
	return list
}

// queues are the patterns that all topic caveats together leave.
func (s *scope) queues() []Pattern {
	left := []Pattern{AnyTopic()}
	for _, patterns := range s.topics {
		var both []Pattern
		for _, a := range left {
			for _, b := range patterns {
				if p := a.meet(b); p.valid() && !slices.Contains(both, p) {
					both = append(both, p)
				}
			}
		}
		left = both
	}
	return left
}

// meet returns the pattern of what both match, and the zero Pattern if that is nothing.
func (p Pattern) meet(other Pattern) Pattern {
	covers := func(wide, narrow Pattern) bool {
		switch {
		case wide.kind == patternAny:
			return true
		case narrow.kind == patternExact:
			return wide.matches(narrow.text)
		}
		return wide.kind == patternPrefix && narrow.kind == patternPrefix && strings.HasPrefix(narrow.text, wide.text)
	}
	switch {
	case covers(other, p):
		return p
	case covers(p, other):
		return other
	}
	return Pattern{}
}

// limits says what else all caveats together demand, besides operations, queues and
// expiry.
func (s *scope) limits() (words []string) {
	if len(s.tenants) > 0 {
		tenants := slices.Compact(slices.Sorted(slices.Values(s.tenants)))
		words = append(words, "for tenant "+strings.Join(tenants, " and "))
	}
	if s.hasNotBefore {
		words = append(words, "from "+time.Unix(s.notBefore, 0).UTC().Format(timeLayout))
	}
	for _, kind := range []string{quotaMessages, quotaBytes} {
		least := int64(0)
		for _, q := range s.quotas {
			if q.kind == kind && (least == 0 || q.limit < least) {
				least = q.limit
			}
		}
		if least > 0 {
			words = append(words, fmt.Sprintf("at most %d %s per second", least, quotaWords[kind]))
		}
	}
	if s.hasMaxBody {
		words = append(words, fmt.Sprintf("bodies of at most %d bytes", s.maxBody))
	}
	if len(s.networks) > 0 {
		words = append(words, "for clients in "+alternatives(s.networks))
	}
	if len(s.peers) > 0 {
		words = append(words, "for clients with the certificate of "+alternatives(s.peers))
	}
	if len(s.audiences) > 0 {
		words = append(words, "at "+alternatives(s.audiences))
	}
	if len(s.receipts) > 0 {
		words = append(words, "for one delivery only")
	}
	return words
}
