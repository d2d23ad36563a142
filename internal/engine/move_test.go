package engine

import (
	"fmt"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// TestMoveLooksAtEachMessageOnce: otherwise a move takes time quadratic in the number of
// waiting messages.
func TestMoveLooksAtEachMessageOnce(t *testing.T) {
	const messages, page = 2000, 100
	s := New(driver.Config{}, 1)
	for i := range messages {
		s.PublishNow(at(0), s.StageSend(at(0), Content{ID: fmt.Sprint(i)}, 0))
	}
	looks, until := 0, s.Tail()
	stays := func(*Entry) bool { looks++; return false }
	if found, looked := s.Movable(at(0), 0, until, page, stays); len(found) > 0 || looked != until || looks != messages {
		t.Errorf("found %d, looked at %d up to %d; want none, %d and %d", len(found), looks, looked, messages, until)
	}
	goes := func(*Entry) bool { return true }
	for last := uint64(0); last < until; {
		var found []*Entry
		found, last = s.Movable(at(0), last, until, page, goes)
		if s.ready.gone > 0 {
			t.Fatalf("%d moved messages are still in the order", s.ready.gone)
		}
		for _, e := range found {
			if s.Withdraw(at(0), MarkOf(e)) == nil {
				t.Fatalf("%s cannot go", e.ID)
			}
		}
	}
	if stats := s.Stats(at(0)); stats != (driver.Stats{}) {
		t.Errorf("%+v are left", stats)
	}
}
