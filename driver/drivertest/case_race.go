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

func ackAroundDeadline(s *session, q driver.Queue) {
	if !s.backend.Virtual {
		s.t.Log("exact to the nanosecond, and so checked in virtual time only")
		return
	}
	for _, offset := range []time.Duration{-time.Second, -time.Millisecond, -1, 0, 1, time.Millisecond, time.Second} {
		s.send(q, "a")
		held := s.receiveFor(q, 1, s.tick)[0]
		time.Sleep(s.tick + offset)
		err := tryAck(s, q, held)
		if offset < 0 {
			s.ok(err, "ack %v before the deadline", -offset)
		} else {
			s.expectCode(err, driver.ErrReceiptExpired, "ack %v after the deadline", offset)
			s.ack(q, s.expectNext(q, "a")...)
		}
		s.expectEmpty(q)
	}
}

// around is a random duration that is d give or take a little: in virtual time
// so little that it is often d itself.
func (s *session) around(d time.Duration) time.Duration {
	if s.backend.Virtual {
		return d + time.Duration(rand.IntN(3)-1)
	}
	return d + rand.N(20*time.Millisecond) - 10*time.Millisecond
}

func ackAgainstReceiver(s *session, q driver.Queue) {
	for round := range s.rounds(300, 10) {
		body := fmt.Sprint("round ", round)
		s.send(q, body)
		held := s.receiveFor(q, 1, s.tick)[0]
		var again []driver.Delivery
		var ackErr error
		s.parallel(2, func(i int) (err error) {
			if i == 0 {
				time.Sleep(s.around(s.tick))
				ackErr = tryAck(s, q, held)
				return nil
			}
			again, err = q.Receive(s.ctx(), driver.ReceiveRequest{Max: 1, Visibility: s.hold, Wait: s.waitUpTo(q, 2*s.tick)})
			return err
		})
		switch {
		case ackErr == nil && len(again) > 0:
			s.failf("the ack worked, and yet %q was delivered again: both won", body)
		case ackErr == nil:
			s.expectEmpty(q)
		default:
			s.expectCode(ackErr, driver.ErrReceiptExpired, "ack around the deadline")
			if len(again) == 0 {
				again = s.receive(q, 1) // the receiver's wait was over before; the message must be there
			}
			s.ack(q, s.expectBodies(q, again, body)...)
		}
	}
}

func manyAcksAgainstExpiry(s *session, q driver.Queue) {
	messages := s.rounds(200, 40)
	s.send(q, numbered("m", messages)...)
	var mu sync.Mutex
	acked := make(map[string]int)
	var left atomic.Int64
	left.Store(int64(messages))
	deadline := time.Now().Add(8 * s.patience)

	s.parallel(32, func(int) error {
		for left.Load() > 0 {
			if time.Now().After(deadline) {
				return errors.New("messages are missing: the workers wait in vain")
			}
			got, err := s.poll(q, driver.ReceiveRequest{Max: 1, Visibility: s.tick, Wait: s.tick})
			if err != nil {
				return err
			}
			for _, d := range got {
				if rand.IntN(2) == 0 {
					time.Sleep(s.around(s.tick))
				}
				switch err := tryAck(s, q, d); {
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
			s.failf("message %s was acked %d times", id, n)
		}
	}
	if len(acked) != messages {
		s.failf("%d of %d messages were acked", len(acked), messages)
	}
	s.expectEmpty(q)
}
