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
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
)

// always returns a handler with a fixed decision.
func always(action deadletter.Action, err error, seen *ruletest.Recorder) deadletter.Handler[string] {
	return func(_ context.Context, l letter) (deadletter.Action, error) {
		seen.Add(l.Body)
		return action, err
	}
}

func TestConsumerHandlesDeadLetters(t *testing.T) {
	runRule(t, "LOOP-6", []rule{
		{"each dead letter is handled once and removed", func(s *env) {
			s.deadLetter("tea", "milk")
			seen := ruletest.NewRecorder()
			stop := s.run(deadletter.NewConsumer(s.dead, always(deadletter.Done, nil, seen), nil))
			s.Pass(time.Minute)
			s.deadLetter("sugar")
			s.Pass(time.Minute)
			if got := seen.List(); !slices.Equal(got, []string{"tea", "milk", "sugar"}) {
				s.Errorf("handled: %v", got)
			}
			s.expectDepth(0)
			s.expectReady(0)
			s.Must(stop())
		}},
		{"a failed handler gets it again in an hour", func(s *env) {
			s.deadLetter("tea")
			seen := ruletest.NewRecorder()
			s.run(deadletter.NewConsumer(s.dead, func(_ context.Context, l letter) (deadletter.Action, error) {
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
			}, &deadletter.ConsumerOptions{Poll: time.Second, Logger: s.Logs.Logger()}))
			s.Pass(24 * time.Hour)
			if got := seen.When(); !slices.Equal(got, []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour}) {
				s.Errorf("it was handled at %v", got)
			}
			s.expectDepth(0)
			if !strings.Contains(s.Logs.String(), "spilled") {
				s.Error("the log does not mention the panic")
			}
		}},
		{"others are handled meanwhile", func(s *env) {
			s.deadLetter("tea", "milk", "sugar")
			seen := ruletest.NewRecorder()
			s.run(deadletter.NewConsumer(s.dead, func(_ context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				if l.Body == "tea" {
					return "", errMilk
				}
				return deadletter.Done, nil
			}, nil))
			s.Pass(time.Minute)
			if got := seen.List(); !slices.Equal(got, []string{"tea", "milk", "sugar"}) {
				s.Errorf("handled: %v", got)
			}
			s.expectDepth(1)
		}},
		{"depth, age, processing time and counts are measured", func(s *env) {
			s.deadLetter("a", "b", "c", "d")
			s.Pass(time.Hour)
			var depths []int
			var events []deadletter.HandledEvent
			actions := map[string]deadletter.Action{"a": deadletter.Done, "b": deadletter.Redrive, "c": deadletter.Drop, "d": deadletter.Keep}
			s.run(deadletter.NewConsumer(s.dead, func(_ context.Context, l letter) (deadletter.Action, error) {
				<-time.After(time.Minute)
				return actions[l.Body], nil
			}, &deadletter.ConsumerOptions{Name: "dead letters", Hooks: deadletter.Hooks{
				Depth:   func(_ string, depth int) { depths = append(depths, depth) },
				Handled: func(event deadletter.HandledEvent) { events = append(events, event) },
			}}))
			s.Pass(4*time.Minute + 30*time.Second)
			if !slices.Equal(depths[:5], []int{4, 3, 2, 1, 1}) {
				s.Errorf("the depths were %v", depths)
			}
			for i, body := range []string{"a", "b", "c", "d"} {
				event := events[i]
				if event.Consumer != "dead letters" || event.Source != "orders" || event.Reason != mailbox.ReasonFatal || event.Err != nil ||
					event.Duration != time.Minute || event.Age != time.Hour+time.Duration(i)*time.Minute || event.Action != actions[body] {
					s.Errorf("event %d is %+v", i, event)
				}
			}
			s.expectReady(1)
		}},
	})
}

