package drivertest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var concurrencyCases = []testCase{
	{id: "SND-1", title: "64 goroutines that send and receive lose nothing and double nothing", run: crowdLosesNothing, repeats: true},
	{
		id: "SND-1", title: "64 goroutines over several shards lose nothing and double nothing",
		config: always(driver.Config{Shards: 8}), run: crowdLosesNothing, repeats: true,
	},
	{
		id: "SND-5", title: "parallel sends never exceed the bound on messages",
		config: always(driver.Config{MaxMessages: 50}), run: parallelSendsStayInBounds,
	},
	{
		id: "SND-5", title: "parallel batches never exceed the bound on bytes",
		config: always(driver.Config{MaxBytes: 500}), run: parallelBatchesStayInBounds,
	},
	{
		id: "RCV-1", title: "parallel receives never exceed the in-flight ceiling",
		config: always(driver.Config{MaxInFlight: 10}), run: parallelReceivesStayInBounds,
	},
	{id: "VIS-1", title: "parallel receives never share a message", run: parallelReceivesShareNothing},
	{id: "ACK-1", title: "of many acks at once with one receipt, one counts", run: parallelAcks},
	{id: "CNT-3", title: "parallel purges count each message once", run: parallelPurges},
	{id: "DLQ-5", title: "parallel redrives move each dead letter once", needs: []need{needDeadLetters}, run: parallelRedrives},
}

// A ledger records the deliveries of many goroutines on one queue.
type ledger struct {
	mu    sync.Mutex
	sent  map[string]string // body by id
	held  map[string]bool
	acked map[string]int
	last  map[string]int // deliveries by id
}

// take records a delivery, and returns an error if it breaks a rule.
func (c *ledger) take(d driver.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.held[d.ID]:
		return fmt.Errorf("message %q is held twice at once", d.Body)
	case c.acked[d.ID] > 0:
		return fmt.Errorf("message %q was delivered after its ack", d.Body)
	case d.Deliveries != c.last[d.ID]+1:
		return fmt.Errorf("message %q: got Deliveries %d after %d", d.Body, d.Deliveries, c.last[d.ID])
	}
	c.held[d.ID] = true
	c.last[d.ID] = d.Deliveries
	return nil
}

// release records that a delivery is about to be settled. It comes before the settlement,
// because a nacked message may be in flight again before that returns.
func (c *ledger) release(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[id] = false
}

func (c *ledger) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// crowdLosesNothing lets all goroutines send and receive, and now and then nack.
func crowdLosesNothing(e *env, q driver.Queue) {
	const goroutines, each = 64, 20
	books := &ledger{sent: map[string]string{}, held: map[string]bool{}, acked: map[string]int{}, last: map[string]int{}}
	var left atomic.Int64
	left.Store(goroutines * each)
	deadline := time.Now().Add(8 * e.patience)

	e.parallel(goroutines, func(i int) error {
		for n := 0; left.Load() > 0; n++ {
			if n < each {
				if err := books.send(e, q, fmt.Sprintf("%d:%d", i, n)); err != nil {
					return err
				}
			}
			if time.Now().After(deadline) {
				return errors.New("messages are missing: the crowd waits in vain")
			}
			got, err := e.poll(q, driver.ReceiveRequest{Max: 1 + n%3, Visibility: e.hold, Wait: books.wait(e, n < each)})
			if err != nil {
				return err
			}
			for _, d := range got {
				acked, err := books.settle(e, q, d, (i+n)%4 == 0 && d.Deliveries < 3)
				if err != nil {
					return err
				}
				if acked {
					left.Add(-1)
				}
			}
		}
		return nil
	})

	if len(books.sent) != goroutines*each || len(books.acked) != goroutines*each {
		e.failf("%d messages sent under %d ids, %d acked", goroutines*each, len(books.sent), len(books.acked))
	}
	for id := range books.acked {
		if _, ok := books.sent[id]; !ok {
			e.failf("message %s was delivered but never sent", id)
		}
	}
	e.expectEmpty(q)
}

func (c *ledger) send(e *env, q driver.Queue, body string) error {
	sent, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte(body)}})
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if len(sent) != 1 {
		return fmt.Errorf("send of one message: got %d results", len(sent))
	}
	c.note(func() { c.sent[sent[0].ID] = body })
	return nil
}

// wait returns 0 for goroutines that still have messages to send.
func (c *ledger) wait(e *env, sending bool) time.Duration {
	if sending {
		return 0
	}
	return e.unit / 4
}

func (c *ledger) settle(e *env, q driver.Queue, d driver.Delivery, nack bool) (acked bool, err error) {
	if err := c.take(d); err != nil {
		return false, err
	}
	c.release(d.ID)
	if nack {
		if err := tryNack(e, q, d, 0, "again"); err != nil {
			return false, fmt.Errorf("nack of a message that is held: %w", err)
		}
		return false, nil
	}
	if err := tryAck(e, q, d); err != nil {
		return false, fmt.Errorf("ack of a message that is held: %w", err)
	}
	c.note(func() { c.acked[d.ID]++ })
	return true, nil
}

