package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/worker"
)

// workerSuite compares worker runtimes: how many messages a second go through a handler
// that does nothing. It measures draining a full queue, with the same number of handlers,
// from the first message that is handled: to the last that is handled for others, and for
// us until the last is settled too and the loop has ended.
func workerSuite(r *report) {
	err := errors.Join(r.workersInMemory(), r.workersOnRedis(), r.workersOnDisk())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A workerTask is one runtime to measure.
type workerTask struct {
	name string
	// atLeast is the target as a multiple of the yardstick's rate; 0 for none. The
	// yardstick is the first.
	atLeast float64
	// fill sends messages to an empty queue and returns the workload that handles them.
	fill func(messages, handlers int) (*workload, error)
}

// A workload is a full queue.
type workload struct {
	// work calls handled for each message, from the given number of handlers, until
	// stop is closed.
	work func(handled func(), stop <-chan struct{}) error
	// ours: work has to end too for the clock to stop.
	ours  bool
	close func() error
}

// A progress records when messages are handled.
type progress struct {
	messages    int64
	handled     atomic.Int64
	first, last time.Time
	done        chan struct{} // closed at the last one
}

func (p *progress) handle() {
	switch n := p.handled.Add(1); n {
	case 1:
		p.first = time.Now()
	case p.messages:
		p.last = time.Now()
		close(p.done)
	}
}

// workerPatience is how long draining a queue may take.
const workerPatience = 2 * time.Minute

// rate runs a workload and returns messages per second.
func (w *workload) rate(messages int) (float64, error) {
	p := &progress{messages: int64(messages), done: make(chan struct{})}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.work(p.handle, stop) }()
	var err error
	select {
	case <-p.done:
	case err = <-ended:
		return 0, errors.Join(err, fmt.Errorf("it ended after %d of %d messages", p.handled.Load(), messages))
	case <-time.After(workerPatience):
		err = fmt.Errorf("%d of %d messages were handled in %v", p.handled.Load(), messages, workerPatience)
	}
	close(stop)
	if err = errors.Join(err, <-ended); err != nil {
		return 0, err
	}
	if w.ours {
		p.last = time.Now()
	}
	// The first has been handled when the clock is read, so it does not count.
	return float64(messages-1) / p.last.Sub(p.first).Seconds(), nil
}

// workers runs the tasks in turns and prints their rates.
func (r *report) workers(title string, messages, handlers int, tasks []workerTask) error {
	rates := make([][]pace, len(tasks))
	for range r.rounds {
		for i, task := range tasks {
			w, err := task.fill(messages, handlers)
			if err != nil {
				return fmt.Errorf("%s: %w", task.name, err)
			}
			rate, err := w.rate(messages)
			if err = errors.Join(err, w.close()); err != nil {
				return fmt.Errorf("%s: %w", task.name, err)
			}
			rates[i] = append(rates[i], pace{rate: rate})
		}
	}
	fmt.Printf("\n%s: %d messages, %d handlers\n", title, messages, handlers)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tmessages/s\tof "+tasks[0].name+"\tpromise")
	for i, task := range tasks {
		share, promise := shareOf(rates[i], rates[0]), ""
		if task.atLeast > 0 {
			promise = fmt.Sprintf("at least %.2f× of it: %s", task.atLeast, kept(share >= task.atLeast))
		}
		fmt.Fprintf(table, "  %s\t%.0f\t%.2f×\t%s\n", task.name, middle(rates[i], rateOf), share, promise)
	}
	return table.Flush()
}

// workerBatch is how many messages are sent together to fill a queue.
const workerBatch = 250

// fillMailbox opens a mailbox and sends messages to it.
func fillMailbox(ctx context.Context, backend driver.Opener, messages int) (*mailbox.Mailbox[[]byte], error) {
	orders, err := mailbox.Open(ctx, backend, "bench", &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	if err != nil {
		return nil, err
	}
	for sent := 0; sent < messages; sent += workerBatch {
		batch := make([][]byte, min(workerBatch, messages-sent))
		for i := range batch {
			batch[i] = make([]byte, bodyBytes)
		}
		if _, err := orders.SendAll(ctx, batch); err != nil {
			return nil, err
		}
	}
	return orders, nil
}

// loopOver drains a mailbox with a Loop.
func loopOver(orders *mailbox.Mailbox[[]byte], handlers, prefetch int) func(handled func(), stop <-chan struct{}) error {
	return func(handled func(), stop <-chan struct{}) error {
		loop := worker.New(orders, func(context.Context, *mailbox.Message[[]byte]) error {
			handled()
			return nil
		}, &worker.Options[[]byte]{Concurrency: handlers, Prefetch: prefetch})
		go func() {
			<-stop
			loop.Stop()
		}()
		return loop.Run(context.Background())
	}
}

// cycleOver drains a mailbox with the loop that a program would write: a goroutine for each
// handler, which receives and acks one message at a time.
func cycleOver(orders *mailbox.Mailbox[[]byte], handlers int) func(handled func(), stop <-chan struct{}) error {
	return func(handled func(), stop <-chan struct{}) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		errs := make([]error, handlers)
		var all sync.WaitGroup
		for i := range handlers {
			all.Go(func() {
				for errs[i] == nil {
					select {
					case <-stop:
						return
					default:
					}
					var got []*mailbox.Message[[]byte]
					if got, errs[i] = orders.Receive(ctx, mailbox.WithWait(50*time.Millisecond)); len(got) == 1 {
						handled()
						errs[i] = got[0].Ack(ctx)
					}
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
}
