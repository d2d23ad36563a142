package deadletter_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
)

// always is a handler that always decides the same.
func always(action deadletter.Action, err error, seen *ruletest.Tally) deadletter.Handler[string] {
	return func(_ context.Context, l letter) (deadletter.Action, error) {
		seen.Add(l.Body)
		return action, err
	}
}

func TestConsumersDealWithLetters(t *testing.T) {
	play(t, "LOOP-6", []rule{
		{"each letter is shown once and removed", func(s *stage) {
			s.bury("tea", "milk")
			seen := ruletest.NewTally()
			stop := s.run(deadletter.NewConsumer(s.box, always(deadletter.Done, nil, seen), nil))
			s.Pass(time.Minute)
			s.bury("sugar")
			s.Pass(time.Minute)
			if got := seen.List(); !slices.Equal(got, []string{"tea", "milk", "sugar"}) {
				s.Errorf("shown were %v", got)
			}
			s.depth(0)
			s.ready(0)
			s.Must(stop())
		}},
		{"a handler that fails sees the letter again in an hour", func(s *stage) {
			s.bury("tea")
			seen := ruletest.NewTally()
			s.run(deadletter.NewConsumer(s.box, func(_ context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				switch len(seen.List()) {
				case 1:
					return deadletter.Done, errMilk
				case 2:
					panic("spilled")
				case 3:
					runtime.Goexit()
				case 4:
					return deadletter.Keep, nil
				}
				return deadletter.Done, nil
			}, &deadletter.ConsumerOptions{Poll: time.Second, Logger: s.Journal.Logger()}))
			s.Pass(24 * time.Hour)
			if got := seen.When(); !slices.Equal(got, []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour}) {
				s.Errorf("it was shown at %v", got)
			}
			s.depth(0)
			if !strings.Contains(s.Journal.String(), "spilled") {
				s.Error("the log does not say that it panicked")
			}
		}},
		{"others are shown meanwhile", func(s *stage) {
			s.bury("tea", "milk", "sugar")
			seen := ruletest.NewTally()
			s.run(deadletter.NewConsumer(s.box, func(_ context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				if l.Body == "tea" {
					return "", errMilk
				}
				return deadletter.Done, nil
			}, nil))
			s.Pass(time.Minute)
			if got := seen.List(); !slices.Equal(got, []string{"tea", "milk", "sugar"}) {
				s.Errorf("shown were %v", got)
			}
			s.depth(1)
		}},
		{"depth, age, processing time and counts are measured", func(s *stage) {
			s.bury("a", "b", "c", "d")
			s.Pass(time.Hour)
			var depths []int
			var events []deadletter.HandledEvent
			actions := map[string]deadletter.Action{"a": deadletter.Done, "b": deadletter.Replay, "c": deadletter.Drop, "d": deadletter.Keep}
			s.run(deadletter.NewConsumer(s.box, func(_ context.Context, l letter) (deadletter.Action, error) {
				<-time.After(time.Minute)
				return actions[l.Body], nil
			}, &deadletter.ConsumerOptions{Name: "undertaker", Hooks: deadletter.Hooks{
				Depth:   func(_ string, depth int) { depths = append(depths, depth) },
				Handled: func(event deadletter.HandledEvent) { events = append(events, event) },
			}}))
			s.Pass(4*time.Minute + 30*time.Second)
			if !slices.Equal(depths[:5], []int{4, 3, 2, 1, 1}) {
				s.Errorf("the depths were %v", depths)
			}
			for i, body := range []string{"a", "b", "c", "d"} {
				event := events[i]
				if event.Consumer != "undertaker" || event.Source != "orders" || event.Reason != mailbox.ReasonFatal || event.Err != nil ||
					event.Duration != time.Minute || event.Age != time.Hour+time.Duration(i)*time.Minute || event.Action != actions[body] {
					s.Errorf("event %d is %+v", i, event)
				}
			}
			s.ready(1)
		}},
	})
}

