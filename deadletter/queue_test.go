package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

// expectRedriven redrives dead letters and checks the result.
func expectRedriven(s *env, matching filter, want deadletter.Redriven) {
	s.Helper()
	got, err := s.dead.Redrive(s.Context(), matching, nil)
	s.Must(err)
	ruletest.Equal(s, "redriven", got, want)
}

// expectLeft checks the bodies of the dead letters.
func expectLeft(s *env, want ...string) {
	s.Helper()
	if got := s.bodies(); !slices.Equal(got, want) {
		s.Errorf("left: %v, want %v", got, want)
	}
	s.expectDepth(len(want))
}

func TestRedriveMovesMatchingDeadLetters(t *testing.T) {
	runRule(t, "DLQ-5", []rule{
		{"all", func(s *env) {
			s.deadLetter("a", "b", "c")
			expectRedriven(s, filter{}, deadletter.Redriven{Moved: 3})
			expectLeft(s)
			s.expectReady(3)
			expectRedriven(s, filter{}, deadletter.Redriven{})
		}},
		{"by id", func(s *env) {
			ids := s.deadLetter("a", "b", "c")
			expectRedriven(s, filter{IDs: []string{ids[2], ids[0], "unknown"}}, deadletter.Redriven{Moved: 2})
			expectLeft(s, "b")
			expectRedriven(s, filter{IDs: []string{}}, deadletter.Redriven{})
			expectLeft(s, "b")
		}},
		{"by predicate, others keep their order", func(s *env) {
			s.deadLetter("a1", "b1", "a2", "b2", "a3")
			expectRedriven(s, filter{Match: func(l letter) bool { return strings.HasPrefix(l.Body, "b") }}, deadletter.Redriven{Moved: 2})
			expectLeft(s, "a1", "a2", "a3")
			s.expectReady(2)
		}},
		{"up to a limit, oldest first", func(s *env) {
			s.deadLetter("a", "b", "c", "d")
			expectRedriven(s, filter{Limit: 2}, deadletter.Redriven{Moved: 2})
			expectLeft(s, "c", "d")
			expectRedriven(s, filter{Limit: 1, Match: func(l letter) bool { return l.Body == "d" || l.Body == "c" }}, deadletter.Redriven{Moved: 1})
			expectLeft(s, "d")
			_, err := s.dead.Redrive(s.Context(), filter{Limit: -1}, nil)
			s.Is(err, mailbox.ErrInvalid)
		}},
		{"more than fit into a batch", func(s *env) {
			for range 30 {
				s.deadLetter("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
			}
			expectRedriven(s, filter{Match: func(l letter) bool { return l.Body != "e" }}, deadletter.Redriven{Moved: 270})
			s.expectDepth(30)
			s.expectReady(270)
		}},
		{"each work once", func(s *env) {
			s.dead = (&deadletter.Policy[string]{Mailbox: s.letters, RequestID: func(body string) string { return body[:1] }}).Queue(s.orders)
			s.deadLetter("a1", "a2", "b1")
			options := &deadletter.RedriveOptions{Dedup: deadletter.NewMemoryDedup(100)}
			got, err := s.dead.Redrive(s.Context(), filter{}, options)
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2, Duplicates: 1})
			expectLeft(s, "a2")
			got, err = s.dead.Redrive(s.Context(), filter{}, options)
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Duplicates: 1})
			expectLeft(s, "a2")
		}},
		{"discard by id or predicate, never all", func(s *env) {
			ids := s.deadLetter("a", "b", "c", "d")
			removed, err := s.dead.Discard(s.Context(), filter{IDs: ids[1:2]})
			s.Must(err)
			ruletest.Equal(s, "removed", removed, 1)
			removed, err = s.dead.Discard(s.Context(), filter{Match: func(l letter) bool { return l.Body > "a" }, Limit: 1})
			s.Must(err)
			ruletest.Equal(s, "removed", removed, 1)
			expectLeft(s, "a", "d")
			_, err = s.dead.Discard(s.Context(), filter{Limit: 1})
			s.Is(err, mailbox.ErrInvalid)
			s.expectReady(0)
		}},
	})
}

// A pacer allows one event every period.
type pacer struct{ every time.Duration }