func parallelSendsStayInBounds(e *env, q driver.Queue) {
	var accepted atomic.Int64
	e.parallel(64, func(int) error {
		for range 5 {
			switch err := trySend(e, q, "x"); {
			case err == nil:
				accepted.Add(1)
			case !errors.Is(err, driver.ErrFull):
				return fmt.Errorf("send: %w", err)
			}
		}
		return nil
	})
	if n := accepted.Load(); n != 50 {
		e.failf("320 parallel sends to a queue bounded at 50: %d were accepted, want 50", n)
	}
	e.expectStats(q, driver.Stats{Ready: 50})
}

func parallelBatchesStayInBounds(e *env, q driver.Queue) {
	const size, batch = 7, 5
	msgs := make([]driver.Outgoing, batch)
	for i := range msgs {
		msgs[i].Body = make([]byte, size)
	}
	var accepted atomic.Int64
	e.parallel(32, func(int) error {
		_, err := q.Send(e.ctx(), msgs)
		for i := range msgs {
			switch at := driver.At(err, i); {
			case at == nil:
				accepted.Add(1)
			case !errors.Is(at, driver.ErrFull):
				return fmt.Errorf("send: %w", at)
			}
		}
		return nil
	})
	if n, want := accepted.Load(), int64(500/size); n != want {
		e.failf("%d parallel messages of %d bytes to a queue bounded at 500: %d were accepted, want %d", 32*batch, size, n, want)
	}
	e.expectStats(q, driver.Stats{Ready: 500 / size})
}

func parallelReceivesStayInBounds(e *env, q driver.Queue) {
	e.send(q, numbered("m", 100)...)
	var taken atomic.Int64
	e.parallel(32, func(int) error {
		got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 3, Visibility: e.hold})
		if err != nil && !errors.Is(err, driver.ErrFull) {
			return fmt.Errorf("receive: %w", err)
		}
		taken.Add(int64(len(got)))
		return nil
	})
	if n := taken.Load(); n != 10 {
		e.failf("32 parallel receives of up to 3 with MaxInFlight 10: %d messages are in flight, want 10", n)
	}
	e.expectStats(q, driver.Stats{Ready: 90, InFlight: 10})
}

func parallelReceivesShareNothing(e *env, q driver.Queue) {
	const messages = 200
	e.send(q, numbered("m", messages)...)
	var mu sync.Mutex
	holders := make(map[string]int)
	e.parallel(32, func(int) error {
		for range messages {
			got, err := e.poll(q, driver.ReceiveRequest{Max: 4, Visibility: e.hold})
			if err != nil || len(got) == 0 {
				return err
			}
			mu.Lock()
			for _, d := range got {
				holders[string(d.Body)]++
			}
			mu.Unlock()
		}
		return nil
	})
	for body, n := range holders {
		if n > 1 {
			e.failf("message %q was delivered to %d receivers at once", body, n)
		}
	}
	if len(holders) != messages {
		e.failf("%d of %d messages were delivered", len(holders), messages)
	}
}

func parallelAcks(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.receive(q, 1)[0]
	var won atomic.Int64
	e.parallel(32, func(int) error {
		switch err := tryAck(e, q, held); {
		case err == nil:
			won.Add(1)
		case !errors.Is(err, driver.ErrReceiptExpired):
			return fmt.Errorf("ack: %w", err)
		}
		return nil
	})
	if n := won.Load(); n != 1 {
		e.failf("32 acks at once with one receipt: %d worked, want 1", n)
	}
	e.expectStats(q, driver.Stats{Ready: 1})
}

func parallelPurges(e *env, q driver.Queue) {
	if q.Traits().PurgeCooldown > 0 || !q.Traits().ExactStats {
		e.t.Log("the backend does not purge at any time, or does not count exactly")
		return
	}
	e.send(q, numbered("m", 100)...)
	var removed atomic.Int64
	e.parallel(16, func(int) error {
		n, err := q.Purge(e.ctx())
		removed.Add(int64(n))
		return err
	})
	if n := removed.Load(); n != 100 {
		e.failf("16 purges at once of 100 messages: they removed %d, want 100", n)
	}
	e.expectEmpty(q)
}

func parallelRedrives(e *env, q driver.Queue) {
	e.send(q, numbered("m", 50)...)
	for _, d := range e.receive(q, 50) {
		e.deadLetter(q, d, driver.ReasonFatal)
	}
	var moved atomic.Int64
	e.parallel(16, func(int) error {
		n, err := q.Redrive(e.ctx(), nil, 0)
		moved.Add(int64(n))
		return err
	})
	if n := moved.Load(); n != 50 {
		e.failf("16 redrives at once of 50 dead letters: they moved %d, want 50", n)
	}
	e.expectStats(q, driver.Stats{Ready: 50})
}