func TestConsumersReportWhatTheyDo(t *testing.T) {
	play(t, "LOOP-6", []rule{
		{"the log has the fields of a dead letter, and an action only if it was done", func(s *stage) {
			s.bury("tea")
			s.Pass(90 * time.Second)
			fail := true
			consumer := deadletter.NewConsumer(s.box, func(context.Context, letter) (deadletter.Action, error) {
				if fail {
					return deadletter.Done, errMilk
				}
				return deadletter.Done, nil
			}, &deadletter.ConsumerOptions{RetryAfter: time.Second, Logger: s.Journal.Logger()})
			_, err := consumer.RunOnce(s.Context())
			s.Must(err)
			log := s.Journal.String()
			if !strings.Contains(log, `"age_seconds":90`) || !strings.Contains(log, `"source_mailbox":"orders"`) || !strings.Contains(log, `"message_id":`) ||
				!strings.Contains(log, `"request_id":`) || !strings.Contains(log, `"error_message":"no milk"`) || strings.Contains(log, `"action"`) {
				s.Errorf("the log of a failure says %s", log)
			}
			fail = false
			s.Pass(time.Second)
			_, err = consumer.RunOnce(s.Context())
			s.Must(err)
			if log := s.Journal.String(); !strings.Contains(log, `"action":"done"`) {
				s.Errorf("the log says %s", log)
			}
		}},
		{"an unknown action keeps the letter and is an error", func(s *stage) {
			s.bury("tea")
			var events []deadletter.HandledEvent
			s.run(deadletter.NewConsumer(s.box, func(context.Context, letter) (deadletter.Action, error) { return "Keep", nil },
				&deadletter.ConsumerOptions{Hooks: deadletter.Hooks{
					Handled: func(event deadletter.HandledEvent) { events = append(events, event) },
				}}))
			s.Pass(61 * time.Minute)
			s.depth(1)
			if len(events) != 2 || !errors.Is(events[0].Err, mailbox.ErrInvalid) || !strings.Contains(events[0].Err.Error(), `"Keep"`) {
				s.Errorf("the events are %+v", events)
			}
		}},
	})
}

func TestConsumersReplayOnce(t *testing.T) {
	play(t, "LOOP-6", []rule{
		{"a replay goes back as it was", func(s *stage) {
			s.bury("tea")
			s.run(deadletter.NewConsumer(s.box, always(deadletter.Replay, nil, ruletest.NewTally()), nil))
			s.Pass(time.Second)
			s.depth(0)
			m := s.take()
			if m.Body != "tea" || m.Attributes["kind"] != "tea" || m.CorrelationID != "c-tea" || m.Deliveries != 1 {
				s.Errorf("the message is %+v", m)
			}
		}},
		{"a second letter of the same work is not replayed", func(s *stage) {
			s.box = (&deadletter.Policy[string]{Letters: s.letters, RequestID: func(body string) string { return body[:3] }}).Box(s.orders)
			s.bury("tea 1", "tea 2", "milk")
			duplicates := ruletest.NewTally()
			s.run(deadletter.NewConsumer(s.box, always(deadletter.Replay, nil, ruletest.NewTally()), &deadletter.ConsumerOptions{
				Dedup: deadletter.NewSeen(10),
				Hooks: deadletter.Hooks{Duplicate: func(_, id string) { duplicates.Add(id) }},
			}))
			s.Pass(time.Minute)
			s.depth(0)
			s.ready(2)
			ruletest.Equal(s, "duplicates", len(duplicates.List()), 1)
		}},
		{"what the handler has done is not done again because the letter could not be removed", func(s *stage) {
			s.bury("tea")
			seen := ruletest.NewTally()
			for _, op := range []mailboxtest.Op{mailboxtest.OpAck, mailboxtest.OpDiscard} {
				s.Faults.Add(mailboxtest.Fault{Op: op, Err: mailbox.ErrUnavailable})
			}
			s.run(deadletter.NewConsumer(s.box, always(deadletter.Done, nil, seen), &deadletter.ConsumerOptions{Visibility: time.Minute}))
			s.Pass(10 * time.Minute)
			s.depth(1)
			s.Faults.Clear()
			s.Pass(10 * time.Minute)
			s.depth(0)
			ruletest.Equal(s, "times it was shown", len(seen.List()), 1)
		}},
		{"a replay that fails is repeated, and sends one message", func(s *stage) {
			s.bury("tea")
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpSend, Queue: "orders", Err: mailbox.ErrFull, Times: 1})
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpRedrive, Err: mailbox.ErrFull, Times: 1})
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable, Times: 3})
			s.run(deadletter.NewConsumer(s.box, always(deadletter.Replay, nil, ruletest.NewTally()), nil))
			s.Pass(10 * time.Minute)
			s.depth(0)
			s.ready(1)
		}},
	})
}

