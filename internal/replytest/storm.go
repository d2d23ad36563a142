// Package replytest asks and answers in a storm: many callers at once, while
// workers die and reply stores fail.
package replytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

// A Storm lets callers ask workers while everything fails now and then: workers
// are killed before they serve, while they work and between their reply and
// their ack; every tenth write of the reply store fails, and some of its answers
// get lost after they were stored, as do some of the backend's.
type Storm struct {
	// Requests is the backend of the queue of requests, and Replies where answers
	// are. Requests have no limit of deliveries: a storm may take more than any.
	Requests Backend
	Replies  driver.ReplyStore
	// Slots returns how many slots the store holds.
	Slots func(ctx context.Context) (int, error)

	Callers, Workers int
	// Work is how long a worker takes, and Visibility after which time what a
	// dead one held comes back.
	Work, Visibility time.Duration
	// Patience is how long a caller waits for its answer: the time of a slot.
	// Some callers have less. It should be much longer than the storm takes on a
	// slow machine.
	Patience time.Duration
	// Elapse lets time pass on the clock by which slots end. Nil means that it is
	// waited for, which costs nothing where time is virtual.
	Elapse func(ctx context.Context, d time.Duration)
	// Trouble runs beside the callers, and ends when they have all they will
	// get and its context ends. Nil means that there is no more of it.
	Trouble func(ctx context.Context)
}

// A Backend opens queues and configures them.
type Backend interface {
	driver.Opener
	driver.Admin
}

// A Tally is what the callers got, and what it took.
type Tally struct {
	// Answers and Failures are those of the worker, Errors those of the store
	// or the backend, and Timeouts the callers' own.
	Answers, Failures, Errors, Timeouts int
	// Served is how often a worker did its work, and Killed how many died.
	Served, Killed int
	// Swept is how many slots were left when their time was over, and removed
	// then.
	Swept int
}

// String tells it to a reader.
func (t Tally) String() string {
	return fmt.Sprintf("%d answers, %d failures of their own, %d errors of a store or backend, %d timeouts; served %d times, %d workers killed; %d slots swept, and none left",
		t.Answers, t.Failures, t.Errors, t.Timeouts, t.Served, t.Killed, t.Swept)
}

// ErrOdd is the kind of failure with which some requests are answered.
const ErrOdd mailbox.FailureKind = "an odd question"

// A blow is a storm that has begun.
type blow struct {
	Storm
	t        testing.TB
	faults   *mailboxtest.Faults
	requests *mailbox.Mailbox[string]
	client   *reply.Client[string, string]

	served, killed atomic.Int64

	mu    sync.Mutex // guards tally
	tally Tally
}

// Run runs the storm and checks that every caller gets exactly its own answer,
// its own failure, an error, or its own timeout, and that nothing is left behind.
// It fails the test too if nothing went wrong, or hardly anything went well.
func (s Storm) Run(t testing.TB) Tally {
	t.Helper()
	b := &blow{Storm: s, t: t, faults: mailboxtest.NewFaults(s.Requests)}
	store := b.faults.Replies(s.Replies)
	if err := s.Requests.ConfigureQueue(t.Context(), "requests", driver.Config{MaxDeliveries: driver.Off}); err != nil {
		t.Fatal(err)
	}
	requests, err := mailbox.Open(t.Context(), b.faults, "requests", &mailbox.Options[string]{Replies: store})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = requests.Close() }() // the backend is the caller's
	b.requests, b.client = requests, reply.NewClient(requests, store, &reply.Options[string]{TTL: s.Patience})
	b.addFaults()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working, calling, troubling sync.WaitGroup
	for range s.Workers {
		working.Go(func() { b.work(ctx) })
	}
	if s.Trouble != nil {
		troubling.Go(func() { s.Trouble(ctx) })
	}
	for i := range s.Callers {
		calling.Go(func() { b.call(i) })
	}
	calling.Wait()
	b.faults.Clear()
	b.drain()
	stop()
	working.Wait()
	troubling.Wait()
	b.sweep()
	return b.judge()
}

func (b *blow) addFaults() {
	for _, op := range []mailboxtest.Op{mailboxtest.OpReplyCreate, mailboxtest.OpReplyResolve, mailboxtest.OpReplyCancel, mailboxtest.OpReplyDelete} {
		b.faults.Add(mailboxtest.Fault{Op: op, Err: mailbox.ErrUnavailable, Every: 10})
	}
	b.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpReplyResolve, Err: mailbox.ErrUnavailable, Every: 37, Late: true})
	b.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable, Every: 13})
	b.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpSend, Err: mailbox.ErrUnavailable, Every: 41, Late: true})
}

func question(i int) string { return fmt.Sprint("question ", i) }

