package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

type batchOptions = worker.BatchOptions[string]

// bodies returns the bodies of a batch, joined.
func bodies(batch []*message) string {
	var all []string
	for _, m := range batch {
		all = append(all, m.Body)
	}
	return strings.Join(all, " ")
}

// countBatches returns a handler that records the bodies of each batch.
func countBatches(done *ruletest.Recorder) worker.BatchHandler[string] {
	return func(_ context.Context, batch []*message) error {
		done.Add(bodies(batch))
		return nil
	}
}

// batchOptions adds the logger to o.
func (s *env) batchOptions(o batchOptions) *batchOptions {
	o.Logger = s.Logs.Logger()
	return &o
}

func TestBatchesFill(t *testing.T) {
	runRule(t, "FLOW-7", []rule{
		{"a full batch starts at once, the rest after Fill", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b", "c", "d", "e", "f", "g")
			stop := s.run(worker.NewBatch(orders, countBatches(done), s.batchOptions(batchOptions{Size: 3, Fill: 10 * time.Second})))
			s.Pass(time.Second)
			if got := done.List(); !slices.Equal(got, []string{"a b c", "d e f"}) {
				s.Errorf("batches were %q", got)
			}
			s.send(orders, "h")
			s.Pass(8 * time.Second)
			ruletest.Equal(s, "batches before Fill has passed", done.Count(), 2)
			s.Pass(2 * time.Second)
			if got := done.List(); !slices.Equal(got[2:], []string{"g h"}) {
				s.Errorf("batches were %q", got)
			}
			s.send(orders, "i", "j", "k")
			s.Pass(time.Millisecond)
			ruletest.Equal(s, "last batch", done.List()[3], "i j k")
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
		{"a negative Fill waits for nothing", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			stop := s.run(worker.NewBatch(orders, countBatches(done), s.batchOptions(batchOptions{Fill: -1})))
			s.send(orders, "a")
			s.Pass(time.Millisecond)
			ruletest.Equal(s, "batches", done.Count(), 1)
			s.Must(stop())
		}},
		{"as many batches at once as Concurrency", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			for i := range 40 {
				s.send(orders, fmt.Sprint(i))
			}
			stop := s.run(worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				done.Add(bodies(batch))
				<-time.After(time.Minute)
				return nil
			}, s.batchOptions(batchOptions{Size: 5, Options: options{Concurrency: 2, Prefetch: 5}})))
			s.Pass(time.Second)
			ruletest.Equal(s, "batches", done.Count(), 2)
			s.Pass(2 * time.Minute)
			ruletest.Equal(s, "batches", done.Count(), 6)
			s.Pass(2 * time.Minute)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
		{"RunOnce does not wait", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b", "c")
			n, err := worker.NewBatch(orders, countBatches(done), s.batchOptions(batchOptions{Size: 2, Fill: time.Hour, Options: options{Prefetch: 1}})).RunOnce(s.Context())
			s.Must(err)
			ruletest.Equal(s, "handled", n, 3)
			ruletest.Equal(s, "batches", done.Count(), 2)
			s.At(0)
		}},
		{"a batch has one message of a strict group", func(s *env) {
			s.Configure("orders", driver.Config{StrictGroups: true})
			orders, done := s.open("orders"), ruletest.NewRecorder()
			for _, order := range [][2]string{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}, {"a3", "a"}} {
				_, err := orders.Send(s.Context(), order[0], mailbox.WithGroup(order[1]))
				s.Must(err)
			}
			stop := s.run(worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				seen := make(map[string]bool)
				for _, m := range batch {
					if seen[m.Group] {
						s.Errorf("the batch %s has group %s twice", bodies(batch), m.Group)
					}
					seen[m.Group] = true
					done.Add(m.Body)
				}
				return nil
			}, s.batchOptions(batchOptions{Size: 10})))
			s.Pass(time.Minute)
			got := done.List()
			ruletest.Equal(s, "handled", len(got), 4)
			if a1, a2, a3 := slices.Index(got, "a1"), slices.Index(got, "a2"), slices.Index(got, "a3"); a1 > a2 || a2 > a3 {
				s.Errorf("handled were %q", got)
			}
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
	})
}