func (p *pacer) Wait(ctx context.Context) error {
	select {
	case <-time.After(p.every):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestRedriveKeepsPace(t *testing.T) {
	runRule(t, "DLQ-5", []rule{
		{"one at a time", func(s *env) {
			s.deadLetter("a", "b", "c")
			time.AfterFunc(90*time.Second, func() { s.expectReady(1) })
			got, err := s.dead.Redrive(s.Context(), filter{}, &deadletter.RedriveOptions{Pace: &pacer{time.Minute}})
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 3})
			ruletest.Equal(s, "time", time.Since(s.Began), 3*time.Minute)
		}},
		{"the rest stays when the context ends", func(s *env) {
			s.deadLetter("a", "b", "c")
			ctx, cancel := context.WithTimeout(s.Context(), 90*time.Second)
			defer cancel()
			got, err := s.dead.Redrive(ctx, filter{}, &deadletter.RedriveOptions{Pace: &pacer{time.Minute}})
			s.Is(err, context.DeadlineExceeded)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 1})
			expectLeft(s, "b", "c")
		}},
	})
}

func TestRedriveLosesAndDuplicatesNothing(t *testing.T) {
	runRule(t, "DLQ-5", []rule{
		{"a full source returns ErrFull and the count moved", func(s *env) {
			s.deadLetter("a", "b", "c")
			s.Must(s.Backend.ConfigureQueue(s.Context(), "orders", driver.Config{MaxMessages: 2}))
			got, err := s.dead.Redrive(s.Context(), filter{}, nil)
			s.Is(err, mailbox.ErrFull)
			ruletest.Equal(s, "moved", got.Moved, 2)
			expectLeft(s, "c")
		}},
		{"a crash between send and ack duplicates nothing", func(s *env) {
			if s.letters == nil {
				return // it is one step
			}
			s.deadLetter("a")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 1})
			_, err := s.dead.Redrive(s.Context(), filter{}, nil)
			s.Is(err, mailbox.ErrUnavailable)
			s.expectReady(1)
			expectRedriven(s, filter{}, deadletter.Redriven{Moved: 1})
			s.expectReady(1)
			expectLeft(s)
		}},
		{"count and first id are kept", func(s *env) {
			ids := s.deadLetter("a")
			for n := 1; n <= 3; n++ {
				expectRedriven(s, filter{}, deadletter.Redriven{Moved: 1})
				m := s.take()
				if first := m.Attributes["mailbox.dead.id"]; m.ID != ids[0] && first != ids[0] {
					s.Errorf("the message is %s, first %s, want %s", m.ID, first, ids[0])
				}
				_, err := s.dead.DeadLetter(s.Context(), m, mailbox.ReasonFatal, errMilk)
				s.Must(err)
				found := 0
				for l, err := range s.dead.List(s.Context()) {
					s.Must(err)
					ruletest.Equal(s, "redrives", l.Redrives, n)
					found++
				}
				ruletest.Equal(s, "dead letters", found, 1)
			}
		}},
		{"dead letters are released after an error", func(s *env) {
			s.deadLetter("a", "b")
			s.Faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrUnavailable})
			s.Faults.Add(mailboxtest.Fault{Op: "redrive", Err: mailbox.ErrUnavailable})
			_, err := s.dead.Redrive(s.Context(), filter{}, nil)
			s.Is(err, mailbox.ErrUnavailable)
			if s.letters != nil {
				stats, err := s.letters.Stats(s.Context())
				s.Must(err)
				ruletest.Equal(s, "dead letters", stats, mailbox.Stats{Ready: 2})
			}
		}},
		{"one dead-lettered again meanwhile is left", func(s *env) {
			s.deadLetter("a", "b")
			again := 0
			expectRedriven(s, filter{Match: func(letter) bool {
				if stats, err := s.orders.Stats(s.Context()); err == nil && stats.Ready > 0 && again < 10 {
					again++
					_, err := s.dead.DeadLetter(s.Context(), s.take(), mailbox.ReasonFatal, errMilk)
					s.Must(err)
				}
				return true
			}}, deadletter.Redriven{Moved: 2})
			if s.letters != nil && again == 0 {
				s.Error("none was dead-lettered again")
			}
			s.expectReady(2 - again)
			s.expectDepth(again)
		}},
		{"others are released, also after a long redrive", func(s *env) {
			s.deadLetter("a1", "b1", "a2", "b2")
			pace := &pacer{every: 4 * time.Minute} // in total longer than the lease of a scan
			got, err := s.dead.Redrive(s.Context(), filter{Match: func(l letter) bool { return l.Body[0] == 'b' }}, &deadletter.RedriveOptions{Pace: pace})
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2})
			ruletest.Equal(s, "time", time.Since(s.Began), 8*time.Minute)
			expectLeft(s, "a1", "a2")
			if s.letters != nil {
				stats, err := s.letters.Stats(s.Context())
				s.Must(err)
				ruletest.Equal(s, "dead letters", stats, mailbox.Stats{Ready: 2})
			}
		}},
		{"a dead letter whose lease was lost is not discarded", func(s *env) {
			if s.letters == nil {
				return // it has no lease
			}
			s.deadLetter("a")
			removed, err := s.dead.Discard(s.Context(), filter{Match: func(letter) bool {
				s.Pass(6 * time.Minute) // longer than the lease of a scan
				return true
			}})
			s.Must(err)
			ruletest.Equal(s, "removed", removed, 0)
			s.expectDepth(1)
		}},
	})
}

