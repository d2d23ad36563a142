package sqswire

import (
	"slices"
	"strings"
)

// A Filter chooses attributes by the names that a receive asks for. The zero
// Filter chooses none.
type Filter struct {
	all      bool
	names    []string
	prefixes []string
}

// NewFilter returns the filter for names. All, .* and * stand for all, and
// abc.* for all names that begin with abc.
func NewFilter(names []string) Filter {
	var f Filter
	for _, name := range names {
		switch prefix, wild := strings.CutSuffix(name, ".*"); {
		case name == "All", name == "*", name == ".*":
			return Filter{all: true}
		case wild:
			f.prefixes = append(f.prefixes, prefix)
		default:
			f.names = append(f.names, name)
		}
	}
	return f
}

// Empty reports whether the filter chooses nothing.
func (f Filter) Empty() bool { return !f.all && f.names == nil && f.prefixes == nil }

// Matches reports whether the filter chooses the attribute.
func (f Filter) Matches(name string) bool {
	return f.all || slices.Contains(f.names, name) ||
		slices.ContainsFunc(f.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