func TestConsumerReportsItsWork(t *testing.T) {
	runRule(t, "LOOP-6", []rule{
		{"the log has the dead letter and the action", func(s *env) {
			s.deadLetter("tea")
			s.Pass(90 * time.Second)
			fail := true
			consumer := deadletter.NewConsumer(s.dead, func(context.Context, letter) (deadletter.Action, error) {
				if fail {
					return deadletter.Done, errMilk
				}
				return deadletter.Done, nil
			}, &deadletter.ConsumerOptions{RetryAfter: time.Second, Logger: s.Logs.Logger()})
			_, err := consumer.RunOnce(s.Context())
			s.Must(err)
			log := s.Logs.String()
			if !strings.Contains(log, `"age_seconds":90`) || !strings.Contains(log, `"source_mailbox":"orders"`) || !strings.Contains(log, `"message_id":`) ||
				!strings.Contains(log, `"request_id":`) || !strings.Contains(log, `"error_message":"no milk"`) || strings.Contains(log, `"action"`) {
				s.Errorf("the log of a failure says %s", log)
			}
			fail = false
			s.Pass(time.Second)
			_, err = consumer.RunOnce(s.Context())
			s.Must(err)
			if log := s.Logs.String(); !strings.Contains(log, `"action":"done"`) {
				s.Errorf("the log says %s", log)
			}
		}},
		{"an unknown action is an error", func(s *env) {
			s.deadLetter("tea")
			var events []deadletter.HandledEvent
			s.run(deadletter.NewConsumer(s.dead, func(context.Context, letter) (deadletter.Action, error) { return "Keep", nil },
				&deadletter.ConsumerOptions{Hooks: deadletter.Hooks{
					Handled: func(event deadletter.HandledEvent) { events = append(events, event) },
				}}))
			s.Pass(61 * time.Minute)
			s.expectDepth(1)
			if len(events) != 2 || !errors.Is(events[0].Err, mailbox.ErrInvalid) || !strings.Contains(events[0].Err.Error(), `"Keep"`) {
				s.Errorf("the events are %+v", events)
			}
		}},
	})
}

func TestConsumerRedrivesOnce(t *testing.T) {
	runRule(t, "LOOP-6", []rule{
		{"a redriven message is unchanged", func(s *env) {
			s.deadLetter("tea")
			s.run(deadletter.NewConsumer(s.dead, always(deadletter.Redrive, nil, ruletest.NewRecorder()), nil))
			s.Pass(time.Second)
			s.expectDepth(0)
			m := s.take()
			if m.Body != "tea" || m.Attributes["kind"] != "tea" || m.CorrelationID != "c-tea" || m.Deliveries != 1 {
				s.Errorf("the message is %+v", m)
			}
		}},
		{"the same work is redriven once", func(s *env) {
			s.dead = (&deadletter.Policy[string]{Mailbox: s.letters, RequestID: func(body string) string { return body[:3] }}).Queue(s.orders)
			s.deadLetter("tea 1", "tea 2", "milk")
			duplicates := ruletest.NewRecorder()
			s.run(deadletter.NewConsumer(s.dead, always(deadletter.Redrive, nil, ruletest.NewRecorder()), &deadletter.ConsumerOptions{
				Dedup: deadletter.NewMemoryDedup(10),
				Hooks: deadletter.Hooks{Duplicate: func(_, id string) { duplicates.Add(id) }},
			}))
			s.Pass(time.Minute)
			s.expectDepth(0)
			s.expectReady(2)
			ruletest.Equal(s, "duplicates", len(duplicates.List()), 1)
		}},
		{"a failed removal does not run the handler again", func(s *env) {
			s.deadLetter("tea")
			seen := ruletest.NewRecorder()
			for _, op := range []string{"ack", "discard"} {
				s.Faults.Add(mailboxtest.Fault{Op: op, Err: mailbox.ErrUnavailable})
			}
			s.run(deadletter.NewConsumer(s.dead, always(deadletter.Done, nil, seen), &deadletter.ConsumerOptions{Visibility: time.Minute}))
			s.Pass(10 * time.Minute)
			s.expectDepth(1)
			s.Faults.Clear()
			s.Pass(10 * time.Minute)
			s.expectDepth(0)
			ruletest.Equal(s, "times it was handled", len(seen.List()), 1)
		}},
		{"a failed redrive is repeated and sends once", func(s *env) {
			s.deadLetter("tea")
			s.Faults.Add(mailboxtest.Fault{Op: "send", Queue: "orders", Err: mailbox.ErrFull, Times: 1})
			s.Faults.Add(mailboxtest.Fault{Op: "redrive", Err: mailbox.ErrFull, Times: 1})
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 3})
			s.run(deadletter.NewConsumer(s.dead, always(deadletter.Redrive, nil, ruletest.NewRecorder()), nil))
			s.Pass(10 * time.Minute)
			s.expectDepth(0)
			s.expectReady(1)
		}},
	})
}

