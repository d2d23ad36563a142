package deadletter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
)

// redrive sends letters back and checks how many.
func redrive(s *stage, choice selection, want deadletter.Redriven) {
	s.Helper()
	got, err := s.box.Redrive(s.Context(), choice, nil)
	s.Must(err)
	ruletest.Equal(s, "redriven", got, want)
}

// left checks what is in the box.
func left(s *stage, want ...string) {
	s.Helper()
	if got := s.bodies(); !slices.Equal(got, want) {
		s.Errorf("left are %v, want %v", got, want)
	}
	s.depth(len(want))
}

func TestLettersAreRedrivenByChoice(t *testing.T) {
	play(t, "DLQ-5", []rule{
		{"all", func(s *stage) {
			s.bury("a", "b", "c")
			redrive(s, selection{}, deadletter.Redriven{Moved: 3})
			left(s)
			s.ready(3)
			redrive(s, selection{}, deadletter.Redriven{})
		}},
		{"by id", func(s *stage) {
			ids := s.bury("a", "b", "c")
			redrive(s, selection{IDs: []string{ids[2], ids[0], "unknown"}}, deadletter.Redriven{Moved: 2})
			left(s, "b")
			redrive(s, selection{IDs: []string{}}, deadletter.Redriven{})
			left(s, "b")
		}},
		{"by predicate, and the others keep their order", func(s *stage) {
			s.bury("a1", "b1", "a2", "b2", "a3")
			redrive(s, selection{Match: func(l letter) bool { return strings.HasPrefix(l.Body, "b") }}, deadletter.Redriven{Moved: 2})
			left(s, "a1", "a2", "a3")
			s.ready(2)
		}},
		{"up to a limit, oldest first", func(s *stage) {
			s.bury("a", "b", "c", "d")
			redrive(s, selection{Limit: 2}, deadletter.Redriven{Moved: 2})
			left(s, "c", "d")
			redrive(s, selection{Limit: 1, Match: func(l letter) bool { return l.Body == "d" || l.Body == "c" }}, deadletter.Redriven{Moved: 1})
			left(s, "d")
			_, err := s.box.Redrive(s.Context(), selection{Limit: -1}, nil)
			s.Is(err, mailbox.ErrInvalid)
		}},
		{"more than fit into a batch", func(s *stage) {
			for range 30 {
				s.bury("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
			}
			redrive(s, selection{Match: func(l letter) bool { return l.Body != "e" }}, deadletter.Redriven{Moved: 270})
			s.depth(30)
			s.ready(270)
		}},
		{"each work once", func(s *stage) {
			s.box = (&deadletter.Policy[string]{Letters: s.letters, RequestID: func(body string) string { return body[:1] }}).Box(s.orders)
			s.bury("a1", "a2", "b1")
			options := &deadletter.RedriveOptions{Dedup: deadletter.NewSeen(100)}
			got, err := s.box.Redrive(s.Context(), selection{}, options)
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2, Duplicates: 1})
			left(s, "a2")
			got, err = s.box.Redrive(s.Context(), selection{}, options)
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Duplicates: 1})
			left(s, "a2")
		}},
		{"discarded by id or predicate, and not all by mistake", func(s *stage) {
			ids := s.bury("a", "b", "c", "d")
			removed, err := s.box.Discard(s.Context(), selection{IDs: ids[1:2]})
			s.Must(err)
			ruletest.Equal(s, "removed", removed, 1)
			removed, err = s.box.Discard(s.Context(), selection{Match: func(l letter) bool { return l.Body > "a" }, Limit: 1})
			s.Must(err)
			ruletest.Equal(s, "removed", removed, 1)
			left(s, "a", "d")
			_, err = s.box.Discard(s.Context(), selection{Limit: 1})
			s.Is(err, mailbox.ErrInvalid)
			s.ready(0)
		}},
	})
}

// pacer lets one thing happen at a time.
type pacer struct{ every time.Duration }

func (p *pacer) Wait(ctx context.Context) error {
	select {
	case <-time.After(p.every):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestRedrivingHasAPace(t *testing.T) {
	play(t, "DLQ-5", []rule{
		{"letters go back one at a time", func(s *stage) {
			s.bury("a", "b", "c")
			time.AfterFunc(90*time.Second, func() { s.ready(1) })
			got, err := s.box.Redrive(s.Context(), selection{}, &deadletter.RedriveOptions{Pace: &pacer{time.Minute}})
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 3})
			ruletest.Equal(s, "time", time.Since(s.Began), 3*time.Minute)
		}},
		{"and stay where they are when there is no more time", func(s *stage) {
			s.bury("a", "b", "c")
			ctx, cancel := context.WithTimeout(s.Context(), 90*time.Second)
			defer cancel()
			got, err := s.box.Redrive(ctx, selection{}, &deadletter.RedriveOptions{Pace: &pacer{time.Minute}})
			s.Is(err, context.DeadlineExceeded)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 1})
			left(s, "b", "c")
		}},
	})
}

