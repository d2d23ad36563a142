package broker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// searched returns the ids that a search finds.
func (b *bench) searched(c broker.Caller, queue string, s *broker.Search) (ids []string) {
	b.t.Helper()
	for m, err := range c.Search(b.t.Context(), queue, s) {
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	return ids
}

// TestSearchFindsByEveryCondition: CNT-2 for what only the broker looks at, and for what queries have.
func TestSearchFindsByEveryCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		old := b.send(c, "orders", "old")
		time.Sleep(time.Hour)
		sent, err := c.Send(t.Context(), "orders", []broker.Outgoing{
			{Outgoing: driver.Outgoing{Body: []byte("total 4711")}}, {Outgoing: driver.Outgoing{Body: []byte("b"), Group: "g"}},
			{Outgoing: driver.Outgoing{Body: []byte("c"), Priority: 3}}, {Outgoing: driver.Outgoing{Body: []byte("d"), Attributes: map[string]string{"a": "1"}}},
			{Outgoing: driver.Outgoing{Body: []byte("e"), Delay: time.Hour}},
		})
		if err != nil {
			t.Fatal(err)
		}
		dead := b.send(c, "dying", "f")
		for _, d := range b.receive(c, "dying", 1) {
			if err := c.DeadLetter(t.Context(), "dying", []broker.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
				t.Fatal(err)
			}
		}
		zero, three := 0, 3
		for name, s := range map[string]struct {
			queue  string
			search broker.Search
			want   []string
		}{
			"text":      {"orders", broker.Search{Text: "471"}, []string{sent[0].ID}},
			"group":     {"orders", broker.Search{Group: "g"}, []string{sent[1].ID}},
			"priority":  {"orders", broker.Search{Priority: &three}, []string{sent[2].ID}},
			"attribute": {"orders", broker.Search{Query: driver.Query{Attributes: map[string]string{"a": "1"}}}, []string{sent[3].ID}},
			"age":       {"orders", broker.Search{Query: driver.Query{OlderThan: time.Minute}}, []string{old}},
			"state":     {"orders", broker.Search{Query: driver.Query{States: []driver.State{driver.StateDelayed}}}, []string{sent[4].ID}},
			"id":        {"orders", broker.Search{Query: driver.Query{ID: sent[1].ID}}, []string{sent[1].ID}},
			"id, other": {"orders", broker.Search{Query: driver.Query{ID: sent[1].ID}, Text: "x"}, nil},
			"two":       {"orders", broker.Search{Priority: &zero, Text: "b", Group: "g"}, []string{sent[1].ID}},
			"reason":    {"dying", broker.Search{Query: driver.Query{Reason: driver.ReasonFatal}}, []string{dead}},
			"none":      {"orders", broker.Search{Text: "nowhere"}, nil},
		} {
			if got := b.searched(c, s.queue, &s.search); !slices.Equal(got, s.want) || s.search.Cursor != "" || s.search.Cut {
				t.Errorf("%s: got %v, cursor %q, cut %v; want %v, and the end", name, got, s.search.Cursor, s.search.Cut, s.want)
			}
		}
	})
}

// TestSearchGoesOnByCursor: bounded searches, one after the other, look at each message once and say how many.
func TestSearchGoesOnByCursor(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	var ready, delayed []string
	for i := range 60 {
		ready = append(ready, b.send(c, "orders", fmt.Sprint("message ", i%2)))
		sent, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: fmt.Append(nil, "message ", i%2), Delay: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		delayed = append(delayed, sent[0].ID)
	}
	var found []string
	looked := make(map[driver.State]int)
	s := broker.Search{Text: "message 1", Most: 25}
	for steps := 0; ; steps++ {
		found = append(found, b.searched(c, "orders", &s)...)
		for state, n := range s.Looked {
			if n > 25 {
				t.Errorf("step %d looked at %d %s messages, want 25 at most", steps, n, state)
			}
			looked[state] += n
		}
		if s.Cursor == "" {
			break
		}
		if !s.Cut || steps > 5 {
			t.Fatalf("step %d: cut %v, cursor %q", steps, s.Cut, s.Cursor)
		}
		s.Cut = false
	}
	slices.Sort(found)
	var want []string
	for i := 1; i < 60; i += 2 {
		want = append(want, ready[i], delayed[i])
	}
	slices.Sort(want)
	if !slices.Equal(found, want) || looked[driver.StateReady] != 60 || looked[driver.StateDelayed] != 60 {
		t.Errorf("found %d, looked at %v; want %d of 60 ready and 60 delayed", len(found), looked, len(want))
	}
	s = broker.Search{Query: driver.Query{Limit: 7}}
	for _, part := range [][]string{ready[:7], ready[7:14]} {
		if got := b.searched(c, "orders", &s); !slices.Equal(got, part) || s.Cursor == "" || s.Cut {
			t.Errorf("got %v, cursor %q; want %v", got, s.Cursor, part)
		}
	}
}

