package driver_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

func TestGroupLimitsAreParsed(t *testing.T) {
	for text, want := range map[string]struct {
		all     driver.GroupLimit
		byGroup map[string]driver.GroupLimit
	}{
		"":                          {},
		" in-flight=5 ":             {all: driver.GroupLimit{MaxInFlight: 5}},
		"rate=2.5":                  {all: driver.GroupLimit{Rate: 2.5, Burst: 3}},
		"rate=0.5, burst=4":         {all: driver.GroupLimit{Rate: 0.5, Burst: 4}},
		"none; user:4: in-flight=1": {byGroup: map[string]driver.GroupLimit{"user:4": {MaxInFlight: 1}}},
		`"a; b" : rate=1;`:          {byGroup: map[string]driver.GroupLimit{"a; b": {Rate: 1, Burst: 1}}},
		"a: none; in-flight=1 rate=1; b: in-flight=2": {
			all:     driver.GroupLimit{MaxInFlight: 1, Rate: 1, Burst: 1},
			byGroup: map[string]driver.GroupLimit{"a": {}, "b": {MaxInFlight: 2}},
		},
	} {
		all, byGroup, err := driver.Config{GroupLimits: text}.ParseGroupLimits()
		if err != nil || all != want.all || !maps.Equal(byGroup, want.byGroup) {
			t.Errorf("%q: got %+v, %+v, %v; want %+v", text, all, byGroup, err, want)
		}
	}
}

// FuzzGroupLimits: a text is refused with the name of the setting, or within the bounds of limits.
func FuzzGroupLimits(f *testing.F) {
	for _, text := range []string{"in-flight=5,rate=10,burst=20; tenant-a: rate=0.5; tenant-b: none", `"a\x00": rate=1`, "rate=NaN", "rate=1e-300", ";;", "a:b:c: burst=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, byGroup, err := driver.Config{GroupLimits: text}.ParseGroupLimits()
		if err != nil {
			if detail, ok := errors.AsType[*driver.Error](err); !ok || detail.Code != driver.ErrInvalid || detail.Field != "GroupLimits" {
				t.Errorf("%q: got %v, want ErrInvalid of GroupLimits", text, err)
			}
			return
		}
		for _, limit := range append([]driver.GroupLimit{all}, limitsOf(byGroup)...) {
			if limit.MaxInFlight < 0 || (limit.Rate > 0) != (limit.Burst > 0) || limit.Rate > 0 && float64(limit.Burst)/limit.Rate > 24*60*60 {
				t.Errorf("%q: got %+v", text, limit)
			}
		}
	})
}

func limitsOf(byGroup map[string]driver.GroupLimit) (limits []driver.GroupLimit) {
	for _, limit := range byGroup {
		limits = append(limits, limit)
	}
	return limits
}