func TestDeadLetterLosesNothing(t *testing.T) {
	runRule(t, "DLQ-3", []rule{
		{"a write that fails changes nothing", func(s *env) {
			_, err := s.orders.Send(s.Context(), "tea")
			s.Must(err)
			m := s.take()
			s.Faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrFull})
			s.Faults.Add(mailboxtest.Fault{Op: "dead-letter", Err: mailbox.ErrFull})
			_, err = s.dead.DeadLetter(s.Context(), m, mailbox.ReasonFatal, errMilk)
			failed, ok := errors.AsType[*deadletter.StepError](err)
			if !ok || failed.Step != "write" {
				s.Errorf("the error is %v", err)
			}
			s.Is(err, mailbox.ErrFull)
			s.expectDepth(0)
			s.Must(m.Nack(s.Context(), 0, err))
		}},
		{"a failed ack leaves one dead letter", func(s *env) {
			if s.letters == nil {
				return // it is one step
			}
			_, err := s.orders.Send(s.Context(), "tea")
			s.Must(err)
			m := s.take()
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 1})
			_, err = s.dead.DeadLetter(s.Context(), m, mailbox.ReasonFatal, errMilk)
			failed, ok := errors.AsType[*deadletter.StepError](err)
			if !ok || failed.Step != "ack" {
				s.Errorf("the error is %v", err)
			}
			s.Pass(mailbox.DefaultVisibility)
			_, err = s.dead.DeadLetter(s.Context(), s.take(), mailbox.ReasonFatal, errors.New("another error"))
			s.Must(err)
			s.expectDepth(1)
			s.expectReady(0)
		}},
		{"without a cause the last error is kept", func(s *env) {
			_, err := s.orders.Send(s.Context(), "tea")
			s.Must(err)
			s.Must(s.take().Nack(s.Context(), 0, errMilk))
			_, err = s.dead.DeadLetter(s.Context(), s.take(), mailbox.ReasonOperator, nil)
			s.Must(err)
			s.expectDepth(1)
			for l, err := range s.dead.List(s.Context()) {
				s.Must(err)
				ruletest.Equal(s, "last error", l.LastError, "no milk")
				ruletest.Equal(s, "reason", l.Reason, mailbox.ReasonOperator)
				ruletest.Equal(s, "deliveries", l.Deliveries, 2)
			}
		}},
	})
}

func TestIncompleteQueueReturnsErrors(t *testing.T) {
	runRule(t, "DLQ-4", []rule{
		{"an undecodable body is listed", func(s *env) {
			_, err := s.orders.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte("{")}})
			s.Must(err)
			if s.letters != nil {
				_, err = s.letters.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte("{")}})
				s.Must(err)
			}
			_, err = s.orders.Receive(s.Context()) // dead-letters it
			s.Must(err)
			found := 0
			for l, err := range s.dead.List(s.Context()) {
				s.Must(err)
				s.Is(l.DecodeErr, mailbox.ErrEncoding)
				ruletest.Equal(s, "raw body", string(l.Raw), "{")
				found++
			}
			ruletest.Equal(s, "dead letters", found, 1)
		}},
		{"without a source", func(s *env) {
			empty := deadletter.NewQueue[string](nil, nil)
			s.Is(empty.Check(), mailbox.ErrInvalid)
			for _, err := range empty.List(s.Context()) {
				s.Is(err, mailbox.ErrInvalid)
			}
			_, err := empty.Depth(s.Context())
			s.Is(err, mailbox.ErrInvalid)
			if s.letters == nil {
				return
			}
			sourceless := deadletter.NewQueue(nil, s.letters)
			_, err = sourceless.Redrive(s.Context(), filter{}, nil)
			s.Is(err, mailbox.ErrInvalid)
			_, err = sourceless.DeadLetter(s.Context(), nil, mailbox.ReasonFatal, nil)
			s.Is(err, mailbox.ErrInvalid)
			ruletest.Equal(s, "name", sourceless.Name(), "dead")
		}},
	})
}

