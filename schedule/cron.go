package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// maxCronBytes bounds the length of a cron expression.
const maxCronBytes = 256

// A cron is a parsed expression: a set of bits for each field.
type cron struct {
	minute, hour, day, month, weekday uint64
	// anyDay says that the day of the month or of the week begins with *, so that a day
	// has to match both.
	anyDay bool
	// elapsed says that the expression follows elapsed time and names no local times.
	elapsed bool
}

// A cronField is what one field of an expression allows.
type cronField struct {
	name      string
	low, high int
	names     []string // of low, low+1, …
}

var (
	cronFields = [...]cronField{
		{"minute", 0, 59, nil},
		{"hour", 0, 23, nil},
		{"day of the month", 1, 31, nil},
		{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
		{"day of the week", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
	}
	cronMacros = map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}
)

const allHours = 1<<24 - 1

// parseCron parses an expression. The error says which field is wrong.
func parseCron(text string) (cron, error) {
	if len(text) > maxCronBytes {
		return cron{}, fmt.Errorf("%d bytes are over the limit of %d", len(text), maxCronBytes)
	}
	if strings.HasPrefix(text, "@") {
		expanded, ok := cronMacros[strings.ToLower(text)]
		if !ok {
			return cron{}, fmt.Errorf("unknown expression %q; want @yearly, @monthly, @weekly, @daily or @hourly", text)
		}
		text = expanded
	}
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) {
		return cron{}, fmt.Errorf("%q has %d fields; want 5: minute, hour, day of the month, month, day of the week", text, len(fields))
	}
	var sets [len(cronFields)]uint64
	for i, field := range fields {
		set, err := cronFields[i].parse(field)
		if err != nil {
			return cron{}, fmt.Errorf("%s %q: %w", cronFields[i].name, field, err)
		}
		sets[i] = set
	}
	c := cron{minute: sets[0], hour: sets[1], day: sets[2], month: sets[3], weekday: sets[4]}
	c.weekday = c.weekday&0x7f | c.weekday>>7 // 7 is Sunday too
	c.anyDay = strings.HasPrefix(fields[2], "*") || strings.HasPrefix(fields[4], "*")
	c.elapsed = strings.HasPrefix(fields[1], "*") || c.hour == allHours
	return c, nil
}

// parse returns the set of a field.
func (f *cronField) parse(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		from, to, err := f.span(span, stepped)
		if err != nil {
			return 0, err
		}
		step := 1
		if stepped {
			if step, err = number(stepText); err != nil || step < 1 || step > f.high {
				return 0, fmt.Errorf("invalid step %q; want 1 to %d", stepText, f.high)
			}
		}
		for value := from; value <= to; value += step {
			set |= 1 << value
		}
	}
	return set, nil
}

// span returns the bounds of *, a value or a range. A value with a step goes on to the
// highest one.
func (f *cronField) span(text string, stepped bool) (from, to int, err error) {
	highest := f.high
	if f.names != nil {
		highest = f.low + len(f.names) - 1 // 7 is Sunday again
	}
	if text == "*" {
		return f.low, highest, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if from, err = f.value(first); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		to, err = f.value(last)
	case stepped:
		to = max(from, highest)
	default:
		to = from
	}
	if err == nil && to < from {
		err = fmt.Errorf("the range %q ends before it begins", text)
	}
	return from, to, err
}

// value returns a number or the number of a name.
func (f *cronField) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(name, text) {
			return f.low + i, nil
		}
	}
	n, err := number(text)
	if err != nil || n < f.low || n > f.high {
		return 0, fmt.Errorf("invalid value %q; want %d to %d", text, f.low, f.high)
	}
	return n, nil
}

// number reads digits only; strconv reads signs too.
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err
}

// matchesDay reports whether a local date is due. The clock of date is ignored.
func (c *cron) matchesDay(date time.Time) bool {
	if c.month>>int(date.Month())&1 == 0 {
		return false
	}
	day, weekday := c.day>>date.Day()&1 == 1, c.weekday>>int(date.Weekday())&1 == 1
	if c.anyDay {
		return day && weekday
	}
	return day || weekday
}

