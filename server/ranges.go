package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// number returns the value of a setting that is a number.
func (s *setting) number(c *Config) (n int64, ok bool) {
	switch field := s.field(c).(type) {
	case *int:
		return int64(*field), true
	case *size:
		return int64(*field), true
	case *time.Duration:
		return int64(*field), true
	}
	return 0, false
}

// spelled returns a number in the form that the flag takes.
func (s *setting) spelled(n int64) string {
	switch s.unit() {
	case unitBytes:
		return formatSize(size(n))
	case unitDuration:
		return formatDuration(time.Duration(n))
	}
	return strconv.FormatInt(n, 10)
}

// shownRange returns the range as text.
func (s *setting) shownRange() string {
	if s.high == 0 {
		return ""
	}
	low, high := s.spelled(s.low), s.spelled(s.high)
	switch {
	case s.least == "":
	case s.leastTimes == 1:
		low = s.least
	default:
		low = fmt.Sprintf("%d × %s", s.leastTimes, s.least)
	}
	return low + " to " + high
}

// checkRanges returns an error about the first number that is outside its range.
func checkRanges(c *Config) error {
	for i := range settings {
		s := &settings[i]
		n, ok := s.number(c)
		if !ok || s.high == 0 || s.CanBeOff && n == driver.Off {
			continue
		}
		if defaulted := s.Default != ""; n == 0 && (defaulted || s.CanBeOff) {
			continue // its default depends on other settings, or it is off by default
		}
		low := s.low
		if s.least != "" {
			other, _ := settingOf(s.least).number(c)
			low = s.leastTimes * other
		}
		if n < low || n > s.high {
			return about(s.Key, s.spelled(n), s.spelled(low)+" to "+s.spelled(s.high))
		}
	}
	return nil
}