func TestConsumersHavePatience(t *testing.T) {
	play(t, "LOOP-6", []rule{
		{"a consumer outlives errors of its backend", func(s *stage) {
			s.bury("tea")
			seen := ruletest.NewTally()
			s.Faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable})
			stop := s.run(deadletter.NewConsumer(s.box, always(deadletter.Done, nil, seen), nil))
			s.Pass(time.Hour)
			s.Faults.Clear()
			s.Pass(time.Minute)
			ruletest.Equal(s, "letters shown", len(seen.List()), 1)
			s.Must(stop())
		}},
		{"hooks that panic cost nothing", func(s *stage) {
			s.box = (&deadletter.Policy[string]{Letters: s.letters, RequestID: func(body string) string { return body[:3] }}).Box(s.orders)
			s.bury("tea 1", "tea 2")
			stop := s.run(deadletter.NewConsumer(s.box, always(deadletter.Replay, nil, ruletest.NewTally()), &deadletter.ConsumerOptions{
				Dedup: deadletter.NewSeen(10), Logger: s.Journal.Logger(),
				Hooks: deadletter.Hooks{
					Depth:     func(string, int) { panic(errMilk) },
					Handled:   func(deadletter.HandledEvent) { panic(errMilk) },
					Duplicate: func(string, string) { panic(errMilk) },
				},
			}))
			s.Pass(time.Minute)
			s.Must(stop())
			s.depth(0)
			s.ready(1)
			if n := strings.Count(s.Journal.String(), "a hook panicked"); n < 4 {
				s.Errorf("the log tells of %d panics", n)
			}
		}},
		{"the handler may take its time", func(s *stage) {
			s.bury("tea")
			seen := ruletest.NewTally()
			s.run(deadletter.NewConsumer(s.box, func(ctx context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				select {
				case <-time.After(time.Hour):
					return deadletter.Done, nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}, nil))
			s.Pass(2 * time.Hour)
			ruletest.Equal(s, "times it was shown", len(seen.List()), 1)
			s.depth(0)
		}},
		{"a lease that is lost cancels the handler", func(s *stage) {
			if s.letters == nil {
				return // there is no lease
			}
			s.bury("tea")
			s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpExtend, Err: mailbox.ErrUnavailable})
			causes := make(chan error, 1)
			s.run(deadletter.NewConsumer(s.box, func(ctx context.Context, _ letter) (deadletter.Action, error) {
				<-ctx.Done()
				select {
				case causes <- context.Cause(ctx):
				default:
				}
				return deadletter.Done, nil
			}, nil))
			if cause := <-causes; errors.Is(cause, context.Canceled) {
				s.Errorf("the cause is %v", cause)
			}
			ruletest.Equal(s, "time", time.Since(s.Began), deadletter.DefaultVisibility)
			s.Pass(time.Second)
			s.depth(1)
		}},
	})
}

// waits is a handler that takes so long, unless it is told not to.
func waits(d time.Duration, ended chan error) deadletter.Handler[string] {
	return func(ctx context.Context, _ letter) (deadletter.Action, error) {
		select {
		case <-time.After(d):
			ended <- nil
			return deadletter.Done, nil
		case <-ctx.Done():
			ended <- ctx.Err()
			return "", ctx.Err()
		}
	}
}

