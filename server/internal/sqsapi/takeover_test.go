package sqsapi_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// severed is a backend that a daemon may lose sight of, while others see it.
type severed struct {
	*membox.Backend
	away atomic.Bool
}

func (s *severed) check() error {
	if s.away.Load() {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "reach"}
	}
	return nil
}

func (s *severed) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.Backend.ConfigureQueue(ctx, name, config)
}

func (s *severed) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := s.check(); err != nil {
		return driver.Config{}, err
	}
	return s.Backend.QueueConfig(ctx, name)
}

func (s *severed) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := s.Backend.OpenQueue(ctx, name)
	return &severedQueue{q, s}, err
}

type severedQueue struct {
	driver.Queue
	backend *severed
}

func (q *severedQueue) Move(ctx context.Context, to string, limit int) (int, error) {
	if err := q.backend.check(); err != nil {
		return 0, err
	}
	return q.Queue.(driver.Mover).Move(ctx, to, limit)
}

func (q *severedQueue) DeadLetter(ctx context.Context, burials []driver.Burial) error {
	return q.Queue.(driver.DeadLetterer).DeadLetter(ctx, burials)
}

func TestATaskWhoseDaemonIsCutOffIsTakenOverAndNotDoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		link := &severed{Backend: backend}
		one := serve(t, setup{opener: link})
		two := serve(t, setup{opener: backend, ring: one.ring})
		c, other := one.client(""), two.client("")
		dead := c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(40, queue)
		resumed := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(resumed)
			two.service.Resume(ctx)
		}()
		if _, err := c.start("dead", "", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		link.away.Store(true)
		moved := other.count(queue)
		time.Sleep(8 * time.Second)
		if task := other.task("dead"); *task.Status != "RUNNING" || other.count(queue) != moved {
			t.Errorf("it is somebody's until ten seconds have passed: %+v", task)
		}
		time.Sleep(4 * time.Second) // somebody has asked for the task when its time was over
		other.task("dead")
		time.Sleep(2 * time.Second)
		link.away.Store(false)
		time.Sleep(3 * time.Second) // the first daemon has seen that it is not its own any more
		before, _ := strconv.Atoi(other.count(queue))
		time.Sleep(5 * time.Second)
		if after, _ := strconv.Atoi(other.count(queue)); after-before > 6 {
			t.Errorf("%d moved in 5 s at 1 a second: both daemons are at it", after-before)
		}
		time.Sleep(time.Minute)
		task := other.task("dead")
		if *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved > 40 {
			t.Errorf("got %+v", task)
		}
		if other.count(queue) != "40" || other.count(dead) != "0" {
			t.Errorf("%s are back, %s are left", other.count(queue), other.count(dead))
		}
		cancel()
		<-resumed
	})
}