func TestRedrivingLosesAndDoublesNothing(t *testing.T) {
	play(t, "DLQ-5", []rule{
		{"a full source says so, with what was moved before", func(s *stage) {
			s.bury("a", "b", "c")
			s.Must(s.Backend.ConfigureQueue(s.Context(), "orders", driver.Config{MaxMessages: 2}))
			got, err := s.box.Redrive(s.Context(), selection{}, nil)
			s.Is(err, mailbox.ErrFull)
			ruletest.Equal(s, "moved", got.Moved, 2)
			left(s, "c")
		}},
		{"a crash between sending and removing doubles nothing", func(s *stage) {
			if s.letters == nil {
				return // it is one step
			}
			s.bury("a")
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable, Times: 1})
			_, err := s.box.Redrive(s.Context(), selection{}, nil)
			s.Is(err, mailbox.ErrUnavailable)
			s.ready(1)
			redrive(s, selection{}, deadletter.Redriven{Moved: 1})
			s.ready(1)
			left(s)
		}},
		{"the count is kept, and the first id", func(s *stage) {
			ids := s.bury("a")
			for n := 1; n <= 3; n++ {
				redrive(s, selection{}, deadletter.Redriven{Moved: 1})
				m := s.take()
				if first := m.Attributes[deadletter.AttributeOriginalID]; m.ID != ids[0] && first != ids[0] {
					s.Errorf("the message is %s, first %s, want %s", m.ID, first, ids[0])
				}
				_, err := s.box.Bury(s.Context(), m, mailbox.ReasonFatal, errMilk)
				s.Must(err)
				found := 0
				for l, err := range s.box.Letters(s.Context()) {
					s.Must(err)
					ruletest.Equal(s, "redrives", l.Redrives, n)
					found++
				}
				ruletest.Equal(s, "letters", found, 1)
			}
		}},
		{"nobody else is kept from the letters for long", func(s *stage) {
			s.bury("a", "b")
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpSend, Err: mailbox.ErrUnavailable})
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpRedrive, Err: mailbox.ErrUnavailable})
			_, err := s.box.Redrive(s.Context(), selection{}, nil)
			s.Is(err, mailbox.ErrUnavailable)
			if s.letters != nil {
				stats, err := s.letters.Stats(s.Context())
				s.Must(err)
				ruletest.Equal(s, "letters", stats, mailbox.Stats{Ready: 2})
			}
		}},
		{"one that dies again meanwhile is left to the next time", func(s *stage) {
			s.bury("a", "b")
			again := 0
			redrive(s, selection{Match: func(letter) bool {
				if stats, err := s.orders.Stats(s.Context()); err == nil && stats.Ready > 0 && again < 10 {
					again++
					_, err := s.box.Bury(s.Context(), s.take(), mailbox.ReasonFatal, errMilk)
					s.Must(err)
				}
				return true
			}}, deadletter.Redriven{Moved: 2})
			if s.letters != nil && again == 0 {
				s.Error("none has died again")
			}
			s.ready(2 - again)
			s.depth(again)
		}},
		{"those that were not chosen are back at once, also after long", func(s *stage) {
			s.bury("a1", "b1", "a2", "b2")
			pace := &pacer{every: 4 * time.Minute} // longer, all in all, than a letter is held
			got, err := s.box.Redrive(s.Context(), selection{Match: func(l letter) bool { return l.Body[0] == 'b' }}, &deadletter.RedriveOptions{Pace: pace})
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2})
			ruletest.Equal(s, "time", time.Since(s.Began), 8*time.Minute)
			left(s, "a1", "a2")
			if s.letters != nil {
				stats, err := s.letters.Stats(s.Context())
				s.Must(err)
				ruletest.Equal(s, "letters", stats, mailbox.Stats{Ready: 2})
			}
		}},
		{"a letter that is lost to somebody else is not discarded", func(s *stage) {
			if s.letters == nil {
				return // nobody else can have it
			}
			s.bury("a")
			removed, err := s.box.Discard(s.Context(), selection{Match: func(letter) bool {
				s.Pass(6 * time.Minute) // longer than a scan holds it
				return true
			}})
			s.Must(err)
			ruletest.Equal(s, "removed", removed, 0)
			s.depth(1)
		}},
	})
}

