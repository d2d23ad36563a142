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

// A kind is part of a message's body and determines how its handler behaves.
type kind string

// The kinds, and how many of a thousand messages are of each.
const (
	fine       kind = "fine"
	flaky      kind = "flaky"      // fails twice
	panics     kind = "panics"     // on the first delivery
	slow       kind = "slow"       // longer than a lease, within the timeout
	hangs      kind = "hangs"      // on every delivery, until its context ends
	deaf       kind = "deaf"       // ignores the end of its context, and succeeds
	poison     kind = "poison"     // always fails
	hopeless   kind = "hopeless"   // fails with a permanent error
	unreadable kind = "unreadable" // is not JSON
	bomb       kind = "bomb"       // kills its process on every delivery
)

// shares are the messages of each kind in a thousand; the rest are fine.
var shares = []struct {
	kind  kind
	share int
}{
	{flaky, 100}, {panics, 60}, {slow, 30}, {hangs, 15}, {deaf, 10}, {poison, 40}, {hopeless, 40}, {unreadable, 20}, {bomb, 2},
}

// randomKind returns a kind with the probability in shares.
func randomKind() kind {
	n := rand.IntN(1000)
	for _, s := range shares {
		if n -= s.share; n < 0 {
			return s.kind
		}
	}
	return fine
}

// A job is the body of a message. All bodies differ, so that histories can distinguish them.
type job struct {
	Kind kind   `json:"kind"`
	Name string `json:"name"`
}

// Leases and timeouts are short, so that many of them end in a minute.
const (
	visibility    = 500 * time.Millisecond
	timeout       = 900 * time.Millisecond
	slowTime      = 700 * time.Millisecond
	deafTime      = 1500 * time.Millisecond
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
		return wait(ctx, slowTime)
	case hangs:
		<-ctx.Done()
		return context.Cause(ctx)
	case deaf:
		<-time.After(deafTime)
	case poison:
		return errChance
	case hopeless:
		return worker.Permanent(errChance)
	case bomb:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the kernel has killed it
	}
	return wait(ctx, rand.N(5*time.Millisecond))
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// newLoop returns the loop of all processes. It calls done for each message whose work was
// done.
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

// reasonFits reports whether a message of kind k may be dead for reason. Any message can reach
// the delivery limit when its processes are killed.
func reasonFits(k kind, reason mailbox.Reason) bool {
	switch k {
	case hopeless:
		return reason == mailbox.ReasonFatal || reason == mailbox.ReasonMaxDeliveries
	case unreadable:
		return reason == mailbox.ReasonParse || reason == mailbox.ReasonMaxDeliveries
	}
	return reason == mailbox.ReasonMaxDeliveries
}

// mustDie reports whether every message of kind k ends as a dead letter.
func mustDie(k kind) bool {
	return k == hangs || k == poison || k == hopeless || k == unreadable || k == bomb
}

// produce sends messages until stop is closed. It repeats a send whose outcome is unknown with
// the same dedup keys, so that the repetition adds nothing if the first send took effect.
func produce(ctx context.Context, queue driver.Queue, process string, pace time.Duration, stop <-chan struct{}) {
	for n := 0; ; {
		var batch []driver.Outgoing
		for range 1 + rand.IntN(4) {
			j := job{Kind: randomKind(), Name: fmt.Sprintf("%s %d", process, n)}
			n++
			body, _ := json.Marshal(j) // two strings: it cannot fail
			if j.Kind == unreadable {
				body = append([]byte("?"), body...)
			}
			batch = append(batch, driver.Outgoing{Body: body, DedupKey: j.Name})
		}
		for {
			if _, err := queue.Send(ctx, batch); err == nil || ctx.Err() != nil {
				break
			}
			_ = wait(ctx, 20*time.Millisecond) // an ended ctx also ends the loops
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