// searchDays bounds the search for the next time. A rare day, such as a first of February
// that is a Monday, comes every 12 years at least.
const searchDays = 40 * 366

// next returns the first time after a time at which the expression is due in a zone, and
// the zero time if it never is.
func (c *cron) next(after time.Time, zone *time.Location) time.Time {
	if c.elapsed {
		return c.nextElapsed(after, zone)
	}
	local := after.In(zone)
	// A gap can swallow a whole date, whose times are then due on the next one.
	date := time.Date(local.Year(), local.Month(), local.Day()-2, 0, 0, 0, 0, time.UTC)
	for range searchDays {
		if c.matchesDay(date) {
			if due := c.namedOn(date, after, zone); !due.IsZero() {
				return due
			}
		}
		date = date.AddDate(0, 0, 1)
	}
	return time.Time{}
}

// namedOn returns the first named time of a date that is after a time, or zero.
func (c *cron) namedOn(date, after time.Time, zone *time.Location) time.Time {
	at := func(hour, minute int) time.Time {
		return instant(date.Add(time.Duration(hour)*time.Hour+time.Duration(minute)*time.Minute), zone)
	}
	// Later local times are never earlier instants.
	if last := at(bits.Len64(c.hour)-1, bits.Len64(c.minute)-1); !last.After(after) {
		return time.Time{}
	}
	for hour := range 24 {
		if c.hour>>hour&1 == 0 || !at(hour, bits.Len64(c.minute)-1).After(after) {
			continue
		}
		for minute := range 60 {
			if due := at(hour, minute); c.minute>>minute&1 == 1 && due.After(after) {
				return due
			}
		}
	}
	return time.Time{}
}

// nextElapsed returns the first instant after a time whose local time matches, or zero.
func (c *cron) nextElapsed(after time.Time, zone *time.Location) time.Time {
	at := after.Truncate(time.Second).UTC()
	for end := at.AddDate(0, 0, searchDays); at.Before(end); {
		local := at.In(zone)
		onDay, inHour := c.matchesDay(local), c.hour>>local.Hour()&1 == 1
		if onDay && inHour && c.minute>>local.Minute()&1 == 1 && local.Second() == 0 && at.After(after) {
			return at
		}
		// On to the next minute, hour or date, or to the clock change before that.
		rest := time.Minute - time.Duration(local.Second())*time.Second
		if !onDay || !inHour {
			rest += time.Duration(59-local.Minute()) * time.Minute
		}
		if !onDay {
			rest += time.Duration(23-local.Hour()) * time.Hour
		}
		at = at.Add(rest)
		if change := periodEnd(local); !change.IsZero() && change.Before(at) {
			at = change.UTC()
		}
	}
	return time.Time{}
}

// periodEnd returns an instant after a local time up to which its zone does not change
// its offset, and zero if it never does. Package time counts 365 days for each year that
// only the rule at the end of a zone's table covers, so on the last day of a leap year
// its end of the period has passed already.
func periodEnd(local time.Time) time.Time {
	_, end := local.ZoneBounds()
	if !end.IsZero() && !end.After(local) {
		return time.Date(local.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return end
}

// maxOffset is more than any zone differs from UTC.
const maxOffset = 26 * time.Hour

// instant returns the first instant at which the clocks of a zone show a local time, which
// is written as if it were UTC, or the first instant after the gap that it is in.
func instant(local time.Time, zone *time.Location) time.Time {
	at := local.Add(-maxOffset)
	for {
		period := at.In(zone)
		start, _ := period.ZoneBounds()
		end := periodEnd(period)
		_, seconds := period.Zone()
		found := local.Add(-time.Duration(seconds) * time.Second)
		switch {
		case !start.IsZero() && found.Before(start):
			return start.UTC()
		case end.IsZero() || found.Before(end):
			return found
		}
		at = end
	}
}