func TestConsumerSurvivesFailures(t *testing.T) {
	runRule(t, "LOOP-6", []rule{
		{"backend errors", func(s *env) {
			s.deadLetter("tea")
			seen := ruletest.NewRecorder()
			s.Faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable})
			stop := s.run(deadletter.NewConsumer(s.dead, always(deadletter.Done, nil, seen), nil))
			s.Pass(time.Hour)
			s.Faults.Clear()
			s.Pass(time.Minute)
			ruletest.Equal(s, "dead letters handled", len(seen.List()), 1)
			s.Must(stop())
		}},
		{"panics of hooks", func(s *env) {
			s.dead = (&deadletter.Policy[string]{Mailbox: s.letters, RequestID: func(body string) string { return body[:3] }}).Queue(s.orders)
			s.deadLetter("tea 1", "tea 2")
			stop := s.run(deadletter.NewConsumer(s.dead, always(deadletter.Redrive, nil, ruletest.NewRecorder()), &deadletter.ConsumerOptions{
				Dedup: deadletter.NewMemoryDedup(10), Logger: s.Logs.Logger(),
				Hooks: deadletter.Hooks{
					Depth:     func(string, int) { panic(errMilk) },
					Handled:   func(deadletter.HandledEvent) { panic(errMilk) },
					Duplicate: func(string, string) { panic(errMilk) },
				},
			}))
			s.Pass(time.Minute)
			s.Must(stop())
			s.expectDepth(0)
			s.expectReady(1)
			if n := strings.Count(s.Logs.String(), "a hook panicked"); n < 4 {
				s.Errorf("the log has %d panics", n)
			}
		}},
		{"a slow handler keeps its lease", func(s *env) {
			s.deadLetter("tea")
			seen := ruletest.NewRecorder()
			s.run(deadletter.NewConsumer(s.dead, func(ctx context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				select {
				case <-time.After(time.Hour):
					return deadletter.Done, nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}, nil))
			s.Pass(2 * time.Hour)
			ruletest.Equal(s, "times it was handled", len(seen.List()), 1)
			s.expectDepth(0)
		}},
		{"a lost lease cancels the handler", func(s *env) {
			if s.letters == nil {
				return // there is no lease
			}
			s.deadLetter("tea")
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Err: mailbox.ErrUnavailable})
			causes := make(chan error, 1)
			s.run(deadletter.NewConsumer(s.dead, func(ctx context.Context, _ letter) (deadletter.Action, error) {
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
			s.expectDepth(1)
		}},
	})
}

// waits returns a handler that takes d, unless its context ends.
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

