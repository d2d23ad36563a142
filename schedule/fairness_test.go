package schedule

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A schedule whose message does not fit keeps no other from sending.
func TestScheduleWithoutRoomDoesNotStopOthers(t *testing.T) {
	inBubble(t, driver.Config{MaxBytes: 100}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		mustPut(t, r, Schedule{Name: "a large", Every: time.Minute, Body: make([]byte, 200)})
		mustPut(t, r, Schedule{Name: "b small", Every: time.Minute, CatchUp: CatchUpNone})
		stop := start(t, r)
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if got := received(t, q); len(got) != 10 {
			t.Errorf("got %q in ten minutes, want ten messages", got)
		}
		stop()
	})
}

// A slowQueue takes some time for a firing.
type slowQueue struct{ driver.Queue }

func (s slowQueue) Fire(ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
	time.Sleep(2 * time.Millisecond)
	return s.Queue.Fire(ctx, f)
}

// A schedule that catches up a day takes turns with others.
func TestCatchingUpDoesNotStopOthers(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, slowQueue{q}, nil)
		mustPut(t, r, Schedule{Name: "a", Every: time.Second, CatchUp: CatchUpAll})
		time.Sleep(24 * time.Hour)
		mustPut(t, r, Schedule{Name: "b", Every: time.Second, CatchUp: CatchUpNone})
		stop := start(t, r)
		time.Sleep(10 * time.Second) // not enough to catch up
		counts := make(map[byte]int)
		for _, text := range received(t, q) {
			counts[text[0]]++
		}
		if counts['b'] < 9 || counts['a'] < 10_000 || counts['a'] > 24*60*60 {
			t.Errorf("sent %d messages of the one that catches up, and %d of the other", counts['a'], counts['b'])
		}
		stop()
	})
}

// A removedQueue answers a firing as if the answer had been lost, and the schedule removed since.
type removedQueue struct{ driver.Queue }

func (r removedQueue) Fire(ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
	s, done, err := r.Queue.Fire(ctx, f)
	if done && len(f.Messages) > 0 {
		s = driver.Schedule{Name: f.Name, Now: s.Now}
	}
	return s, done, err
}

func TestRunNowOfScheduleThatIsRemovedMeanwhile(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, removedQueue{q}, nil)
		mustPut(t, r, Schedule{Name: "a", Every: time.Hour})
		if run, err := r.RunNow(t.Context(), "a"); err != nil || !run.At.Equal(time.Now()) {
			t.Errorf("run now: %+v, %v", run, err)
		}
	})
}

// limited is a queue with a small limit for bodies.
type limited struct{ driver.Queue }

func (l limited) Traits() driver.Traits {
	t := l.Queue.Traits()
	t.MaxBodyBytes = 100
	return t
}

func TestScheduleThatItsQueueCannotTakeIsRefused(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		_, err := mustRunner(t, limited{q}, nil).Put(t.Context(), Schedule{Name: "a", Every: time.Hour, Body: make([]byte, 200)})
		if !errors.Is(err, driver.ErrTooLarge) {
			t.Errorf("put: %v, want %v", err, driver.ErrTooLarge)
		}
	})
}