// serve answers a question, or finds it odd.
func (b *blow) serve(ctx context.Context, message *mailbox.Message[string]) (string, error) {
	b.served.Add(1)
	b.pause(ctx, b.Work)
	if strings.HasSuffix(message.Body, "7") {
		return "", fmt.Errorf("%w: %s", ErrOdd, message.Body)
	}
	return "answer to " + message.Body, nil
}

// pause waits for d or for the end of ctx.
func (b *blow) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// work serves until ctx ends, and dies every 11th message, in one of three ways:
// what it holds then is abandoned.
func (b *blow) work(ctx context.Context) {
	handle := reply.Handle(b.serve, nil)
	for n := 1; ctx.Err() == nil; n++ {
		messages, err := b.requests.Receive(ctx, mailbox.WithWait(20*time.Second), mailbox.WithVisibility(b.Visibility))
		if err != nil {
			b.pause(ctx, b.Work) // the backend may be down
			continue
		}
		if len(messages) == 0 {
			continue
		}
		switch message := messages[0]; {
		case n%33 == 0: // dead before it began
			b.killed.Add(1)
		case n%22 == 0: // dead while it worked
			b.killed.Add(1)
			life, end := context.WithTimeout(ctx, b.Work/2)
			_ = handle(life, message)
			end()
		case n%11 == 0: // dead between reply and ack
			b.killed.Add(1)
			answer, err := b.serve(ctx, message)
			if channel := mailbox.NewReplyChannel[string](message, nil); err == nil {
				_ = channel.Send(ctx, answer)
			} else {
				_ = channel.Fail(ctx, err)
			}
		default:
			_ = handle(ctx, message) // what fails comes back
		}
	}
}

// patience is how long a caller waits before it gives up. Most wait until the time
// of their slot is over, some give up early, and a few before any worker can be done,
// however quick the machine is.
func (b *blow) patience(i int) time.Duration {
	switch {
	case i%100 == 53:
		return b.Work / 2
	case i%10 == 3:
		return b.Patience * time.Duration(1+i%50) / 400
	default:
		return 2 * b.Patience
	}
}

// call is one caller.
func (b *blow) call(i int) {
	ctx, cancel := context.WithTimeout(b.t.Context(), b.patience(i))
	defer cancel()
	answer, err := b.client.Call(ctx, question(i))
	b.mu.Lock()
	defer b.mu.Unlock()
	failure, failed := errors.AsType[*mailbox.Failure](err)
	switch {
	case err == nil && answer == "answer to "+question(i):
		b.tally.Answers++
	case err == nil:
		b.t.Errorf("caller %d got %q", i, answer)
	case failed && failure.Text == fmt.Sprint(ErrOdd, ": ", question(i)):
		b.tally.Failures++
	case failed:
		b.t.Errorf("caller %d got the failure %q", i, failure.Text)
	case errors.Is(err, mailbox.ErrUnavailable):
		b.tally.Errors++
	case errors.Is(err, mailbox.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		b.tally.Timeouts++
	default:
		b.t.Errorf("caller %d got %v", i, err)
	}
}

// drain lets the workers finish with requests that were answered or given up.
func (b *blow) drain() {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*b.Visibility+time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		stats, err := b.requests.Stats(ctx)
		if err == nil && stats == (mailbox.Stats{}) {
			return
		}
		b.pause(ctx, b.Visibility/10)
	}
	stats, err := b.requests.Stats(b.t.Context())
	b.t.Errorf("requests are left: %+v (%v)", stats, err)
}

// sweep waits until the time of every slot is over, and removes those that are
// left: of cancelled requests, and of those whose removal failed.
func (b *blow) sweep() {
	ctx, elapse := b.t.Context(), b.Elapse
	if elapse == nil {
		elapse = b.pause
	}
	elapse(ctx, b.Patience+time.Second)
	for {
		swept, err := b.Replies.Sweep(ctx, 100)
		if err != nil {
			b.t.Errorf("sweep: %v", err)
			return
		}
		if swept == 0 {
			break
		}
		b.tally.Swept += swept
	}
	if left, err := b.Slots(ctx); left != 0 || err != nil {
		b.t.Errorf("%d slots are left (%v)", left, err)
	}
}

func (b *blow) judge() Tally {
	tally := b.tally
	tally.Served, tally.Killed = int(b.served.Load()), int(b.killed.Load())
	if outcomes := tally.Answers + tally.Failures + tally.Errors + tally.Timeouts; outcomes != b.Callers {
		b.t.Errorf("%d callers got %d outcomes", b.Callers, outcomes)
	}
	if tally.Answers < b.Callers/2 || tally.Failures == 0 || tally.Errors == 0 || tally.Timeouts == 0 || tally.Killed == 0 || tally.Swept == 0 {
		b.t.Errorf("this was no storm: too few answers, or nothing went wrong: %v", tally)
	}
	return tally
}
