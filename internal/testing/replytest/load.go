// Package replytest runs many callers and workers at once, while workers crash and
// reply stores fail.
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
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

// A Load is a test of requests and replies under faults: workers crash before they
// serve, while they work, and between reply and ack; every tenth write of the reply
// store fails, and some answers of the store and the backend get lost after the call
// succeeded.
type Load struct {
	// Requests is the backend of the request queue, and Replies the reply store. The
	// queue has no delivery limit.
	Requests Backend
	Replies  driver.ReplyStore
	// Slots returns how many slots the store holds.
	Slots func(ctx context.Context) (int, error)

	Callers, Workers int
	// Work is how long a worker takes, and Visibility how long the requests of a
	// crashed worker stay in flight.
	Work, Visibility time.Duration
	// Patience is how long a caller waits for its answer: the TTL of a slot. Some
	// callers wait less. It should be much longer than the test takes on a slow
	// machine.
	Patience time.Duration
	// Elapse lets time pass on the clock of the store. Nil means to wait, which costs
	// nothing in virtual time.
	Elapse func(ctx context.Context, d time.Duration)
	// Trouble causes more faults beside the callers, until its context ends. Nil
	// means none.
	Trouble func(ctx context.Context)
}

// A Backend opens queues and configures them.
type Backend interface {
	driver.Opener
	driver.Admin
}

// A Result counts what the callers got, and what it took.
type Result struct {
	// Answers and Failures come from workers, Errors from the store or the backend,
	// and Timeouts from the callers.
	Answers, Failures, Errors, Timeouts int
	// Served is how often a worker served a request, and Killed how often one crashed.
	Served, Killed int
	// Swept is how many slots expired and were removed.
	Swept int
}

// String returns the counts in one line.
func (t Result) String() string {
	return fmt.Sprintf("%d answers, %d failures of their own, %d errors of a store or backend, %d timeouts; served %d times, %d workers killed; %d slots swept, and none left",
		t.Answers, t.Failures, t.Errors, t.Timeouts, t.Served, t.Killed, t.Swept)
}

// ErrOdd is the kind of the failures that workers reply with.
const ErrOdd mailbox.FailureKind = "an odd question"

// A loadRun is one run of a Load.
type loadRun struct {
	Load
	t        testing.TB
	faults   *mailboxtest.Faults
	requests *mailbox.Mailbox[string]
	client   *reply.Client[string, string]

	served, killed atomic.Int64

	mu     sync.Mutex // guards result
	result Result
}

// Run runs the load and checks that every caller gets exactly its own answer, its own
// failure, an error, or its own timeout, and that no request and no slot remains. It
// also fails the test if no fault occurred, or most calls failed.
func (s Load) Run(t testing.TB) Result {
	t.Helper()
	b := &loadRun{Load: s, t: t, faults: mailboxtest.NewFaults(s.Requests)}
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
	return b.check()
}

func (b *loadRun) addFaults() {
	for _, op := range []string{"create slot", "resolve", "cancel", "delete"} {
		b.faults.Add(mailboxtest.Fault{Op: op, Err: mailbox.ErrUnavailable, Every: 10})
	}
	b.faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable, Every: 37, Late: true})
	b.faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Every: 13})
	b.faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrUnavailable, Every: 41, Late: true})
}

func question(i int) string { return fmt.Sprint("question ", i) }

// serve answers a question, or fails with ErrOdd.
func (b *loadRun) serve(ctx context.Context, message *mailbox.Message[string]) (string, error) {
	b.served.Add(1)
	_ = backoff.Pause(ctx, b.Work)
	if strings.HasSuffix(message.Body, "7") {
		return "", fmt.Errorf("%w: %s", ErrOdd, message.Body)
	}
	return "answer to " + message.Body, nil
}

