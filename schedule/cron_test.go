package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests do not depend on the zones of the machine

	second "github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// zones are those of the tests: clock changes at 2 and 3, at 1 and 2 by half an hour, at
// midnight, at one minute past midnight, and a date that did not exist.
var zones = []struct {
	name  string
	years [2]int
}{
	{"Europe/Berlin", [2]int{2024, 2030}},
	{"America/New_York", [2]int{2024, 2030}},
	{"Australia/Lord_Howe", [2]int{2024, 2030}},
	{"America/Sao_Paulo", [2]int{2014, 2020}},
	{"America/St_Johns", [2]int{2006, 2012}},
	{"Pacific/Apia", [2]int{2009, 2014}},
	{"Africa/Cairo", [2]int{2007, 2012}},
	{"UTC", [2]int{2020, 2022}},
}

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func mustCron(t testing.TB, text string) *cron {
	t.Helper()
	c, err := parseCron(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return &c
}

func TestWrongExpressionsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "has 0 fields; want 5",
		"* * * *":                        "has 4 fields",
		"* * * * * *":                    "has 6 fields",
		"60 * * * *":                     `minute "60": invalid value "60"; want 0 to 59`,
		"-1 * * * *":                     `invalid value ""`,
		"+1 * * * *":                     `invalid value "+1"`,
		"* 24 * * *":                     `hour "24"`,
		"* * 0 * *":                      `day of the month "0"`,
		"* * 32 * *":                     "want 1 to 31",
		"* * * 13 *":                     `month "13"`,
		"* * * JANUARY *":                `invalid value "JANUARY"`,
		"* * * * 8":                      `day of the week "8"`,
		"* * * * MON-":                   `invalid value ""`,
		"5-1 * * * *":                    "ends before it begins",
		"*/0 * * * *":                    `invalid step "0"; want 1 to 59`,
		"*/60 * * * *":                   `invalid step "60"`,
		"1, * * * *":                     `invalid value ""`,
		"1/2/3 * * * *":                  `invalid step "2/3"`,
		"? * * * *":                      `invalid value "?"`,
		"@never":                         "unknown expression",
		"@every 5m":                      "unknown expression",
		strings.Repeat("1", 300):         "300 bytes are over the limit of 256",
		"99999999999999999999 * * * *":   "invalid value",
		"*/99999999999999999999 * * * *": "invalid step",
	} {
		if _, err := parseCron(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", text, err, want)
		}
	}
}

func TestExpressionsMeanTheirTimes(t *testing.T) {
	const layout = "2006-01-02 15:04 Mon"
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a Thursday
	for text, want := range map[string][]string{
		"*/30 * * * *":       {"2026-01-01 00:30 Thu", "2026-01-01 01:00 Thu"},
		"5/20 3 * * *":       {"2026-01-01 03:05 Thu", "2026-01-01 03:25 Thu", "2026-01-01 03:45 Thu", "2026-01-02 03:05 Fri"},
		"0 9-17/4 * * mon":   {"2026-01-05 09:00 Mon", "2026-01-05 13:00 Mon", "2026-01-05 17:00 Mon", "2026-01-12 09:00 Mon"},
		"0 0 13 * FRI":       {"2026-01-02 00:00 Fri", "2026-01-09 00:00 Fri", "2026-01-13 00:00 Tue", "2026-01-16 00:00 Fri"},
		"0 0 */10 * FRI":     {"2026-05-01 00:00 Fri", "2026-07-31 00:00 Fri", "2026-08-21 00:00 Fri"},
		"0 0 * * 7":          {"2026-01-04 00:00 Sun"},
		"0 0 * * 5-7":        {"2026-01-02 00:00 Fri", "2026-01-03 00:00 Sat", "2026-01-04 00:00 Sun", "2026-01-09 00:00 Fri"},
		"0 0 29 2 *":         {"2028-02-29 00:00 Tue", "2032-02-29 00:00 Sun"},
		"0 0 31 4,JUN-JUL *": {"2026-07-31 00:00 Fri", "2027-07-31 00:00 Sat"},
		"@weekly":            {"2026-01-04 00:00 Sun", "2026-01-11 00:00 Sun"},
		"@Monthly":           {"2026-02-01 00:00 Sun", "2026-03-01 00:00 Sun"},
		"@yearly":            {"2027-01-01 00:00 Fri"},
		"0 12 */31 2 1":      {"2027-02-01 12:00 Mon", "2038-02-01 12:00 Mon"},
	} {
		c, at := mustCron(t, text), start
		for _, due := range want {
			at = c.next(at, time.UTC)
			if at.Format(layout) != due {
				t.Errorf("%q is due at %s, want %s", text, at.Format(layout), due)
			}
		}
	}
	if due := mustCron(t, "0 0 30 2 *").next(start, time.UTC); !due.IsZero() {
		t.Errorf("30 February is due at %v", due)
	}
}

