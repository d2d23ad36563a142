package schedule

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

var created = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// hourly is a schedule that is due every hour on the hour.
func hourly() Schedule {
	return Schedule{Name: "hourly", Cron: "@hourly", Queue: "jobs", Created: created}
}

func mustCompile(t testing.TB, s Schedule) *Calendar {
	t.Helper()
	c, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWrongFieldsAreNamed(t *testing.T) {
	for field, cases := range map[string][]func(s *Schedule){
		"Name":       {func(s *Schedule) { s.Name = "" }, func(s *Schedule) { s.Name = strings.Repeat("x", 129) }, func(s *Schedule) { s.Name = "a\nb" }, func(s *Schedule) { s.Name = "\xff" }},
		"Cron":       {func(s *Schedule) { s.Cron = "x" }, func(s *Schedule) { s.Cron = "0 0 30 2 *" }, func(s *Schedule) { s.Cron = "" }, func(s *Schedule) { s.Every = time.Hour }},
		"Every":      {func(s *Schedule) { s.Cron, s.Every = "", time.Millisecond }, func(s *Schedule) { s.Cron, s.Every = "", 400*24*time.Hour }, func(s *Schedule) { s.Cron, s.Every = "", -time.Hour }, func(s *Schedule) { s.Cron, s.Every = "", time.Hour+1 }},
		"Zone":       {func(s *Schedule) { s.Zone = "Mars/Olympus" }, func(s *Schedule) { s.Zone = "Local" }, func(s *Schedule) { s.Cron, s.Every, s.Zone = "", time.Hour, "UTC" }},
		"Queue":      {func(s *Schedule) { s.Queue = "" }},
		"CatchUp":    {func(s *Schedule) { s.CatchUp = "some" }},
		"Created":    {func(s *Schedule) { s.Created = time.Time{} }},
		"Body":       {func(s *Schedule) { s.Body = make([]byte, maxBodyBytes+1) }},
		"Attributes": {func(s *Schedule) { s.Attributes = map[string]string{"": "x"} }},
	} {
		for i, change := range cases {
			s := hourly()
			change(&s)
			_, err := s.Compile()
			if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrInvalid || e.Field != field {
				t.Errorf("%s, case %d: the error is %v", field, i, err)
			}
		}
	}
}

func TestIntervalIsAnchoredAtCreation(t *testing.T) {
	c := mustCompile(t, Schedule{Name: "often", Every: 90 * time.Minute, Queue: "jobs", Created: created})
	for after, want := range map[time.Duration]time.Duration{
		-1000 * time.Hour: 90 * time.Minute, 0: 90 * time.Minute, time.Hour: 90 * time.Minute,
		90*time.Minute - 1: 90 * time.Minute, 90 * time.Minute: 3 * time.Hour, 1000 * time.Hour: 1000*time.Hour + 30*time.Minute,
	} {
		if got := c.Next(created.Add(after)).Sub(created); got != want {
			t.Errorf("after %v it is due at %v, want %v", after, got, want)
		}
	}
	far := time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := c.Next(far); !got.After(far) || got.Sub(far) > 90*time.Minute {
		t.Errorf("after 500 years it is due at %v", got)
	}
}

func TestMissedTimesAreCaughtUpByTheRule(t *testing.T) {
	at := func(hours float64) time.Time { return created.Add(time.Duration(hours * float64(time.Hour))) }
	for _, c := range []struct {
		name      string
		catchUp   CatchUp
		paused    bool
		last, now float64
		send      []float64
		through   float64
	}{
		{"nothing is due", CatchUpOne, false, 1, 1.5, nil, 1},
		{"one", CatchUpOne, false, 1, 4.5, []float64{4}, 4},
		{"one is the default", "", false, 1, 4.5, []float64{4}, 4},
		{"at the instant", CatchUpOne, false, 1, 2, []float64{2}, 2},
		{"all", CatchUpAll, false, 1, 4.5, []float64{2, 3, 4}, 4},
		{"none, late", CatchUpNone, false, 1, 4.5, nil, 4},
		{"none, in time", CatchUpNone, false, 1, 4 + 1.0/60, []float64{4}, 4},
		{"none, long ago", CatchUpNone, false, -1, 1000.5, nil, 1000},
		{"paused", CatchUpAll, true, 1, 4.5, nil, 4},
		{"a clock that went back", CatchUpAll, false, 4, 1, nil, 4},
		{"before its creation", CatchUpAll, false, -10, 1, []float64{1}, 1},
	} {
		s := hourly()
		s.CatchUp, s.Paused = c.catchUp, c.paused
		send, through := mustCompile(t, s).Due(at(c.last), at(c.now))
		var want []time.Time
		for _, hours := range c.send {
			want = append(want, at(hours))
		}
		if !slices.EqualFunc(send, want, time.Time.Equal) || !through.Equal(at(c.through)) {
			t.Errorf("%s: sends %v through %v, want %v through %v", c.name, send, through, want, at(c.through))
		}
	}
}

func TestCatchUpIsBounded(t *testing.T) {
	s := hourly()
	s.CatchUp = CatchUpAll
	c := mustCompile(t, s)
	last, total := time.Time{}, 0
	for now := created.Add(2500 * time.Hour); ; {
		send, through := c.Due(last, now)
		if len(send) == 0 {
			break
		}
		if len(send) > maxDue {
			t.Fatalf("%d at once", len(send))
		}
		total, last = total+len(send), through
	}
	if total != 2500 {
		t.Errorf("%d were due", total)
	}
}

// TestRunnersSendEachTimeOnce: at whatever times Due is called, each due time is sent once
// with CatchUpAll, and no time is sent twice or out of order with the other rules.
func TestRunnersSendEachTimeOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{Name: "x", Queue: "jobs", Created: created, CatchUp: rapid.SampledFrom([]CatchUp{CatchUpNone, CatchUpOne, CatchUpAll}).Draw(t, "rule")}
		if rapid.Bool().Draw(t, "interval") {
			s.Every = time.Duration(rapid.IntRange(1000, 100_000_000).Draw(t, "every")) * time.Millisecond
		} else {
			s.Cron = rapid.SampledFrom([]string{"*/15 * * * *", "30 2 * * *", "0 */5 * * MON", "7 1,2,3 * * *"}).Draw(t, "cron")
			s.Zone = rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}).Draw(t, "zone")
		}
		c, err := s.Compile()
		if err != nil {
			t.Fatal(err)
		}
		last, now, before := time.Time{}, created, created
		var sent []time.Time
		for _, minutes := range rapid.SliceOfN(rapid.IntRange(-30, 6000), 1, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(minutes) * time.Minute)
			for {
				send, through := c.Due(last, now)
				if through.Before(last) {
					t.Fatalf("the record goes back from %v to %v", last, through)
				}
				for _, due := range send {
					if !due.After(before) || due.After(now) {
						t.Fatalf("%v is sent at %v after %v", due, now, before)
					}
					before = due
				}
				sent = append(sent, send...)
				last = through
				if len(send) < maxDue {
					break
				}
			}
		}
		if s.CatchUp != CatchUpAll {
			return
		}
		var want []time.Time
		for due := c.Next(created); !due.After(last); due = c.Next(due) {
			want = append(want, due)
		}
		if !slices.EqualFunc(sent, want, time.Time.Equal) {
			t.Fatalf("sent were %v, want %v", sent, want)
		}
	})
}

