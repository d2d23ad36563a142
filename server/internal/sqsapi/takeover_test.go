package sqsapi_test

import (
	"cmp"
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// severed is a backend that one daemon may lose, while others still reach it.
type severed struct {
	*membox.Backend
	away atomic.Bool
	mute atomic.Bool // moves messages, but returns an error
	lose atomic.Bool // the result of the next move gets lost
}

func (s *severed) check() error {
	if s.away.Load() {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "reach"}
	}
	return nil
}

func (s *severed) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := s.check(); err != nil || s.mute.Load() {
		return cmp.Or(err, error(&driver.Error{Code: driver.ErrUnavailable, Op: "configure"}))
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
	moved, err := q.Queue.Move(ctx, to, limit)
	if q.backend.lose.CompareAndSwap(true, false) {
		return 0, &driver.Error{Code: driver.ErrUnavailable, Op: "move"}
	}
	return moved, err
}

func TestTaskOfDisconnectedDaemonIsTakenOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		link := &severed{Backend: backend}
		one := serve(t, setup{opener: link, options: sqsapi.Options{Shared: true}})
		two := serve(t, setup{opener: backend, ring: one.ring, options: sqsapi.Options{Shared: true}})
		c, other := one.client(""), two.client("")
		dead := c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(40, queue)
		resume(t, two)
		if _, err := c.start("dead", "", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		link.away.Store(true)
		moved := other.count(queue)
		time.Sleep(8 * time.Second)
		if task := other.task("dead"); *task.Status != "RUNNING" || other.count(queue) != moved {
			t.Errorf("the first daemon has the task for ten seconds: %+v", task)
		}
		time.Sleep(4 * time.Second) // the lease has ended
		other.task("dead")
		time.Sleep(2 * time.Second)
		link.away.Store(false)
		time.Sleep(3 * time.Second) // the first daemon has noticed that it lost the task
		before, _ := strconv.Atoi(other.count(queue))
		time.Sleep(5 * time.Second)
		if after, _ := strconv.Atoi(other.count(queue)); after-before > 6 {
			t.Errorf("%d moved in 5 s at 1 a second: both daemons run the task", after-before)
		}
		time.Sleep(time.Minute)
		task := other.task("dead")
		if *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 40 {
			t.Errorf("got %+v", task)
		}
		if other.count(queue) != "40" || other.count(dead) != "0" {
			t.Errorf("%s are back, %s are left", other.count(queue), other.count(dead))
		}
	})
}

// The first daemon is killed before it stored its progress. On a shared backend its lease
// must end first; on a backend of its own the task resumes at once.
func TestTakenOverTaskKeepsProgressOfFirstDaemon(t *testing.T) {
	for _, test := range []struct {
		name   string
		shared bool
		rest   time.Duration
	}{{"on a shared backend", true, 11 * time.Second}, {"on a backend of its own", false, 0}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := membox.New(nil)
				defer backend.Close()
				link := &severed{Backend: backend}
				options := sqsapi.Options{Shared: test.shared}
				one := serve(t, setup{opener: link, options: options})
				c := one.client("")
				dead := c.create("dead")
				queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
				c.die(40, queue)
				if _, err := c.start("dead", "orders", 2); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2500 * time.Millisecond)
				for range 7 { // sent after the task began
					c.send(dead, "late")
				}
				time.Sleep(time.Second)
				link.mute.Store(true)
				time.Sleep(4 * time.Second)
				link.away.Store(true)
				moved := 40 + 7 - number(t, backend, "dead")
				two := serve(t, setup{opener: backend, ring: one.ring, options: options})
				resume(t, two)
				time.Sleep(test.rest + 100*time.Millisecond)
				since := 40 + 7 - number(t, backend, "dead")
				if task := two.client("").task("dead"); *task.Status != "RUNNING" || since == moved || task.ApproximateNumberOfMessagesMoved != int64(since) {
					t.Errorf("%d had moved, and %d have now; got %+v", moved, since, task)
				}
				time.Sleep(time.Minute)
				if task := two.client("").task("dead"); *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 40 {
					t.Errorf("got %+v", task)
				}
				if back, left := number(t, backend, "orders"), number(t, backend, "dead"); back != 40 || left != 7 {
					t.Errorf("%d are back, %d are left; want 40, and the 7 that came too late", back, left)
				}
			})
		})
	}
}

func TestStepWithLostAnswerIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		link := &severed{Backend: backend}
		c := serve(t, setup{opener: link}).client("")
		dead := c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(10, queue)
		if _, err := c.start("dead", "orders", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		c.send(dead, "late")
		time.Sleep(time.Second)
		link.lose.Store(true)
		time.Sleep(time.Minute)
		task := c.task("dead")
		if *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 10 || c.count(queue) != "10" || c.count(dead) != "1" {
			t.Errorf("%s are back, %s are left: %+v", c.count(queue), c.count(dead), task)
		}
	})
}

// number returns how many messages a queue of no tenant has.
func number(t *testing.T, backend *membox.Backend, name string) int {
	t.Helper()
	q, err := backend.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	stats, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Waiting()
}

// resume runs Resume of a daemon until the test ends.
func resume(t *testing.T, d *daemon) {
	ctx, cancel := context.WithCancel(t.Context())
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		d.service.Resume(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-looked
	})
}
