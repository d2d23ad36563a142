package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestBatchErrorInAnotherErrorFailsAll(t *testing.T) {
	results := func() error { return &mailbox.BatchError{Errs: []error{nil, errMilk}} }
	runRule(t, "FLOW-7", []rule{
		{"a panic with the errors of a batch", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			_, err := worker.NewBatch(orders, func(context.Context, []*message) error { panic(results()) }, s.batchOptions(batchOptions{})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{Delayed: 2})
		}},
		{"the errors of a batch beside another error", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			_, err := worker.NewBatch(orders, func(context.Context, []*message) error {
				return errors.Join(results(), errMilk)
			}, s.batchOptions(batchOptions{})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{Delayed: 2})
		}},
		{"no errors of a batch are a success", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			_, err := worker.NewBatch(orders, func(context.Context, []*message) error {
				var none *mailbox.BatchError
				return none
			}, s.batchOptions(batchOptions{})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{})
		}},
	})
}

func TestBatchWithLostLeaseIsCancelledByWatchdog(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		s.send(orders, "a", "b")
		held, causes := make(chan []*message, 1), make(chan error, 1)
		g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: 10 * time.Minute}, worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
			if len(batch) == 2 {
				held <- batch
				<-ctx.Done()
				causes <- context.Cause(ctx)
			}
			return nil
		}, s.batchOptions(batchOptions{})))
		stop := s.run(g)
		batch := <-held
		s.Must(orders.Queue().Nack(s.Context(), []driver.Nack{{Receipt: batch[0].Receipt, Delay: time.Hour}}))
		s.Pass(15 * time.Minute)
		select {
		case cause := <-causes:
			s.Is(cause, worker.ErrStuck)
		default:
			s.Errorf("the handler is not cancelled")
		}
		s.Must(stop())
	})
}

func TestBatchAcksBesideUnackedRequests(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "plain")
		s.ask(orders, "request")
		s.send(orders, "plain")
		count := countBatches(done)
		stop := s.run(worker.NewBatch(orders, func(ctx context.Context, batch []*message) error {
			s.Faults.Add(mailboxtest.Fault{Op: "get", Err: mailbox.ErrUnavailable})
			return count(ctx, batch)
		}, s.batchOptions(batchOptions{})))
		s.Pass(time.Minute)
		ruletest.Equal(s, "batches", done.Count(), 1)
		s.expectStats(orders, mailbox.Stats{InFlight: 1})
		_ = stop()
	})
}

func TestBusyBatchHoldsNoMoreThanPrefetch(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		s.send(orders, "a")
		stop := s.run(worker.NewBatch(orders, func(context.Context, []*message) error {
			<-time.After(10 * time.Minute)
			return nil
		}, s.batchOptions(batchOptions{Size: 10, Options: options{Prefetch: 2}})))
		s.Pass(time.Minute)
		s.send(orders, "b", "c", "d", "e", "f")
		s.Pass(time.Minute)
		s.expectStats(orders, mailbox.Stats{InFlight: 3, Ready: 3})
		s.Pass(time.Hour)
		s.expectStats(orders, mailbox.Stats{})
		s.Must(stop())
	})
}

func TestFillBeyondUnextendedLeaseIsRefused(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		err := worker.NewBatch(orders, countBatches(ruletest.NewRecorder()), s.batchOptions(batchOptions{
			Fill: time.Minute, Options: options{NoExtend: true, Visibility: time.Minute},
		})).Run(s.Context())
		s.Is(err, mailbox.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), "Fill") {
			s.Errorf("the error is %v", err)
		}
	})
}