func TestBuryingDoesNotLose(t *testing.T) {
	play(t, "DLQ-3", []rule{
		{"a write that fails changes nothing", func(s *stage) {
			_, err := s.orders.Send(s.Context(), "tea")
			s.Must(err)
			m := s.take()
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpSend, Err: mailbox.ErrFull})
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpDeadLetter, Err: mailbox.ErrFull})
			_, err = s.box.Bury(s.Context(), m, mailbox.ReasonFatal, errMilk)
			failed, ok := errors.AsType[*deadletter.BuryError](err)
			if !ok || failed.Step != deadletter.StepWrite {
				s.Errorf("the error is %v", err)
			}
			s.Is(err, mailbox.ErrFull)
			s.depth(0)
			s.Must(m.Nack(s.Context(), 0, err))
		}},
		{"an ack that fails leaves a letter, and burying again no second one", func(s *stage) {
			if s.letters == nil {
				return // it is one step
			}
			_, err := s.orders.Send(s.Context(), "tea")
			s.Must(err)
			m := s.take()
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable, Times: 1})
			_, err = s.box.Bury(s.Context(), m, mailbox.ReasonFatal, errMilk)
			failed, ok := errors.AsType[*deadletter.BuryError](err)
			if !ok || failed.Step != deadletter.StepAck {
				s.Errorf("the error is %v", err)
			}
			s.Pass(mailbox.DefaultVisibility)
			_, err = s.box.Bury(s.Context(), s.take(), mailbox.ReasonFatal, errors.New("another error"))
			s.Must(err)
			s.depth(1)
			s.ready(0)
		}},
		{"without a cause, the last one counts", func(s *stage) {
			_, err := s.orders.Send(s.Context(), "tea")
			s.Must(err)
			s.Must(s.take().Nack(s.Context(), 0, errMilk))
			_, err = s.box.Bury(s.Context(), s.take(), mailbox.ReasonOperator, nil)
			s.Must(err)
			s.depth(1)
			for l, err := range s.box.Letters(s.Context()) {
				s.Must(err)
				ruletest.Equal(s, "last error", l.LastError, "no milk")
				ruletest.Equal(s, "reason", l.Reason, mailbox.ReasonOperator)
				ruletest.Equal(s, "deliveries", l.Deliveries, 2)
			}
		}},
	})
}

func TestBoxWithoutWhatItNeedsSaysSo(t *testing.T) {
	play(t, "DLQ-4", []rule{
		{"a body that cannot be decoded is listed all the same", func(s *stage) {
			_, err := s.orders.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte("{")}})
			s.Must(err)
			if s.letters != nil {
				_, err = s.letters.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte("{")}})
				s.Must(err)
			}
			_, err = s.orders.Receive(s.Context()) // which buries it
			s.Must(err)
			found := 0
			for l, err := range s.box.Letters(s.Context()) {
				s.Must(err)
				s.Is(l.DecodeErr, mailbox.ErrEncoding)
				ruletest.Equal(s, "raw body", string(l.Raw), "{")
				found++
			}
			ruletest.Equal(s, "letters", found, 1)
		}},
		{"no source, no letters", func(s *stage) {
			nothing := deadletter.NewBox[string](nil, nil)
			s.Is(nothing.Check(), mailbox.ErrInvalid)
			for _, err := range nothing.Letters(s.Context()) {
				s.Is(err, mailbox.ErrInvalid)
			}
			_, err := nothing.Depth(s.Context())
			s.Is(err, mailbox.ErrInvalid)
			if s.letters == nil {
				return
			}
			unsent := deadletter.NewBox(nil, s.letters)
			_, err = unsent.Redrive(s.Context(), selection{}, nil)
			s.Is(err, mailbox.ErrInvalid)
			_, err = unsent.Bury(s.Context(), nil, mailbox.ReasonFatal, nil)
			s.Is(err, mailbox.ErrInvalid)
			ruletest.Equal(s, "name", unsent.Name(), "dead")
		}},
	})
}

func TestPolicyDefaults(t *testing.T) {
	tea := &message{Deliveries: 4}
	milk := &message{Deliveries: 5}
	decided := func(final bool) deadletter.Policy[string] {
		return deadletter.Policy[string]{Decide: func(context.Context, *message, error) bool { return final }}
	}
	for _, test := range []struct {
		name    string
		policy  deadletter.Policy[string]
		message *message
		reason  mailbox.Reason
		final   bool
	}{
		{"four deliveries", deadletter.Policy[string]{}, tea, "", false},
		{"five deliveries", deadletter.Policy[string]{}, milk, mailbox.ReasonMaxDeliveries, true},
		{"no limit", deadletter.Policy[string]{MaxDeliveries: -1}, milk, "", false},
		{"always", deadletter.Policy[string]{Always: []deadletter.Matcher{nil, deadletter.Is(errMilk)}}, tea, mailbox.ReasonFatal, true},
		{"never", deadletter.Policy[string]{Never: []deadletter.Matcher{deadletter.Is(errMilk)}}, milk, "", false},
		{"a decision", decided(true), tea, mailbox.ReasonFatal, true},
		{"a decision at the limit", decided(true), milk, mailbox.ReasonMaxDeliveries, true},
		{"a decision against", decided(false), milk, "", false},
	} {
		t.Run("DLQ-2/"+test.name, func(t *testing.T) {
			reason, final := test.policy.Final(t.Context(), test.message, errMilk)
			if reason != test.reason || final != test.final {
				t.Errorf("%q, %v; want %q, %v", reason, final, test.reason, test.final)
			}
		})
	}
}

func TestSeenForgetsTheOldest(t *testing.T) {
	seen := deadletter.NewSeen(2)
	for _, key := range []string{"a", "b", "a", "c"} {
		if err := seen.Mark(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]bool{"a": false, "b": true, "c": true, "d": false} {
		if got, err := seen.Seen(t.Context(), key); got != want || err != nil {
			t.Errorf("%s is %v, %v; want %v", key, got, err, want)
		}
	}
}