func TestConsumerDrains(t *testing.T) {
	runRule(t, "LOOP-6", []rule{
		{"the handler may finish", func(s *env) {
			s.deadLetter("tea", "milk")
			ended := make(chan error, 2)
			stop := s.run(deadletter.NewConsumer(s.dead, waits(10*time.Second, ended), nil))
			s.Pass(time.Second)
			s.Must(stop())
			s.Must(<-ended)
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Second)
			s.expectDepth(1)
		}},
		{"the handler is cancelled after the drain time", func(s *env) {
			s.deadLetter("tea")
			ended := make(chan error, 2)
			stop := s.run(deadletter.NewConsumer(s.dead, waits(time.Hour, ended), &deadletter.ConsumerOptions{Drain: time.Minute}))
			s.Pass(time.Second)
			s.Must(stop())
			s.Is(<-ended, context.Canceled)
			ruletest.Equal(s, "time", time.Since(s.Began), 61*time.Second)
			seen := ruletest.NewRecorder()
			s.run(deadletter.NewConsumer(s.dead, always(deadletter.Done, nil, seen), nil))
			s.Pass(time.Second)
			ruletest.Equal(s, "dead letters of the next consumer", len(seen.List()), 1)
		}},
		{"the handler is cancelled at once by Abort", func(s *env) {
			s.deadLetter("tea")
			ended := make(chan error, 2)
			consumer := deadletter.NewConsumer(s.dead, waits(time.Hour, ended), nil)
			stop := s.run(consumer)
			s.Pass(time.Second)
			consumer.Abort()
			s.Must(stop())
			ruletest.Equal(s, "time", time.Since(s.Began), time.Second)
		}},
		{"a handler that does not return is ErrTimeout", func(s *env) {
			s.deadLetter("tea")
			stop := s.run(deadletter.NewConsumer(s.dead, func(context.Context, letter) (deadletter.Action, error) {
				s.Pass(time.Hour)
				return deadletter.Done, nil
			}, nil))
			s.Pass(time.Second)
			s.Is(stop(), mailbox.ErrTimeout)
			s.expectDepth(1)
			s.Pass(time.Hour)
		}},
		{"a consumer without work is idle", func(s *env) {
			consumer := deadletter.NewConsumer(s.dead, always(deadletter.Done, nil, ruletest.NewRecorder()), nil)
			if now := consumer.Activity(); !now.Since.IsZero() || consumer.Running() || !now.LastBeat.IsZero() {
				s.Error("it is active before it runs")
			}
			stop := s.run(consumer)
			s.Pass(time.Minute)
			if now := consumer.Activity(); !now.Since.IsZero() || !consumer.Running() || now.LastBeat.IsZero() {
				s.Error("it is not running, or not idle")
			}
			s.Is(consumer.Run(s.Context()), mailbox.ErrInvalid)
			s.Must(stop())
		}},
		{"RunOnce handles each once without waiting", func(s *env) {
			s.deadLetter("tea", "milk", "sugar")
			seen := ruletest.NewRecorder()
			consumer := deadletter.NewConsumer(s.dead, func(_ context.Context, l letter) (deadletter.Action, error) {
				seen.Add(l.Body)
				if l.Body == "milk" {
					return "", errMilk
				}
				return deadletter.Done, nil
			}, nil)
			for _, want := range []int{3, 0} { // the failed one is put off
				handled, err := consumer.RunOnce(s.Context())
				s.Must(err)
				ruletest.Equal(s, "handled", handled, want)
			}
			ruletest.Equal(s, "time", time.Since(s.Began), 0)
			s.expectDepth(1)
		}},
		{"Stop drains, and prevents a later run", func(s *env) {
			s.deadLetter("tea")
			seen := ruletest.NewRecorder()
			consumer := deadletter.NewConsumer(s.dead, func(context.Context, letter) (deadletter.Action, error) {
				<-time.After(10 * time.Second)
				seen.Add("done")
				return deadletter.Done, nil
			}, nil)
			time.AfterFunc(time.Second, consumer.Stop)
			s.Must(consumer.Run(s.Context()))
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Second)
			s.expectDepth(0)
			s.deadLetter("milk")
			s.Must(consumer.Run(s.Context()))
			ruletest.Equal(s, "handled", seen.Count(), 1)
		}},
		{"a deleted queue is waited for", func(s *env) {
			stop := s.run(deadletter.NewConsumer(s.dead, always(deadletter.Done, nil, ruletest.NewRecorder()), nil))
			s.Pass(time.Second)
			s.Must(s.Backend.DeleteQueue(s.Context(), s.dead.Name()))
			s.Pass(time.Hour)
			s.Must(stop())
		}},
		{"wrong options are ErrInvalid", func(s *env) {
			handler := always(deadletter.Done, nil, ruletest.NewRecorder())
			for _, consumer := range []*deadletter.Consumer[string]{
				deadletter.NewConsumer(nil, handler, nil),
				deadletter.NewConsumer(s.dead, nil, nil),
				deadletter.NewConsumer(deadletter.NewQueue[string](nil, nil), handler, nil),
				deadletter.NewConsumer(s.dead, handler, &deadletter.ConsumerOptions{RetryAfter: -1}),
				deadletter.NewConsumer(s.dead, handler, &deadletter.ConsumerOptions{Visibility: -1}),
				deadletter.NewConsumer(s.dead, handler, &deadletter.ConsumerOptions{Poll: -1}),
			} {
				s.Is(consumer.Run(s.Context()), mailbox.ErrInvalid)
			}
		}},
	})
}

func TestConsumerEndsWhileBackendHangs(t *testing.T) {
	runRule(t, "LOOP-6", []rule{
		{"during an extension", func(s *env) {
			s.deadLetter("tea")
			began := make(chan struct{})
			release := make(chan struct{})
			defer close(release)
			consumer := deadletter.NewConsumer(s.dead, func(ctx context.Context, _ letter) (deadletter.Action, error) {
				close(began)
				select {
				case <-ctx.Done():
				case <-release:
				}
				return deadletter.Keep, ctx.Err()
			}, &deadletter.ConsumerOptions{Drain: time.Second})
			stop := s.run(consumer)
			<-began
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Delay: 24 * time.Hour})
			s.Pass(deadletter.DefaultVisibility / 2) // the extension is under way
			told := time.Now()
			_ = stop() // whether it could be released does not matter here
			if took := time.Since(told); took > 3*time.Minute {
				s.Errorf("ending took %v", took)
			}
		}},
	})
}