func TestConsumersEndInOrder(t *testing.T) {
	play(t, "LOOP-6", []rule{
		{"the letter at hand may be finished", func(s *stage) {
			s.bury("tea", "milk")
			ended := make(chan error, 2)
			stop := s.run(deadletter.NewConsumer(s.box, waits(10*time.Second, ended), nil))
			s.Pass(time.Second)
			s.Must(stop())
			s.Must(<-ended)
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Second)
			s.depth(1)
		}},
		{"but not for ever", func(s *stage) {
			s.bury("tea")
			ended := make(chan error, 2)
			stop := s.run(deadletter.NewConsumer(s.box, waits(time.Hour, ended), &deadletter.ConsumerOptions{Drain: time.Minute}))
			s.Pass(time.Second)
			s.Must(stop())
			s.Is(<-ended, context.Canceled)
			ruletest.Equal(s, "time", time.Since(s.Began), 61*time.Second)
			seen := ruletest.NewTally()
			s.run(deadletter.NewConsumer(s.box, always(deadletter.Done, nil, seen), nil))
			s.Pass(time.Second)
			ruletest.Equal(s, "letters shown to the next", len(seen.List()), 1)
		}},
		{"and not at all when it is aborted", func(s *stage) {
			s.bury("tea")
			ended := make(chan error, 2)
			consumer := deadletter.NewConsumer(s.box, waits(time.Hour, ended), nil)
			stop := s.run(consumer)
			s.Pass(time.Second)
			consumer.Abort()
			s.Must(stop())
			ruletest.Equal(s, "time", time.Since(s.Began), time.Second)
		}},
		{"a handler that does not return is left behind", func(s *stage) {
			s.bury("tea")
			stop := s.run(deadletter.NewConsumer(s.box, func(context.Context, letter) (deadletter.Action, error) {
				s.Pass(time.Hour)
				return deadletter.Done, nil
			}, nil))
			s.Pass(time.Second)
			s.Is(stop(), mailbox.ErrTimeout)
			s.depth(1)
			s.Pass(time.Hour)
		}},
		{"one that does not work is idle", func(s *stage) {
			consumer := deadletter.NewConsumer(s.box, always(deadletter.Done, nil, ruletest.NewTally()), nil)
			if _, since, _ := consumer.Oldest(); !since.IsZero() || consumer.Running() || !consumer.LastBeat().IsZero() {
				s.Error("it is at work before it runs")
			}
			stop := s.run(consumer)
			s.Pass(time.Minute)
			if _, since, _ := consumer.Oldest(); !since.IsZero() || !consumer.Running() || consumer.LastBeat().IsZero() {
				s.Error("it is not running, or at work")
			}
			s.Is(consumer.Run(s.Context()), mailbox.ErrInvalid)
			s.Must(stop())
		}},
		{"one pass shows what is there and waits for nothing", func(s *stage) {
			s.bury("tea", "milk", "sugar")
			seen := ruletest.NewTally()
			consumer := deadletter.NewConsumer(s.box, func(_ context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				if l.Body == "milk" {
					return "", errMilk
				}
				return deadletter.Done, nil
			}, nil)
			for _, want := range []int{3, 0} { // the one that failed is put off
				handled, err := consumer.RunOnce(s.Context())
				s.Must(err)
				ruletest.Equal(s, "handled", handled, want)
			}
			ruletest.Equal(s, "time", time.Since(s.Began), 0)
			s.depth(1)
		}},
		{"one that is stopped ends in order, and before it runs at once", func(s *stage) {
			s.bury("tea")
			seen := ruletest.NewTally()
			consumer := deadletter.NewConsumer(s.box, func(context.Context, letter) (deadletter.Action, error) {
				<-time.After(10 * time.Second)
				seen.Add("done")
				return deadletter.Done, nil
			}, nil)
			time.AfterFunc(time.Second, consumer.Stop)
			s.Must(consumer.Run(s.Context()))
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Second)
			s.depth(0)
			s.bury("milk")
			s.Must(consumer.Run(s.Context()))
			ruletest.Equal(s, "handled", seen.Count(), 1)
		}},
		{"one whose queue is deleted goes on asking", func(s *stage) {
			stop := s.run(deadletter.NewConsumer(s.box, always(deadletter.Done, nil, ruletest.NewTally()), nil))
			s.Pass(time.Second)
			s.Must(s.Backend.DeleteQueue(s.Context(), s.box.Name()))
			s.Pass(time.Hour)
			s.Must(stop())
		}},
		{"one that cannot run says so", func(s *stage) {
			handler := always(deadletter.Done, nil, ruletest.NewTally())
			for _, consumer := range []*deadletter.Consumer[string]{
				deadletter.NewConsumer(nil, handler, nil),
				deadletter.NewConsumer(s.box, nil, nil),
				deadletter.NewConsumer(deadletter.NewBox[string](nil, nil), handler, nil),
				deadletter.NewConsumer(s.box, handler, &deadletter.ConsumerOptions{RetryAfter: -1}),
				deadletter.NewConsumer(s.box, handler, &deadletter.ConsumerOptions{Visibility: -1}),
				deadletter.NewConsumer(s.box, handler, &deadletter.ConsumerOptions{Poll: -1}),
			} {
				s.Is(consumer.Run(s.Context()), mailbox.ErrInvalid)
			}
		}},
	})
}
