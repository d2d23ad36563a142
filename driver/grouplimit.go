package driver

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// GroupLimit is the limit of a group; see Config.GroupLimits. 0 means no limit.
type GroupLimit struct {
	MaxInFlight int
	Rate        float64 // deliveries a second
	Burst       int     // with a Rate, at least 1
}

// MaxThrottle is the longest time for which a group can be throttled.
const MaxThrottle = 24 * time.Hour

// The bounds of limits. A bucket fills within maxFill, so that instants do not overflow.
const (
	maxGroupLimits     = 1000
	maxGroupLimitBytes = 64 << 10
	maxGroupInFlight   = 1 << 30
	maxGroupRate       = 1_000_000
	maxFill            = 24 * time.Hour
)

// ParseGroupLimits returns the limit of every group, and those of single groups. It returns
// ErrInvalid if GroupLimits is not such a text.
func (c Config) ParseGroupLimits() (all GroupLimit, byGroup map[string]GroupLimit, err error) {
	fail := func(format string, args ...any) (GroupLimit, map[string]GroupLimit, error) {
		return GroupLimit{}, nil, configError("GroupLimits", fmt.Sprintf(format, args...))
	}
	rest := c.GroupLimits
	if len(rest) > maxGroupLimitBytes {
		return fail("%d bytes, at most %d are allowed", len(rest), maxGroupLimitBytes)
	}
	if !utf8.ValidString(rest) {
		return fail("is not valid UTF-8")
	}
	hasAll := false
	for strings.TrimSpace(rest) != "" {
		group, terms, after, err := cutGroupLimit(rest)
		if err != nil {
			return fail("%v", err)
		}
		rest = after
		limit, err := parseGroupLimit(terms)
		if err != nil {
			return fail("%v", err)
		}
		_, repeated := byGroup[group]
		switch {
		case repeated || group == "" && hasAll:
			return fail("the group %q has two limits", group)
		case group == "":
			all, hasAll = limit, true
			continue
		case len(byGroup) == maxGroupLimits:
			return fail("more than %d groups", maxGroupLimits)
		case byGroup == nil:
			byGroup = make(map[string]GroupLimit)
		}
		byGroup[group] = limit
	}
	return all, byGroup, nil
}

// cutGroupLimit cuts the limit of one group off a text. The group is empty for that of all.
func cutGroupLimit(text string) (group, terms, rest string, err error) {
	text = strings.TrimSpace(text)
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		if group, err = strconv.Unquote(quoted); err != nil || group == "" || !utf8.ValidString(group) {
			return "", "", "", fmt.Errorf("%s is not the name of a group", quoted)
		}
		after, isName := strings.CutPrefix(strings.TrimSpace(text[len(quoted):]), ":")
		if !isName {
			return "", "", "", fmt.Errorf("a colon is missing after %s", quoted)
		}
		terms, rest, _ = strings.Cut(after, ";")
		return group, terms, rest, nil
	}
	terms, rest, _ = strings.Cut(text, ";")
	if colon := strings.LastIndex(terms, ":"); colon >= 0 {
		group, terms = strings.TrimSpace(terms[:colon]), terms[colon+1:]
		if group == "" || strings.ContainsAny(group, "\"`") {
			return "", "", "", fmt.Errorf("%q is not the name of a group; quote it as in Go", group)
		}
	}
	return group, terms, rest, nil
}

// parseGroupLimit returns the limit that terms like "in-flight=5 rate=10" say.
func parseGroupLimit(text string) (l GroupLimit, err error) {
	terms := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(terms) == 1 && terms[0] == "none" {
		return GroupLimit{}, nil
	}
	if len(terms) == 0 {
		return l, fmt.Errorf("a limit is empty; want in-flight=N, rate=R and burst=B, or none")
	}
	seen := make(map[string]bool)
	for _, term := range terms {
		key, value, _ := strings.Cut(term, "=")
		if seen[key] {
			return l, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "in-flight":
			l.MaxInFlight, err = strconv.Atoi(value)
			if err != nil || l.MaxInFlight < 1 || l.MaxInFlight > maxGroupInFlight {
				return l, fmt.Errorf("%q is outside 1…%d", term, maxGroupInFlight)
			}
		case "rate":
			l.Rate, err = strconv.ParseFloat(value, 64)
			if err != nil || !(l.Rate > 0 && l.Rate <= maxGroupRate) {
				return l, fmt.Errorf("%q is not a number of deliveries a second, at most %d", term, maxGroupRate)
			}
		case "burst":
			l.Burst, err = strconv.Atoi(value)
			if err != nil || l.Burst < 1 || l.Burst > maxGroupInFlight {
				return l, fmt.Errorf("%q is outside 1…%d", term, maxGroupInFlight)
			}
		default:
			return l, fmt.Errorf("unknown %q; want in-flight=N, rate=R and burst=B, or none", term)
		}
	}
	switch {
	case l.Rate == 0 && l.Burst > 0:
		return l, fmt.Errorf("burst needs a rate")
	case l.Rate > 0 && l.Burst == 0:
		l.Burst = int(math.Ceil(l.Rate))
	}
	if l.Rate > 0 && float64(l.Burst)/l.Rate > maxFill.Seconds() {
		return l, fmt.Errorf("%q takes longer than %v to fill", strings.TrimSpace(text), maxFill)
	}
	return l, nil
}

// CheckThrottle returns ErrInvalid if a group cannot be throttled for a time.
func CheckThrottle(group string, wait time.Duration) error {
	fail := func(field, detail string) error {
		return &Error{Code: ErrInvalid, Op: "throttle", Field: field, Detail: detail}
	}
	switch {
	case group == "":
		return fail("Group", "is empty; messages without a group have no limit")
	case len(group) > MaxGroupBytes:
		return fail("Group", fmt.Sprintf("%d bytes, at most %d are allowed", len(group), MaxGroupBytes))
	case !utf8.ValidString(group):
		return fail("Group", "is not valid UTF-8")
	case wait < 0 || wait > MaxThrottle:
		return fail("Wait", outside(wait, MaxThrottle))
	}
	return nil
}