// work serves until ctx ends, and crashes at every 11th message, in one of three
// ways: it abandons the message.
func (b *loadRun) work(ctx context.Context) {
	handle := reply.Handle(b.serve, nil)
	for n := 1; ctx.Err() == nil; n++ {
		messages, err := b.requests.Receive(ctx, mailbox.WithWait(20*time.Second), mailbox.WithVisibility(b.Visibility))
		if err != nil {
			_ = backoff.Pause(ctx, b.Work) // the backend may be down
			continue
		}
		if len(messages) == 0 {
			continue
		}
		switch message := messages[0]; {
		case n%33 == 0: // crash before serving
			b.killed.Add(1)
		case n%22 == 0: // crash while serving
			b.killed.Add(1)
			life, end := context.WithTimeout(ctx, b.Work/2)
			_ = handle(life, message)
			end()
		case n%11 == 0: // crash between reply and ack
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

// patience returns how long a caller waits. Most wait until their slot expires, some
// give up early, and a few before any worker can answer.
func (b *loadRun) patience(i int) time.Duration {
	switch {
	case i%100 == 53:
		return b.Work / 2
	case i%10 == 3:
		return b.Patience * time.Duration(1+i%50) / 400
	default:
		return 2 * b.Patience
	}
}

// call runs one caller.
func (b *loadRun) call(i int) {
	ctx, cancel := context.WithTimeout(b.t.Context(), b.patience(i))
	defer cancel()
	answer, err := b.client.Call(ctx, question(i))
	b.mu.Lock()
	defer b.mu.Unlock()
	failure, failed := errors.AsType[*mailbox.Failure](err)
	switch {
	case err == nil && answer == "answer to "+question(i):
		b.result.Answers++
	case err == nil:
		b.t.Errorf("caller %d got %q", i, answer)
	case failed && failure.Text == fmt.Sprint(ErrOdd, ": ", question(i)):
		b.result.Failures++
	case failed:
		b.t.Errorf("caller %d got the failure %q", i, failure.Text)
	case errors.Is(err, mailbox.ErrUnavailable):
		b.result.Errors++
	case errors.Is(err, mailbox.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		b.result.Timeouts++
	default:
		b.t.Errorf("caller %d got %v", i, err)
	}
}

// drain waits until the workers have settled all requests.
func (b *loadRun) drain() {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*b.Visibility+time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		stats, err := b.requests.Stats(ctx)
		if err == nil && stats == (mailbox.Stats{}) {
			return
		}
		_ = backoff.Pause(ctx, b.Visibility/10)
	}
	stats, err := b.requests.Stats(b.t.Context())
	b.t.Errorf("requests are left: %+v (%v)", stats, err)
}

// sweep waits until every slot has expired, and removes those that are left: of
// cancelled requests, and those whose removal failed.
func (b *loadRun) sweep() {
	ctx := b.t.Context()
	if b.Elapse == nil {
		_ = backoff.Pause(ctx, b.Patience+time.Second)
	} else {
		b.Elapse(ctx, b.Patience+time.Second)
	}
	for {
		swept, err := b.Replies.Sweep(ctx, 100)
		if err != nil {
			b.t.Errorf("sweep: %v", err)
			return
		}
		if swept == 0 {
			break
		}
		b.result.Swept += swept
	}
	if left, err := b.Slots(ctx); left != 0 || err != nil {
		b.t.Errorf("%d slots are left (%v)", left, err)
	}
}

func (b *loadRun) check() Result {
	result := b.result
	result.Served, result.Killed = int(b.served.Load()), int(b.killed.Load())
	if outcomes := result.Answers + result.Failures + result.Errors + result.Timeouts; outcomes != b.Callers {
		b.t.Errorf("%d callers got %d outcomes", b.Callers, outcomes)
	}
	if result.Answers < b.Callers/2 || result.Failures == 0 || result.Errors == 0 || result.Timeouts == 0 || result.Killed == 0 || result.Swept == 0 {
		b.t.Errorf("too few answers, or no faults: %v", result)
	}
	return result
}
