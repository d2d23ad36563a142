package server

import (
	"strings"
	"testing"
	"time"
)

// TestSettingsAcceptExactlyTheirRange sets every number to the ends of its range, and to
// the numbers next to them.
func TestSettingsAcceptExactlyTheirRange(t *testing.T) {
	put := func(s *setting, c *Config, n int64) {
		switch field := s.field(c).(type) {
		case *int:
			*field = int(n)
		case *size:
			*field = size(n)
		case *time.Duration:
			*field = time.Duration(n)
		}
	}
	for i := range settings {
		s := &settings[i]
		if s.high == 0 {
			continue
		}
		low := s.low
		base := Defaults(Macronode)
		base.Backend = "memory:"
		if s.least != "" {
			other, _ := settingOf(s.least).number(&base)
			low = s.leastTimes * other
		}
		for n, good := range map[int64]bool{low: true, s.high: true, s.high + 1: false, low - 1: low == 1} { // 0 is the default
			c := base
			put(s, &c, n)
			switch s.Key { // other settings depend on these
			case "mailbox.visibility_min":
				c.VisibilityDefault, c.DedupWindow = max(c.VisibilityDefault, c.VisibilityMin), maxDuration
			case "mailbox.default_visibility":
				c.DedupWindow = maxDuration
			case "mailbox.backoff_base":
				c.BackoffMax = max(c.BackoffMax, c.BackoffBase)
			}
			err := c.Validate()
			if good && err != nil || !good && (err == nil || !strings.Contains(err.Error(), s.Flag) || !strings.Contains(err.Error(), "want "+s.spelled(low)+" to "+s.spelled(s.high))) {
				t.Errorf("%s = %s: %v", s.Key, s.spelled(n), err)
			}
		}
	}
}
