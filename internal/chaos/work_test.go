package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/worker"
)

// A kind is what the body of a message says about its work.
type kind string

// The kinds, and how many of a thousand messages are of each.
const (
	fine       kind = "fine"
	flaky      kind = "flaky"      // fails twice
	panics     kind = "panics"     // once
	slow       kind = "slow"       // longer than a lease, within the timeout
	hangs      kind = "hangs"      // until its context ends, always
	deaf       kind = "deaf"       // does not notice that its context has ended, and succeeds
	poison     kind = "poison"     // always fails
	hopeless   kind = "hopeless"   // says that trying again cannot help
	unreadable kind = "unreadable" // is no JSON
	bomb       kind = "bomb"       // kills its process, always
)

var shares = []struct {
	kind  kind
	share int
}{
	{flaky, 100}, {panics, 60}, {slow, 30}, {hangs, 15}, {deaf, 10}, {poison, 40}, {hopeless, 40}, {unreadable, 20}, {bomb, 2},
}

// randomKind is fine unless chance has it otherwise.
func randomKind() kind {
	n := rand.IntN(1000)
	for _, s := range shares {
		if n -= s.share; n < 0 {
			return s.kind
		}
	}
	return fine
}

// A job is the body of a message. Bodies are all different, so that histories can tell
// them apart.
type job struct {
	Kind kind   `json:"kind"`
	Name string `json:"name"`
}

// Leases and timeouts are short, so that there are many of them in a minute.
const (
	visibility    = 500 * time.Millisecond
	timeout       = 900 * time.Millisecond
	slowness      = 700 * time.Millisecond
	deafness      = 1500 * time.Millisecond
	drain         = 300 * time.Millisecond
	maxDeliveries = 6 // by the policy of the loop
	// The limit of the queue is the higher one, so that the policy decides.
	maxDeliveriesOfQueue = 8
)

var queueConfig = driver.Config{MaxDeliveries: maxDeliveriesOfQueue}

var errChance = errors.New("bad luck")

// work is the handler of all processes.
func work(ctx context.Context, m *mailbox.Message[job]) error {
	switch m.Body.Kind {
	case flaky:
		if m.Deliveries <= 2 {
			return errChance
		}
	case panics:
		if m.Deliveries == 1 {
			panic("spilled")
		}
	case slow:
		return wait(ctx, slowness)
	case hangs:
		<-ctx.Done()
		return context.Cause(ctx)
	case deaf:
		<-time.After(deafness)
	case poison:
		return errChance
	case hopeless:
		return worker.Permanent(errChance)
	case bomb:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the kernel gets to it
	}
	return wait(ctx, rand.N(5*time.Millisecond))
}

// wait waits, unless ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// newLoop is the loop of all processes. Done is told of messages whose work was done.
func newLoop(orders *mailbox.Mailbox[job], handler worker.Handler[job], done func(id string)) *worker.Loop[job] {
	return worker.New(orders, func(ctx context.Context, m *mailbox.Message[job]) error {
		if err := handler(ctx, m); err != nil {
			return err
		}
		done(m.ID)
		return nil
	}, &worker.Options[job]{
		Concurrency: 16, Prefetch: 8, Visibility: visibility, Timeout: timeout, Drain: drain, Wait: time.Second,
		Backoff:     worker.ExponentialBackoff(10*time.Millisecond, 300*time.Millisecond),
		DeadLetters: &deadletter.Policy[job]{MaxDeliveries: maxDeliveries},
	})
}

// reasonFits reports whether a message of a kind may be dead for a reason. Any message can
// be delivered too often when its processes are killed.
func reasonFits(k kind, reason mailbox.Reason) bool {
	switch k {
	case hopeless:
		return reason == mailbox.ReasonFatal || reason == mailbox.ReasonMaxDeliveries
	case unreadable:
		return reason == mailbox.ReasonParse || reason == mailbox.ReasonMaxDeliveries
	}
	return reason == mailbox.ReasonMaxDeliveries
}

// mustDie reports whether work of a kind can only end in the dead letters.
func mustDie(k kind) bool {
	return k == hangs || k == poison || k == hopeless || k == unreadable || k == bomb
}

// produce sends until stop is closed. A send whose outcome is not known is repeated with
// the same key, so that it adds nothing if it was done after all.
func produce(ctx context.Context, queue driver.Queue, process string, pace time.Duration, stop <-chan struct{}) {
	for n := 0; ; {
		var batch []driver.Outgoing
		for range 1 + rand.IntN(4) {
			j := job{Kind: randomKind(), Name: fmt.Sprintf("%s %d", process, n)}
			n++
			body, _ := json.Marshal(j) // of two strings, it cannot fail
			if j.Kind == unreadable {
				body = append([]byte("?"), body...)
			}
			batch = append(batch, driver.Outgoing{Body: body, DedupKey: j.Name})
		}
		for {
			if _, err := queue.Send(ctx, batch); err == nil || ctx.Err() != nil {
				break
			}
			_ = wait(ctx, 20*time.Millisecond) // it ends the loop above too
		}
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(rand.N(2 * pace)):
		}
	}
}