func TestBatchSettlesEachMessage(t *testing.T) {
	runRule(t, "FLOW-7", []rule{
		{"according to its own result", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "fine", "later", "bad", "own", "gone")
			results := ruletest.NewRecorder()
			loop := worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				errs := make([]error, len(batch))
				for i, m := range batch {
					switch m.Body {
					case "later":
						errs[i] = worker.RetryAfter(time.Hour, errMilk)
					case "bad":
						errs[i] = worker.Permanent(errMilk)
					case "own":
						errs[i] = m.Nack(ctx, 2*time.Hour, nil)
					case "gone":
						errs[i] = worker.Discard(errMilk)
					}
				}
				return &mailbox.BatchError{Errs: errs}
			}, s.batchOptions(batchOptions{Options: options{Hooks: worker.Hooks{Settled: func(_ context.Context, event worker.SettledEvent) {
				results.Add(string(event.Result))
			}}}}))
			_, err := loop.RunOnce(s.Context())
			s.Must(err)
			got := slices.Sorted(slices.Values(results.List()))
			if want := []worker.Result{worker.ResultAcked, worker.ResultDead, worker.ResultDiscarded, worker.ResultNacked, worker.ResultHandler}; fmt.Sprint(got) != fmt.Sprint(want) {
				s.Errorf("settled were %q, want %q", got, want)
			}
			s.expectStats(orders, mailbox.Stats{Delayed: 2, Dead: 1})
		}},
		{"an error is that of all", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b", "c")
			_, err := worker.NewBatch(orders, func(context.Context, []*message) error { return errMilk }, s.batchOptions(batchOptions{})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{Delayed: 3})
		}},
		{"the errors of another batch are those of all", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b", "c")
			_, err := worker.NewBatch(orders, func(context.Context, []*message) error {
				return &mailbox.BatchError{Errs: []error{nil, errMilk}}
			}, s.batchOptions(batchOptions{})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{Delayed: 3})
		}},
		{"a panic and an exit fail all, and the loop goes on", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b")
			stop := s.run(worker.NewBatch(orders, func(_ context.Context, batch []*message) error {
				switch batch[0].Deliveries {
				case 1:
					panic("spilled")
				case 2:
					runtime.Goexit()
				}
				done.Add(bodies(batch))
				return nil
			}, s.batchOptions(batchOptions{Options: options{Backoff: func(int) time.Duration { return time.Minute }}})))
			s.Pass(3 * time.Minute)
			ruletest.Equal(s, "batches", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
			if log := s.Logs.String(); !strings.Contains(log, "panic: spilled") || !strings.Contains(log, "runtime.Goexit") {
				s.Errorf("the log is %s", log)
			}
		}},
		{"a message over the limit is dead-lettered, the others are handled", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a")
			for range 2 {
				got, err := orders.Receive(s.Context(), mailbox.WithVisibility(time.Second))
				s.Must(err)
				ruletest.Equal(s, "received", len(got), 1)
				s.Pass(2 * time.Second)
			}
			s.send(orders, "b", "c")
			_, err := worker.NewBatch(orders, countBatches(done), s.batchOptions(batchOptions{
				Options: options{DeadLetters: &deadletter.Policy[string]{MaxDeliveries: 2}},
			})).RunOnce(s.Context())
			s.Must(err)
			if got := done.List(); !slices.Equal(got, []string{"b c"}) {
				s.Errorf("batches were %q", got)
			}
			s.expectStats(orders, mailbox.Stats{Dead: 1})
		}},
		{"work is not repeated because its ack failed", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b")
			remove := s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
			stop := s.run(worker.NewBatch(orders, countBatches(done), s.batchOptions(batchOptions{})))
			s.Pass(time.Minute)
			remove()
			s.Pass(time.Minute)
			ruletest.Equal(s, "batches", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
	})
}

func TestBatchLeasesAreExtended(t *testing.T) {
	runRule(t, "LOOP-5", []rule{
		{"while a batch fills and while its handler works", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b", "c")
			stop := s.run(worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				<-time.After(10 * time.Minute)
				done.Add(bodies(batch))
				return ctx.Err()
			}, s.batchOptions(batchOptions{Fill: 5 * time.Minute})))
			s.Pass(16 * time.Minute)
			if got := done.List(); !slices.Equal(got, []string{"a b c"}) {
				s.Errorf("batches were %q", got)
			}
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
		{"one lost lease does not end the batch, all do", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			held, causes := make(chan []*message), make(chan error, 1)
			stop := s.run(worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				if batch[0].Deliveries > 1 {
					return nil
				}
				held <- batch
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, s.batchOptions(batchOptions{})))
			batch := <-held
			expire := func(m *message) {
				s.Must(orders.Queue().Nack(s.Context(), []driver.Nack{{Receipt: m.Receipt, Delay: time.Hour}}))
				s.Pass(time.Minute)
			}
			expire(batch[0])
			ruletest.Equal(s, "causes", len(causes), 0)
			expire(batch[1])
			s.Is(<-causes, mailbox.ErrReceiptExpired)
			s.Must(stop())
			s.expectStats(orders, mailbox.Stats{Delayed: 2})
		}},
		{"Extend, Beat and SetProgress are for all", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			extended := make(chan error)
			loop := worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				worker.Beat(ctx)
				worker.SetProgress(ctx, 0.5, "half")
				extended <- worker.Extend(ctx, time.Hour)
				<-time.After(time.Minute)
				return nil
			}, s.batchOptions(batchOptions{Options: options{NoExtend: true}}))
			stop := s.run(loop)
			s.Must(<-extended)
			if got := loop.Activity().Progress; len(got) != 2 || got[0].Text != "half" || got[0].MessageID == got[1].MessageID {
				s.Errorf("progress is %+v", got)
			}
			s.Pass(2 * time.Minute)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
	})
}