func TestClockChangesFollowTheRule(t *testing.T) {
	const layout = "01-02T15:04Z07"
	for _, c := range []struct {
		zone, cron, from string
		want             []string
	}{
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", []string{"03-29T03:00+02", "03-30T02:30+02"}},
		{"Europe/Berlin", "*/20 2 * * *", "2026-03-28T12:00:00Z", []string{"03-29T03:00+02", "03-30T02:00+02"}},
		{"Europe/Berlin", "0 2,3 * * *", "2026-03-28T12:00:00Z", []string{"03-29T03:00+02", "03-30T02:00+02"}},
		{"Europe/Berlin", "30 * * * *", "2026-03-29T00:00:00Z", []string{"03-29T01:30+01", "03-29T03:30+02"}},
		{"Europe/Berlin", "0 */2 * * *", "2026-03-28T23:30:00Z", []string{"03-29T04:00+02", "03-29T06:00+02"}},
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", []string{"10-25T02:30+02", "10-26T02:30+01"}},
		{"Europe/Berlin", "30 * * * *", "2026-10-24T23:45:00Z", []string{"10-25T02:30+02", "10-25T02:30+01", "10-25T03:30+01"}},
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", []string{"03-08T03:00-04", "03-09T02:30-04"}},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", []string{"11-01T01:30-04", "11-02T01:30-05"}},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00:00Z", []string{"10-04T02:30+11", "10-05T02:15+11"}},
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00Z", []string{"11-04T01:00-02", "11-05T00:00-02"}},
		{"Pacific/Apia", "0 9 30 12 *", "2011-12-01T00:00:00Z", []string{"12-31T00:00+14", "12-30T09:00+14"}},
	} {
		zone := mustZone(t, c.zone)
		at, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		expression := mustCron(t, c.cron)
		for _, want := range c.want {
			at = expression.next(at, zone)
			if got := at.In(zone).Format(layout); got != want {
				t.Errorf("%s %q is due at %s, want %s", c.zone, c.cron, got, want)
			}
		}
	}
}

// expressions generates cron expressions. Those for the second parser leave out what it
// reads in another way: Sunday as 7, and a * with a step beside a restricted day.
func expressions(forSecond bool) *rapid.Generator[string] {
	field := func(low, high int) *rapid.Generator[string] {
		part := rapid.Custom(func(t *rapid.T) string {
			from := rapid.IntRange(low, high).Draw(t, "from")
			switch rapid.IntRange(0, 3).Draw(t, "form") {
			case 0:
				return fmt.Sprint(from)
			case 1:
				return fmt.Sprintf("%d-%d", from, rapid.IntRange(from, high).Draw(t, "to"))
			case 2:
				return fmt.Sprintf("%d-%d/%d", from, rapid.IntRange(from, high).Draw(t, "to"), rapid.IntRange(1, max(1, high/2)).Draw(t, "step"))
			}
			return fmt.Sprintf("%d/%d", from, rapid.IntRange(1, max(1, high/2)).Draw(t, "step"))
		})
		return rapid.Custom(func(t *rapid.T) string {
			switch rapid.IntRange(0, 3).Draw(t, "field") {
			case 0:
				return "*"
			case 1:
				if forSecond && high < 32 && high != 23 {
					return "*"
				}
				return fmt.Sprintf("*/%d", rapid.IntRange(1, max(1, high/2)).Draw(t, "step"))
			}
			return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), ",")
		})
	}
	weekdays := 7
	if forSecond {
		weekdays = 6
	}
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join([]string{
			field(0, 59).Draw(t, "minute"), field(0, 23).Draw(t, "hour"), field(1, 31).Draw(t, "day"),
			field(1, 12).Draw(t, "month"), field(0, weekdays).Draw(t, "weekday"),
		}, " ")
	})
}

// TestSecondParserAgrees compares with another implementation where both have the same
// rules: in UTC, where clocks do not change.
func TestSecondParserAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := expressions(true).Draw(t, "cron")
		c, err := parseCron(text)
		other, otherErr := second.ParseStandard("TZ=UTC " + text)
		if err != nil || otherErr != nil {
			t.Fatalf("%q: %v, %v", text, err, otherErr)
		}
		at := time.Unix(rapid.Int64Range(0, 2_000_000_000).Draw(t, "after"), 0).UTC()
		for range 5 {
			due, want := c.next(at, time.UTC), other.Next(at)
			if want.IsZero() { // it searches five years
				return
			}
			if !due.Equal(want) {
				t.Fatalf("%q after %v: due at %v, want %v", text, at, due, want)
			}
			at = due
		}
	})
}

