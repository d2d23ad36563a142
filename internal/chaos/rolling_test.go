package chaos_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/mailboxtest/daemontest"
	"github.com/mailboxmq/mailbox/worker"
)

// An attempt is what a handler of roleCareful says of one delivery, at its beginning and, if it
// failed or was cut by the drain time, at its end.
type attempt struct {
	ID         string `json:"id"`
	Deliveries int    `json:"deliveries"`
	Failed     bool   `json:"failed,omitempty"`
	Cut        bool   `json:"cut,omitempty"`
}

// carefulLoop returns a loop whose leases outlast the test. One message in ten fails once, and
// one in twenty takes longer than the drain time.
func carefulLoop(orders *mailbox.Mailbox[job], reporter *reporter) *worker.Loop[job] {
	return worker.New(orders, func(ctx context.Context, m *mailbox.Message[job]) error {
		tried := attempt{ID: m.ID, Deliveries: m.Deliveries}
		reporter.write(report{Attempt: &tried})
		n, _ := strconv.Atoi(m.Body.Name) // always a number
		length := time.Duration(n%40) * time.Millisecond
		if n%20 == 1 {
			length = 5 * drain
		}
		if err := wait(ctx, length); err != nil {
			tried.Cut = true
			reporter.write(report{Attempt: &tried})
			return err
		}
		if n%10 == 0 && m.Deliveries == 1 {
			tried.Failed = true
			reporter.write(report{Attempt: &tried})
			return errChance
		}
		reporter.write(report{Done: m.ID})
		return nil
	}, &worker.Options[job]{Concurrency: 16, Prefetch: 8, Visibility: 10 * time.Minute, Drain: drain, Wait: time.Second, Backoff: worker.NoBackoff})
}

// TestRollingRestartOfProcessesCostsNoAttempt restarts one of four processes every 2 seconds
// under load (FLOW-4). A message is delivered once, unless its handler fails.
func TestRollingRestartOfProcessesCostsNoAttempt(t *testing.T) {
	const (
		fleetSize = 4
		every     = 2 * time.Second
		pace      = 5 * time.Millisecond
	)
	length := volume.Duration(t, 12*time.Second, 2*time.Minute)
	for name, address := range map[string]func(t *testing.T) string{
		"redis": func(t *testing.T) string { return "redis " + redistest.Standalone(t).Addr() },
		"daemon": func(t *testing.T) string {
			daemon := daemontest.Start(t)
			return "daemon " + daemon.OAP + " " + daemon.Token
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, name, address(t), roleCareful, fleetSize)
			b, q, err := openWithRetry(t.Context(), e.where)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			sending, stop := context.WithTimeout(t.Context(), length)
			defer stop()
			sent := make(chan int, 1)
			go func() { sent <- sendPaced(t, sending, q, pace) }()
			for i := 0; wait(sending, every) == nil; i++ {
				e.processes[i%fleetSize].stop()
				e.awaitEnd(e.processes[i%fleetSize])
				e.count("restarts")
				e.processes[i%fleetSize] = e.startProcess(e.role)
			}
			total := <-sent
			for limit := time.Now().Add(drainWithin); e.records.worked() < total && time.Now().Before(limit); {
				_ = wait(t.Context(), 20*time.Millisecond)
			}
			for _, process := range e.processes {
				process.stop()
				e.awaitEnd(process)
				if err := process.failed(); err != nil {
					t.Error(err)
				}
			}
			deliveries, failed, cut := e.records.attempts(t)
			t.Logf("%d messages, %d deliveries, %d failed and %d cut handlers, %s", total, deliveries, failed, cut, e.summary())
			if worked := e.records.worked(); worked != total {
				t.Errorf("%d of %d messages were done", worked, total)
			}
			if failed == 0 || cut == 0 {
				t.Error("want some handlers that failed and some that were cut")
			}
		})
	}
}

// sendPaced sends messages at a pace until ctx ends, and returns how many.
func sendPaced(t *testing.T, ctx context.Context, q driver.Queue, pace time.Duration) (n int) {
	for ; ; n++ {
		body, err := json.Marshal(job{Kind: fine, Name: strconv.Itoa(n)})
		if err == nil {
			_, err = q.Send(context.WithoutCancel(ctx), []driver.Outgoing{{Body: body}})
		}
		if err != nil {
			t.Error(err)
			return n
		}
		if wait(ctx, pace) != nil {
			return n + 1
		}
	}
}

// attempts counts the deliveries of all processes and how they ended, and fails the test for each
// message that was counted more often than its handler failed.
func (a *records) attempts(t *testing.T) (deliveries, failed, cut int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, tried := range a.tried {
		failures, counted := 0, 0
		for _, one := range tried {
			switch {
			case one.Failed:
				failures++
			case one.Cut:
				cut++
			default:
				deliveries++
			}
			counted = max(counted, one.Deliveries)
		}
		failed += failures
		if counted > 1+failures {
			t.Errorf("message %s, whose handler failed %d times, was counted %d times", id, failures, counted)
		}
	}
	return deliveries, failed, cut
}
