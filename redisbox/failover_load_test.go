package redisbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
)

// A failoverLoad is producers and consumers of one queue, and the record of their calls.
//
// Each producer sends its messages one batch after the other, in a group of its own.
// Every other producer uses dedup keys, and repeats a batch until its outcome is known;
// the others do not repeat. Consumers receive one at a time and settle at once, so that
// the order of deliveries is known: two concurrent receives might get their answers in
// another order than the server gave them.
type failoverLoad struct {
	t        *testing.T
	recorder *history.Recorder
	queue    driver.Queue // recorded
	config   driver.Config

	turn      sync.Mutex   // held by the consumer that receives
	sent      atomic.Int64 // messages that were acknowledged to producers
	uncertain atomic.Int64 // errors that left the outcome open
	lastError atomic.Value // the text of the last of them
	halting   atomic.Bool  // producers should stop
	ended     atomic.Bool  // producers have stopped
	working   sync.WaitGroup
	producing sync.WaitGroup
}

const (
	loadProducers  = 4
	loadConsumers  = 4
	loadBatch      = 8
	loadVisibility = time.Second
	// loadPatience is how long a call may take: longer than any failure lasts, so that a
	// client gets the answer of a server that comes back.
	loadPatience = 20 * time.Second
	// loadPace is how long a test waits for messages to be sent: so long that only a
	// stuck load fails.
	loadPace = 2 * time.Minute
)

// startLoad opens a new queue, with at least one shard for each producer, and starts
// producers and consumers.
func startLoad(t *testing.T, opener driver.Opener, name string) *failoverLoad {
	t.Helper()
	l := &failoverLoad{t: t, recorder: history.NewRecorder(""), config: driver.Config{Shards: 2 * loadProducers, DedupWindow: time.Hour}}
	persistently(t, "configure", func() error { // replicas may still be catching up
		return opener.(driver.Admin).ConfigureQueue(t.Context(), name, l.config)
	})
	queue, err := opener.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	l.queue = l.recorder.Queue(queue)
	t.Cleanup(func() { // a failed test has ended their context
		l.producing.Wait()
		l.working.Wait()
	})
	for i := range loadProducers {
		l.producing.Go(func() { l.produce(i) })
	}
	for i := range loadConsumers {
		l.working.Go(func() { l.consume(i) })
	}
	return l
}

// waitFor returns when n more messages were sent.
func (l *failoverLoad) waitFor(n int64) {
	l.t.Helper()
	deadline := time.Now().Add(loadPace)
	for goal := l.sent.Load() + n; l.sent.Load() < goal; {
		if time.Now().After(deadline) {
			l.t.Fatalf("in %v only %d of %d messages could be sent; the last error was %v",
				loadPace, n-(goal-l.sent.Load()), n, l.lastError.Load())
		}
		rest(l.t.Context(), 5*time.Millisecond)
	}
}

// crash runs a failure, and returns when the servers are healthy again.
func (l *failoverLoad) crash(fail func(context.Context) error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), loadPace)
	defer cancel()
	start := time.Now()
	var err error
	l.recorder.Crash(func() { err = fail(ctx) })
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Logf("healthy again after %v", time.Since(start).Round(time.Millisecond))
}

// finish lets the consumers drain the queue, and checks the history.
func (l *failoverLoad) finish() (history.Report, history.FinalState) {
	l.t.Helper()
	l.halting.Store(true)
	l.producing.Wait()
	l.ended.Store(true)
	l.working.Wait()
	final, err := history.Observe(l.t.Context(), l.queue)
	if err != nil {
		l.t.Fatalf("observe the end: %v", err)
	}
	terms := history.Terms{Traits: l.queue.Traits(), Config: l.config, Tolerance: 50 * time.Millisecond}
	if err := l.queue.Close(); err != nil {
		l.t.Errorf("close: %v", err)
	}
	report := history.Check(l.recorder.History(), final, terms)
	l.t.Logf("%d messages, %d deliveries, %d of them repeated after failures, %d answers left the outcome open, reorder depth %d",
		report.Messages, report.Deliveries, report.Repeats, l.uncertain.Load(), report.ReorderDepth)
	return report, final
}