func TestScheduleKeepsItsJSON(t *testing.T) {
	s := Schedule{
		Name: "report", Cron: "30 6 * * MON-FRI", Zone: "Europe/Berlin", Queue: "reports", Body: []byte("{}"),
		Attributes: map[string]string{"kind": "report"}, CatchUp: CatchUpNone, Paused: true, Created: created,
	}
	const want = `{"name":"report","cron":"30 6 * * MON-FRI","zone":"Europe/Berlin","queue":"reports","body":"e30=",` +
		`"attributes":{"kind":"report"},"catch_up":"none","paused":true,"created":"2026-01-01T12:00:00Z"}`
	data, err := json.Marshal(s)
	if err != nil || string(data) != want {
		t.Errorf("it is written as %s, %v", data, err)
	}
	var read Schedule
	if err := json.Unmarshal(data, &read); err != nil || !read.Equal(&s) {
		t.Errorf("it is read as %+v, %v", read, err)
	}
	for _, wrong := range []string{
		"", "null", "[]", want + "{}", strings.Replace(want, `"cron"`, `"crown"`, 1), strings.Replace(want, `"cron"`, `"every_ms":5,"cron"`, 1),
		`{"name":"a","every_ms":-1,"queue":"q","created":"2026-01-01T12:00:00Z"}`, `{"name":"a","every_ms":99999999999999999,"queue":"q","created":"2026-01-01T12:00:00Z"}`,
	} {
		if _, err := Parse([]byte(wrong)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: the error is %v", wrong, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []Schedule{
		hourly(), {Name: "often", Every: 90 * time.Second, Queue: "jobs", Created: created, CatchUp: CatchUpAll},
		{Name: "report", Cron: "*/5 2-4 1,15 FEB SUN", Zone: "America/New_York", Queue: "jobs", Body: []byte{0}, Created: created},
	} {
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(again)
		if err != nil || !read.Equal(&s) {
			t.Fatalf("%s is read as %+v, %v", again, read, err)
		}
		c := mustCompile(t, s)
		at := s.Created
		for range 3 {
			next := c.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("%s: after %v it is due at %v", again, at, next)
			}
			at = next
		}
	})
}