func TestBatchesDrain(t *testing.T) {
	runRule(t, "LOOP-3", []rule{
		{"what waits for a full batch is released at once", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b")
			stop := s.run(worker.NewBatch(orders, countBatches(done), s.batchOptions(batchOptions{Fill: time.Hour})))
			s.Pass(time.Minute)
			s.expectStats(orders, mailbox.Stats{InFlight: 2})
			s.Must(stop())
			s.At(time.Minute)
			s.expectStats(orders, mailbox.Stats{Ready: 2})
			ruletest.Equal(s, "batches", done.Count(), 0)
		}},
		{"a handler may finish", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b")
			stop := s.run(worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				<-time.After(10 * time.Second)
				done.Add(bodies(batch))
				return ctx.Err()
			}, s.batchOptions(batchOptions{})))
			s.Pass(time.Second)
			s.Must(stop())
			ruletest.Equal(s, "batches", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"a handler that takes too long is cancelled", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			causes := make(chan error, 1)
			stop := s.run(worker.NewBatch(orders, func(ctx context.Context, _ []*message) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, s.batchOptions(batchOptions{Options: options{Drain: time.Second}})))
			s.Pass(time.Second)
			s.Must(stop())
			s.Is(<-causes, worker.ErrShutdown)
			s.expectStats(orders, mailbox.Stats{Ready: 2})
		}},
		{"one that ignores that is one stuck handler", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			release := make(chan struct{})
			stop := s.run(worker.NewBatch(orders, func(context.Context, []*message) error {
				<-release
				return nil
			}, s.batchOptions(batchOptions{Options: options{Drain: time.Second}})))
			s.Pass(time.Second)
			err := stop()
			s.Is(err, worker.ErrStuck)
			if !strings.Contains(err.Error(), "1 handlers") {
				s.Errorf("the error is %v", err)
			}
			close(release)
			s.Pass(time.Second)
		}},
		{"Timeout bounds a batch", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			causes := make(chan error, 1)
			_, err := worker.NewBatch(orders, func(ctx context.Context, _ []*message) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, s.batchOptions(batchOptions{Options: options{Timeout: time.Minute}})).RunOnce(s.Context())
			s.Must(err)
			s.Is(<-causes, mailbox.ErrTimeout)
			s.At(time.Minute)
			s.expectStats(orders, mailbox.Stats{Delayed: 2})
		}},
		{"a stuck batch is cancelled by the watchdog", func(s *env) {
			orders, causes := s.open("orders"), make(chan error, 1)
			s.send(orders, "a", "b")
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: time.Minute}, worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
				if batch[0].Deliveries == 1 {
					<-ctx.Done()
					causes <- context.Cause(ctx)
				}
				return nil
			}, s.batchOptions(batchOptions{})))
			stop := s.run(g)
			s.Is(<-causes, worker.ErrStuck)
			s.Must(stop())
		}},
	})
}

func TestBatchHooksAreCalledForEachMessage(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, calls := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "a", "b")
		_, err := worker.NewBatch(orders, func(context.Context, []*message) error {
			<-time.After(time.Second)
			return &mailbox.BatchError{Errs: []error{nil, errMilk}}
		}, s.batchOptions(batchOptions{Options: options{Hooks: worker.Hooks{
			Started: func(_ context.Context, info worker.Info) { calls.Add("started " + info.Queue) },
			Finished: func(_ context.Context, event worker.FinishedEvent) {
				calls.Add(fmt.Sprintf("finished %v %v", event.Duration, event.Err))
			},
		}}})).RunOnce(s.Context())
		s.Must(err)
		if got := calls.List(); !slices.Equal(got, []string{"started orders", "started orders", "finished 1s <nil>", "finished 1s no milk"}) {
			s.Errorf("calls were %q", got)
		}
	})
}

func TestBatchOptionsAreChecked(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		nothing := func(context.Context, []*message) error { return nil }
		for field, loop := range map[string]*worker.Loop[string]{
			"handler":     worker.NewBatch(orders, nil, nil),
			"mailbox":     worker.NewBatch[string](nil, nothing, nil),
			"Size":        worker.NewBatch(orders, nothing, &batchOptions{Size: -1}),
			"Middleware":  worker.NewBatch(orders, nothing, &batchOptions{Options: options{Middleware: []worker.Middleware[string]{worker.Recovery[string]()}}}),
			"Concurrency": worker.NewBatch(orders, nothing, &batchOptions{Options: options{Concurrency: -1}}),
		} {
			err := loop.Run(s.Context())
			if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Code != mailbox.ErrInvalid || e.Field != field {
				s.Errorf("%s: the error is %v", field, err)
			}
		}
		err := worker.NewBatch(orders, nothing, &batchOptions{Size: 40_000, Options: options{Concurrency: 2}}).Run(s.Context())
		if !errors.Is(err, mailbox.ErrInvalid) || !strings.Contains(err.Error(), "65536") {
			s.Errorf("the error is %v", err)
		}
	})
}