func TestDeadLetterSettlesAndRepliesToRequest(t *testing.T) {
	runRule(t, "DLQ-3", []rule{
		{"the hook is called and the client gets the error", func(s *env) {
			var outcomes []mailbox.Outcome
			store := reply.NewMemory(nil)
			orders, err := mailbox.Open(s.Context(), s.Faults, "requests", &mailbox.Options[string]{
				Replies: store,
				Hooks: mailbox.Hooks{Settled: func(_ context.Context, e mailbox.SettledEvent) {
					if e.Err == nil {
						outcomes = append(outcomes, e.Outcome)
					}
				}},
			})
			s.Must(err)
			future, err := reply.NewClient[string, string](orders, store, nil).Send(s.Context(), "tea")
			s.Must(err)
			got, err := orders.Receive(s.Context())
			s.Must(err)
			_, err = deadletter.NewQueue(orders, s.letters).DeadLetter(s.Context(), got[0], mailbox.ReasonFatal, errMilk)
			s.Must(err)
			want := mailbox.OutcomeDeadLetter
			if s.letters != nil {
				want = mailbox.OutcomeAck
			}
			if len(outcomes) != 1 || outcomes[0] != want {
				s.Errorf("outcomes are %v, want %v", outcomes, want)
			}
			ruletest.Equal(s, "settled", got[0].Settled(), true)
			if _, err := future.Wait(s.Context()); err == nil || !strings.Contains(err.Error(), "no milk") {
				s.Errorf("the client got %v", err)
			}
		}},
	})
}

// A traced is an error with a long stack.
type traced struct{ stack string }

func (e *traced) Error() string      { return strings.Repeat("no milk ", 500) }
func (e *traced) StackTrace() string { return e.stack }

func TestLargeMessagesAreDeadLettered(t *testing.T) {
	runRule(t, "DLQ-3", []rule{
		{"stack and error are shortened", func(s *env) {
			body := strings.Repeat("x", s.orders.Traits().MaxBodyBytes-4096)
			_, err := s.orders.Send(s.Context(), body)
			s.Must(err)
			_, err = s.dead.DeadLetter(s.Context(), s.take(), mailbox.ReasonFatal, &traced{strings.Repeat("main.go:1\n", 10_000)})
			s.Must(err)
			expectLeft(s, body)
			expectRedriven(s, filter{}, deadletter.Redriven{Moved: 1})
			s.expectReady(1)
		}},
		{"one too large for the mailbox stays with its backend", func(s *env) {
			body := strings.Repeat("x", s.orders.Traits().MaxBodyBytes-2) // with its quotes, the largest body
			_, err := s.orders.Send(s.Context(), body)
			s.Must(err)
			done, err := s.dead.DeadLetter(s.Context(), s.take(), mailbox.ReasonFatal, errMilk)
			s.Must(err)
			ruletest.Equal(s, "kept", done.Kept, true)
			stats, err := s.orders.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "orders", stats, mailbox.Stats{Dead: 1})
		}},
	})
}

func TestRedriveContinuesPastRefusedDeadLetters(t *testing.T) {
	runRule(t, "DLQ-5", []rule{
		{"a message with the most attributes", func(s *env) {
			full := make(map[string]string)
			for i := range driver.MaxAttributes {
				full[fmt.Sprint(i)] = "x"
			}
			_, err := s.orders.Send(s.Context(), "full", mailbox.WithAttributes(full))
			s.Must(err)
			_, err = s.dead.DeadLetter(s.Context(), s.take(), mailbox.ReasonFatal, errMilk)
			s.Must(err)
			s.deadLetter("b")
			expectRedriven(s, filter{}, deadletter.Redriven{Moved: 2})
			expectLeft(s)
			ruletest.Equal(s, "attributes", len(s.take().Attributes), driver.MaxAttributes)
		}},
		{"one that the source refuses", func(s *env) {
			if s.letters == nil {
				return // the backend does not check it again
			}
			refused := letter{MessageID: "1", Body: "refused", Source: "orders", Group: strings.Repeat("g", driver.MaxGroupBytes+1)}
			_, err := s.letters.Send(s.Context(), refused)
			s.Must(err)
			s.deadLetter("b", "c")
			got, err := s.dead.Redrive(s.Context(), filter{}, nil)
			s.Is(err, mailbox.ErrInvalid)
			if err != nil && !strings.Contains(err.Error(), refused.MessageID) {
				s.Errorf("the error does not name the dead letter: %v", err)
			}
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2})
			expectLeft(s, "refused")
		}},
		{"a pace slower than the lease", func(s *env) {
			s.deadLetter("a", "b")
			got, err := s.dead.Redrive(s.Context(), filter{}, &deadletter.RedriveOptions{Pace: &pacer{every: time.Hour}})
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2})
			expectLeft(s)
			s.expectReady(2)
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

func TestMemoryDedupForgetsOldest(t *testing.T) {
	seen := deadletter.NewMemoryDedup(2)
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
