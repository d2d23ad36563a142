package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// deadOf returns a dead letter with an error.
func deadOf(text string) broker.Peeked {
	var p broker.Peeked
	p.State, p.Reason, p.LastError = driver.StateDead, driver.ReasonFatal, text
	return p
}

func TestCauseIgnoresWhatVaries(t *testing.T) {
	for _, same := range [][2]string{
		{"dial tcp 10.0.0.1:25: refused", "dial tcp 10.0.0.2:26: refused"},
		{`no order "a-1"`, `no order "b-2"`},
		{"after 3 s\nin step 4", "after 30 s in step 5"},
	} {
		x, y := deadOf(same[0]), deadOf(same[1])
		first, words := x.Cause()
		if second, _ := y.Cause(); first != second {
			t.Errorf("%q and %q have two causes: %s", same[0], same[1], words)
		}
	}
	x, y := deadOf("refused"), deadOf("timeout")
	first, _ := x.Cause()
	if second, _ := y.Cause(); first == second {
		t.Error("two errors have one cause")
	}
}

// FuzzCause: texts of errors, which workers write, are cut and stay one line.
func FuzzCause(f *testing.F) {
	f.Add("dial tcp 10.0.0.1:25: \"x\" refused\nafter 3 s")
	f.Fuzz(func(t *testing.T, text string) {
		p := deadOf(text)
		if id, words := p.Cause(); strings.ContainsAny(words, "\n\r\t") || len([]rune(words)) > 201 || len(id) != 12 {
			t.Errorf("%q becomes %s %q", text, id, words)
		}
	})
}

// causes returns the causes that a survey finds.
func (b *bench) causes(c broker.Caller, s *broker.Survey) []broker.Cause {
	b.t.Helper()
	found, err := c.Causes(b.t.Context(), "jobs", s)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// TestCausesAreCountedLargestFirst is CON-2: the causes of dead letters, with counts, first and last deaths and an example.
func TestCausesAreCountedLargestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.makeDead(c, "jobs", 1, `no order "4711"`)
		began := time.Now()
		for i := range 3 {
			time.Sleep(time.Minute)
			b.makeDead(c, "jobs", 1, fmt.Sprintf("refused after %d s", i))
		}
		s := broker.Survey{}
		got := b.causes(c, &s)
		if len(got) != 2 || s.Selected != 4 || s.Found != 2 || s.Looked[driver.StateDead] != 4 || s.Cut || s.Cursor != "" {
			t.Fatalf("%+v, %+v", got, s)
		}
		first := got[0]
		if first.Messages != 3 || first.Words != "refused after … s" || first.LastError != "refused after 0 s" || first.Reason != driver.ReasonFatal ||
			!first.First.Equal(began.Add(time.Minute)) || !first.Last.Equal(began.Add(3*time.Minute)) {
			t.Errorf("the largest is %+v", first)
		}
		for _, id := range []string{first.ID, got[1].ID} {
			search := broker.Search{Cause: id}
			if ids := b.searched(c, "jobs", &search); len(ids) == 0 || ids[0] != got[0].MessageID && ids[0] != got[1].MessageID || search.Looked[driver.StateReady] != 0 {
				t.Errorf("a search for the cause %s finds %v", id, ids)
			}
		}
		if largest := b.causes(c, &broker.Survey{Largest: 1}); len(largest) != 1 || largest[0] != first {
			t.Errorf("the largest alone is %+v", largest)
		}
		for name, s := range map[string]*broker.Survey{
			"cause": {Search: broker.Search{Cause: first.ID}}, "text": {Search: broker.Search{Text: "refused"}}, "age": {Search: broker.Search{Query: driver.Query{OlderThan: time.Minute}}},
		} {
			want := 3 // the last is too young for the age, and the first has no other condition
			if b.causes(c, s); s.Selected != want || s.Looked[driver.StateDead] != 4 {
				t.Errorf("%s: %d of %d selected, want %d of 4", name, s.Selected, s.Looked[driver.StateDead], want)
			}
		}
	})
}