// changes are the clock changes of a zone in a range of years.
func changes(zone *time.Location, years [2]int) []time.Time {
	var all []time.Time
	at := time.Date(years[0], 1, 1, 0, 0, 0, 0, time.UTC)
	for {
		_, end := at.In(zone).ZoneBounds()
		if end.IsZero() || end.Year() >= years[1] {
			return all
		}
		all, at = append(all, end.UTC()), end
	}
}

// wall is what the clocks of a zone show, written as UTC.
func wall(at time.Time, zone *time.Location) time.Time {
	local := at.In(zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
}

// slowTimes computes the due times within two instants minute by minute: the instants
// whose local time matches, or for named times the first instant at which the clocks show
// that time or a later one.
func slowTimes(c *cron, from, to time.Time, zone *time.Location) []time.Time {
	matches := func(local time.Time) bool {
		return c.matchesDay(local) && c.hour>>local.Hour()&1 == 1 && c.minute>>local.Minute()&1 == 1
	}
	var times []time.Time
	if c.elapsed {
		for at := from.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
			if matches(at.In(zone)) {
				times = append(times, at)
			}
		}
		return times
	}
	// The clocks may have shown a later time before from.
	reached := wall(from.Add(-3*time.Hour), zone)
	for at := from.Add(-3 * time.Hour); !at.After(to); at = at.Add(time.Minute) {
		due := false
		for shows := wall(at, zone); reached.Before(shows); {
			reached = reached.Add(time.Minute)
			due = due || matches(reached)
		}
		if due && at.After(from) {
			times = append(times, at)
		}
	}
	return times
}

// checkAround compares the due times of an expression around an instant with slowTimes.
func checkAround(t interface{ Fatalf(string, ...any) }, zone *time.Location, text string, instant time.Time) {
	c, err := parseCron(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	from, to := instant.Add(-30*time.Hour), instant.Add(30*time.Hour)
	want := slowTimes(&c, from, to, zone)
	var got []time.Time
	for at := c.next(from, zone); !at.IsZero() && !at.After(to); at = c.next(at, zone) {
		got = append(got, at)
	}
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Fatalf("%s %q around %v: due at\n%v, want\n%v", zone, text, instant, got, want)
	}
}

// Years after 2037 are in no table of a zone, and its rule alone says when clocks change.
func TestLeapYearByRuleHasLastDay(t *testing.T) {
	volume.InFull(t)
	for _, z := range zones {
		zone := mustZone(t, z.name)
		for _, text := range []string{"0 12 * * *", "*/10 * * * *", "30 23 31 12 *", "0 0 1 1 *", "59 * 31 12 *"} {
			for _, year := range []int{2040, 2041, 2044, 2100, 2400} {
				checkAround(t, zone, text, time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC))
			}
		}
	}
}

func TestDueTimesAroundClockChanges(t *testing.T) {
	volume.InFull(t)
	fixed := []string{"0 * * * *", "*/7 * * * *", "30 2 * * *", "0 0 * * *", "1 0 * * *", "59 23 * * *", "*/10 1-3 * * *", "0 */3 * * *", "15 0-23 * * *", "30 1,2 * * SUN", "0 3 31 * *"}
	for _, z := range zones {
		zone := mustZone(t, z.name)
		found := changes(zone, z.years)
		if z.name != "UTC" && len(found) < 5 {
			t.Fatalf("%s has %d clock changes", z.name, len(found))
		}
		for _, text := range fixed {
			for _, change := range found {
				checkAround(t, zone, text, change)
			}
		}
		if len(found) == 0 {
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			checkAround(t, zone, expressions(false).Draw(t, "cron"), rapid.SampledFrom(found).Draw(t, "change"))
		})
	}
}

func TestYearsHaveEveryDay(t *testing.T) {
	volume.InFull(t)
	for _, z := range zones[:3] {
		zone := mustZone(t, z.name)
		for text, perDay := range map[string]int{"30 2 * * *": 1, "0 0,1,2,3,12 * * *": 5} {
			c := mustCron(t, text)
			at, days := time.Date(2024, 1, 1, 0, 0, 0, 0, zone).Add(-time.Second), make(map[string]int)
			for end := time.Date(2032, 1, 1, 0, 0, 0, 0, zone); ; {
				if at = c.next(at, zone); !at.Before(end) {
					break
				}
				days[at.In(zone).Format(time.DateOnly)]++
			}
			if len(days) != 2922 {
				t.Errorf("%s %q is due on %d days of eight years", z.name, text, len(days))
			}
			for day, n := range days {
				// In a gap two times can be the same instant.
				if n != perDay && !(n == perDay-1 && perDay > 1) {
					t.Errorf("%s %q is due %d times on %s", z.name, text, n, day)
				}
			}
		}
	}
}