// TestSearchIsBoundedByTime: a search that has used its time looks at the least, in each state.
func TestSearchIsBoundedByTime(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	for range 30 {
		b.send(c, "orders", "x")
	}
	s := broker.Search{Text: "nowhere", Least: 10, Until: time.Now()}
	if got := b.searched(c, "orders", &s); got != nil || s.Looked[driver.StateReady] != 10 || !s.Cut || s.Cursor == "" {
		t.Errorf("got %v, looked %v, cut %v, cursor %q; want 10 looked at", got, s.Looked, s.Cut, s.Cursor)
	}
}

func TestSearchIsRefused(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.send(b.as(""), "orders", "x")
	for what, refused := range map[string]struct {
		caller broker.Caller
		search broker.Search
		code   driver.Code
	}{
		"without peek":             {b.as("", capability.Operations(capability.OpSend)), broker.Search{}, driver.ErrForbidden},
		"of another tenant":        {b.as("acme"), broker.Search{}, driver.ErrNotFound},
		"from no cursor":           {b.as(""), broker.Search{Cursor: "nonsense"}, driver.ErrInvalid},
		"from no place":            {b.as(""), broker.Search{Cursor: "rnonsense"}, driver.ErrInvalid},
		"from one of another kind": {b.as(""), broker.Search{Cursor: "r", Query: driver.Query{Reason: driver.ReasonFatal}}, driver.ErrInvalid},
	} {
		for _, err := range refused.caller.Search(t.Context(), "orders", &refused.search) {
			expectCode(t, err, refused.code, "a search "+what)
		}
	}
	var s broker.Search
	expectCode(t, s.Page("", time.Hour), driver.ErrInvalid, "a search for an hour")
}

func FuzzSearchCursor(f *testing.F) {
	f.Add("r.d.f.x")
	f.Add("rAQE.xAQE")
	f.Add("..\x00")
	b := memory(f, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "x")
	f.Fuzz(func(t *testing.T, cursor string) {
		s := broker.Search{Cursor: cursor}
		for _, err := range c.Search(t.Context(), "orders", &s) {
			if err != nil {
				expectCode(t, err, driver.ErrInvalid, "a search from "+cursor)
			}
		}
	})
}

// TestNewestFindsLastOfMany: CNT-2 through the broker, over messages that are gone and for conditions, within its bounds.
func TestNewestFindsLastOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		old := b.send(c, "orders", "old")
		held := b.receive(c, "orders", 1)
		for range 700 {
			b.send(c, "orders", "gone")
		}
		for left := 700; left > 0; {
			var receipts []string
			for _, d := range b.receive(c, "orders", min(left, 100)) {
				receipts = append(receipts, d.Receipt)
			}
			if err := c.Ack(t.Context(), "orders", receipts); err != nil {
				t.Fatal(err)
			}
			left -= len(receipts)
		}
		if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: held[0].Receipt}}); err != nil {
			t.Fatal(err)
		}
		newest := func(s broker.Search) (ids []string, cut bool) {
			t.Helper()
			s.Query.States = []driver.State{driver.StateReady}
			s.Most = max(s.Most, 5_000)
			found, err := c.Newest(t.Context(), "orders", &s)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range found {
				ids = append(ids, m.ID)
			}
			return ids, s.Cut
		}
		if got, cut := newest(broker.Search{Query: driver.Query{Limit: 2}}); !slices.Equal(got, []string{old}) || cut {
			t.Errorf("behind many that are gone: got %q, cut %v; want %q", got, cut, old)
		}
		var sent []string
		for i := range 300 {
			sent = append(sent, b.send(c, "orders", fmt.Sprintf("number %d.", i)))
		}
		if got, cut := newest(broker.Search{Query: driver.Query{Limit: 2}}); !slices.Equal(got, []string{sent[299], sent[298]}) || cut {
			t.Errorf("got %q, cut %v; want the newest first: %q", got, cut, sent[298:])
		}
		if got, _ := newest(broker.Search{Query: driver.Query{Limit: 2}, Text: "number 7."}); !slices.Equal(got, []string{sent[7]}) {
			t.Errorf("one of the first: got %q, want %q", got, sent[7])
		}
		bounded := broker.Search{Query: driver.Query{Limit: 2, States: []driver.State{driver.StateReady}}, Text: "number 7.", Most: 10}
		if found, err := c.Newest(t.Context(), "orders", &bounded); err != nil || len(found) > 0 || !bounded.Cut || bounded.Looked[driver.StateReady] != 64 {
			t.Errorf("at most 10 and the first look: found %d, cut %v, looked at %v, %v", len(found), bounded.Cut, bounded.Looked, err)
		}
		if _, err := c.Newest(t.Context(), "orders", &broker.Search{Most: 1, Query: driver.Query{Limit: 1, States: []driver.State{driver.StateDelayed}}}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("delayed ones: %v", err)
		}
	})
}
