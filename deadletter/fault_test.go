package deadletter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

func TestBurialsAreTold(t *testing.T) {
	play(t, "DLQ-3", []rule{
		{"a request that dies is settled, and its death is traced", func(s *stage) {
			var outcomes []mailbox.Outcome
			store := reply.NewMemory(nil)
			orders, err := mailbox.Open(s.Context(), s.Faults, "requests", &mailbox.Options[string]{
				Replies: store,
				Hooks: &mailbox.Hooks{Settled: func(_ context.Context, e mailbox.SettledEvent) {
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
			_, err = deadletter.NewBox(orders, s.letters).Bury(s.Context(), got[0], mailbox.ReasonFatal, errMilk)
			s.Must(err)
			want := mailbox.OutcomeDeadLetter
			if s.letters != nil {
				want = mailbox.OutcomeAck
			}
			if len(outcomes) != 1 || outcomes[0] != want {
				s.Errorf("it was settled with %v, want %v", outcomes, want)
			}
			ruletest.Equal(s, "settled", got[0].Settled(), true)
			if _, err := future.Wait(s.Context()); err == nil || !strings.Contains(err.Error(), "no milk") {
				s.Errorf("the client was told %v", err)
			}
		}},
	})
}

// traced is an error that knows where it happened, in great detail.
type traced struct{ stack string }

func (e *traced) Error() string      { return strings.Repeat("no milk ", 500) }
func (e *traced) StackTrace() string { return e.stack }

func TestLargeMessagesDieToo(t *testing.T) {
	play(t, "DLQ-3", []rule{
		{"what is told about the death gives way to the message", func(s *stage) {
			body := strings.Repeat("x", s.orders.Traits().MaxBodyBytes-4096)
			_, err := s.orders.Send(s.Context(), body)
			s.Must(err)
			_, err = s.box.Bury(s.Context(), s.take(), mailbox.ReasonFatal, &traced{strings.Repeat("main.go:1\n", 10_000)})
			s.Must(err)
			left(s, body)
			redrive(s, selection{}, deadletter.Redriven{Moved: 1})
			s.ready(1)
		}},
		{"one that is too large for the mailbox of letters stays with its backend", func(s *stage) {
			body := strings.Repeat("x", s.orders.Traits().MaxBodyBytes-2) // with its quotes, all that a body can be
			_, err := s.orders.Send(s.Context(), body)
			s.Must(err)
			burial, err := s.box.Bury(s.Context(), s.take(), mailbox.ReasonFatal, errMilk)
			s.Must(err)
			ruletest.Equal(s, "kept", burial.Kept, true)
			stats, err := s.orders.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "orders", stats, mailbox.Stats{Dead: 1})
		}},
	})
}

func TestRedrivingGoesOnPastWhatCannotGoBack(t *testing.T) {
	play(t, "DLQ-5", []rule{
		{"a message with as many attributes as there may be", func(s *stage) {
			full := make(map[string]string)
			for i := range driver.MaxAttributes {
				full[fmt.Sprint(i)] = "x"
			}
			_, err := s.orders.Send(s.Context(), "full", mailbox.WithAttributes(full))
			s.Must(err)
			_, err = s.box.Bury(s.Context(), s.take(), mailbox.ReasonFatal, errMilk)
			s.Must(err)
			s.bury("b")
			redrive(s, selection{}, deadletter.Redriven{Moved: 2})
			left(s)
			ruletest.Equal(s, "attributes", len(s.take().Attributes), driver.MaxAttributes)
		}},
		{"a letter that its mailbox refuses", func(s *stage) {
			if s.letters == nil {
				return // the backend does not ask for what it has
			}
			refused := letter{MessageID: "1", Body: "refused", Source: "orders", Group: strings.Repeat("g", driver.MaxGroupBytes+1)}
			_, err := s.letters.Send(s.Context(), refused)
			s.Must(err)
			s.bury("b", "c")
			got, err := s.box.Redrive(s.Context(), selection{}, nil)
			s.Is(err, mailbox.ErrInvalid)
			if err != nil && !strings.Contains(err.Error(), refused.MessageID) {
				s.Errorf("the error does not name the letter: %v", err)
			}
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2})
			left(s, "refused")
		}},
		{"a pace that is slower than letters are held", func(s *stage) {
			s.bury("a", "b")
			got, err := s.box.Redrive(s.Context(), selection{}, &deadletter.RedriveOptions{Pace: &pacer{every: time.Hour}})
			s.Must(err)
			ruletest.Equal(s, "redriven", got, deadletter.Redriven{Moved: 2})
			left(s)
			s.ready(2)
		}},
	})
}

func TestConsumersDoNotHangWithTheirBackend(t *testing.T) {
	play(t, "LOOP-6", []rule{
		{"an extension without an answer does not keep the consumer from ending", func(s *stage) {
			s.bury("tea")
			began := make(chan struct{})
			release := make(chan struct{})
			defer close(release)
			consumer := deadletter.NewConsumer(s.box, func(ctx context.Context, _ letter) (deadletter.Action, error) {
				close(began)
				select {
				case <-ctx.Done():
				case <-release:
				}
				return deadletter.Keep, ctx.Err()
			}, &deadletter.ConsumerOptions{Drain: time.Second})
			stop := s.run(consumer)
			<-began
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpExtend, Delay: 24 * time.Hour})
			s.Pass(deadletter.DefaultVisibility / 2) // the extension is under way
			told := time.Now()
			_ = stop() // whether the letter could be given back does not matter here
			if took := time.Since(told); took > 3*time.Minute {
				s.Errorf("it took %v to end", took)
			}
		}},
	})
}