// produce sends until halting.
func (l *failoverLoad) produce(number int) {
	rng := rand.New(rand.NewPCG(uint64(number), 1))
	group := fmt.Sprintf("producer %d", number)
	for next := 0; !l.halting.Load() && l.t.Context().Err() == nil; {
		batch := make([]driver.Outgoing, 1+rng.IntN(loadBatch))
		for i := range batch {
			body := fmt.Sprintf("%d-%d", number, next)
			batch[i] = driver.Outgoing{Body: []byte(body), Group: group}
			if number%2 == 0 {
				batch[i].DedupKey = body
			}
			if rng.IntN(32) == 0 {
				batch[i].Delay = time.Duration(rng.IntN(1000)) * time.Millisecond
			}
			next++
		}
		l.sendUntilSure(batch)
		rest(l.t.Context(), 10*time.Millisecond)
	}
}

// sendUntilSure repeats messages whose outcome is open, if they have a dedup key.
func (l *failoverLoad) sendUntilSure(batch []driver.Outgoing) {
	for len(batch) > 0 && l.t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(l.t.Context(), loadPatience)
		_, err := l.queue.Send(ctx, batch)
		cancel()
		var unsure []driver.Outgoing
		for i, msg := range batch {
			switch failed := driver.At(err, i); {
			case failed == nil:
				l.sent.Add(1)
			case l.open("send", failed) && msg.DedupKey != "":
				unsure = append(unsure, msg)
			}
		}
		if batch = unsure; len(batch) > 0 {
			rest(l.t.Context(), 20*time.Millisecond)
		}
	}
}

// open reports whether an error leaves the outcome open. Any other fails the test.
func (l *failoverLoad) open(what string, err error) bool {
	if errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		l.uncertain.Add(1)
		l.lastError.Store(err.Error())
		return true
	}
	if l.t.Context().Err() == nil {
		l.t.Errorf("%s: %v", what, err)
	}
	return false
}

// consume receives and settles until the queue is empty.
func (l *failoverLoad) consume(number int) {
	rng := rand.New(rand.NewPCG(uint64(number), 2))
	for l.t.Context().Err() == nil {
		deliveries, err := l.receive()
		switch {
		case err != nil:
			if !l.open("receive", err) {
				return
			}
			rest(l.t.Context(), 20*time.Millisecond)
		case len(deliveries) > 0:
			l.settle(rng, deliveries)
		case l.ended.Load() && l.empty():
			return
		}
	}
}

func (l *failoverLoad) receive() ([]driver.Delivery, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	ctx, cancel := context.WithTimeout(l.t.Context(), loadPatience)
	defer cancel()
	return l.queue.Receive(ctx, driver.ReceiveRequest{
		Max: loadBatch, Visibility: loadVisibility, Wait: 200 * time.Millisecond,
	})
}

func (l *failoverLoad) empty() bool {
	stats, err := l.queue.Stats(l.t.Context())
	return err == nil && stats.Waiting() == 0
}

// settle acks most deliveries, nacks some, and lets the leases of some expire.
func (l *failoverLoad) settle(rng *rand.Rand, deliveries []driver.Delivery) {
	var done []driver.Receipt
	for _, d := range deliveries {
		switch choice := rng.IntN(64); {
		case d.Deliveries > 2 || choice > 2:
			done = append(done, d.Receipt)
		case choice == 0:
			l.ignoreOpen("nack", l.queue.Nack(l.t.Context(), []driver.Nack{{Receipt: d.Receipt, Cause: "not now"}}))
		case choice == 1:
			_, err := l.queue.Extend(l.t.Context(), []driver.Extension{{Receipt: d.Receipt, Visibility: loadVisibility / 2}})
			l.ignoreOpen("extend", err)
		}
	}
	for len(done) > 0 && l.t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(l.t.Context(), loadPatience)
		err := l.queue.Ack(ctx, done)
		cancel()
		var unsure []driver.Receipt
		for i, receipt := range done {
			failed := driver.At(err, i)
			if failed != nil && !errors.Is(failed, driver.ErrReceiptExpired) && l.open("ack", failed) {
				unsure = append(unsure, receipt)
			}
		}
		if done = unsure; len(done) > 0 {
			rest(l.t.Context(), 20*time.Millisecond)
		}
	}
}

// ignoreOpen fails the test for errors that a failure of a server does not explain.
func (l *failoverLoad) ignoreOpen(what string, err error) {
	if err != nil && !errors.Is(err, driver.ErrReceiptExpired) {
		l.open(what, err)
	}
}

// rest waits for d, or until the context ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