// TestCausesAddUpByCursor: bounded surveys, one after the other, count each dead letter once.
func TestCausesAddUpByCursor(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	for i := range 60 {
		b.makeDead(c, "jobs", 1, []string{"refused", "timeout", "refused"}[i%3])
	}
	counts := make(map[string]int)
	s := broker.Survey{Search: broker.Search{Least: 10, Until: time.Now()}}
	for steps := 0; steps == 0 || s.Cursor != ""; steps++ {
		for _, cause := range b.causes(c, &s) {
			counts[cause.Words] += cause.Messages
		}
		if s.Looked[driver.StateDead] > 10 || steps > 7 {
			t.Fatalf("step %d looked at %d, cursor %q; want 10 at most", steps, s.Looked[driver.StateDead], s.Cursor)
		}
	}
	if counts["refused"] != 40 || counts["timeout"] != 20 {
		t.Errorf("counted %v", counts)
	}
}

// TestCausesHoldBoundedMemory: a survey ends where each dead letter has its own cause, and the next goes on.
func TestCausesHoldBoundedMemory(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	const dead = 1200
	roomy(t, c, "jobs")
	for i := range dead / 100 {
		sent := make([]broker.Outgoing, 100)
		if _, err := c.Send(t.Context(), "jobs", sent); err != nil {
			t.Fatal(err)
		}
		requests := make([]broker.DeadLetterRequest, 0, len(sent))
		for n, d := range b.receive(c, "jobs", 100) {
			word := strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprintf("%05d", 100*i+n))
			requests = append(requests, broker.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal, Error: word + strings.Repeat("\U0001F4EC", 600)})
		}
		if err := c.DeadLetter(t.Context(), "jobs", requests); err != nil {
			t.Fatal(err)
		}
	}
	found, s := 0, broker.Survey{}
	for steps := 0; steps == 0 || s.Cursor != ""; steps++ {
		all, bytes := b.causes(c, &s), 0
		for i := range all {
			bytes += len(all[i].Words) + len(all[i].LastError)
		}
		if found += len(all); bytes > 2<<20 || steps > 5 || s.Cut != (s.Cursor != "") {
			t.Fatalf("step %d: %d causes of %d bytes, cut %v, cursor %q", steps, len(all), bytes, s.Cut, s.Cursor)
		}
		if steps == 0 && !s.Cut {
			t.Error("one survey holds the causes of all")
		}
	}
	if found != dead {
		t.Errorf("found %d causes, want %d", found, dead)
	}
}

func TestCausesAreRefused(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.makeDead(b.as(""), "jobs", 1, "refused")
	for what, refused := range map[string]struct {
		caller broker.Caller
		survey broker.Survey
		code   driver.Code
	}{
		"without dlq":        {b.as("", capability.Operations(capability.OpPeek)), broker.Survey{}, driver.ErrForbidden},
		"of another tenant":  {b.as("acme"), broker.Survey{}, driver.ErrNotFound},
		"from no cursor":     {b.as(""), broker.Survey{Search: broker.Search{Cursor: "r"}}, driver.ErrInvalid},
		"of less than none":  {b.as(""), broker.Survey{Largest: -1}, driver.ErrInvalid},
		"of no known reason": {b.as(""), broker.Survey{Search: broker.Search{Query: driver.Query{Reason: "old"}}}, driver.ErrInvalid},
	} {
		_, err := refused.caller.Causes(t.Context(), "jobs", &refused.survey)
		expectCode(t, err, refused.code, "a survey "+what)
	}
	c := b.as("", capability.MessagesPerSecond(1))
	for range 200 {
		if _, err := c.Causes(t.Context(), "jobs", &broker.Survey{}); errors.Is(err, driver.ErrFull) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a token for 1 message per second read 200 errors at once")
}
