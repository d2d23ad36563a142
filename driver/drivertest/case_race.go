package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var raceCases = []testCase{
	{id: "VIS-6", title: "an ack before the deadline wins, at the deadline and after it loses", run: ackAroundDeadline},
	{id: "VIS-6", title: "of an ack and a receiver that waits for the expiry, exactly one wins", run: ackAgainstReceiver},
	{
		id: "VIS-6", title: "of many acks and many expiries, each message goes to exactly one",
		config: always(driver.Config{}), run: manyAcksAgainstExpiry,
	},
}

func ackAroundDeadline(e *env, q driver.Queue) {
	if !e.backend.Virtual {
		e.t.Log("exact to the nanosecond, and so checked in virtual time only")
		return
	}
	for _, offset := range []time.Duration{-time.Second, -time.Millisecond, -1, 0, 1, time.Millisecond, time.Second} {
		e.send(q, "a")
		held := e.receiveFor(q, 1, e.unit)[0]
		time.Sleep(e.unit + offset)
		err := tryAck(e, q, held)
		if offset < 0 {
			e.ok(err, "ack %v before the deadline", -offset)
		} else {
			e.expectCode(err, driver.ErrReceiptExpired, "ack %v after the deadline", offset)
			e.ack(q, e.expectNext(q, "a")...)
		}
		e.expectEmpty(q)
	}
}

// around returns a random duration close to d: in virtual time often d itself.
func (e *env) around(d time.Duration) time.Duration {
	if e.backend.Virtual {
		return d + time.Duration(rand.IntN(3)-1)
	}
	return d + rand.N(20*time.Millisecond) - 10*time.Millisecond
}

func ackAgainstReceiver(e *env, q driver.Queue) {
	for round := range e.rounds(300, 10) {
		body := fmt.Sprint("round ", round)
		e.send(q, body)
		held := e.receiveFor(q, 1, e.unit)[0]
		var again []driver.Delivery
		var ackErr error
		e.parallel(2, func(i int) (err error) {
			if i == 0 {
				time.Sleep(e.around(e.unit))
				ackErr = tryAck(e, q, held)
				return nil
			}
			again, err = q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: e.waitUpTo(q, 2*e.unit)})
			return err
		})
		switch {
		case ackErr == nil && len(again) > 0:
			e.failf("the ack worked, and yet %q was delivered again: both won", body)
		case ackErr == nil:
			e.expectEmpty(q)
		default:
			e.expectCode(ackErr, driver.ErrReceiptExpired, "ack around the deadline")
			if len(again) == 0 {
				again = e.receive(q, 1) // the receiver's wait ended first; the message must be ready
			}
			e.ack(q, e.expectBodies(q, again, body)...)
		}
	}
}

func manyAcksAgainstExpiry(e *env, q driver.Queue) {
	messages := e.rounds(200, 40)
	e.send(q, numbered("m", messages)...)
	var mu sync.Mutex
	acked := make(map[string]int)
	var left atomic.Int64
	left.Store(int64(messages))
	deadline := time.Now().Add(8 * e.patience)

	e.parallel(32, func(int) error {
		for left.Load() > 0 {
			if time.Now().After(deadline) {
				return errors.New("messages are missing: the workers wait in vain")
			}
			got, err := e.poll(q, driver.ReceiveRequest{Max: 1, Visibility: e.unit, Wait: e.unit})
			if err != nil {
				return err
			}
			for _, d := range got {
				if rand.IntN(2) == 0 {
					time.Sleep(e.around(e.unit))
				}
				switch err := tryAck(e, q, d); {
				case err == nil:
					mu.Lock()
					acked[d.ID]++
					mu.Unlock()
					left.Add(-1)
				case !errors.Is(err, driver.ErrReceiptExpired):
					return fmt.Errorf("ack: %w", err)
				}
			}
		}
		return nil
	})
	for id, n := range acked {
		if n != 1 {
			e.failf("message %s was acked %d times", id, n)
		}
	}
	if len(acked) != messages {
		e.failf("%d of %d messages were acked", len(acked), messages)
	}
	e.expectEmpty(q)
}
