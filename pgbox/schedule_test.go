package pgbox

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/runnertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestKilledRunnersSendOneMessageForEachDueTime(t *testing.T) {
	t.Parallel()
	runnertest.Kill(t, func() string { return pgtest.Start(t).URL() }, func(address string) driver.Opener {
		backend, err := OpenAddress(t.Context(), address, nil)
		ok(t, err)
		t.Cleanup(func() { _ = backend.Close() })
		return backend
	})
}

// TestTerminatedConnectionsFireEachTimeOnce fires one schedule from several backends whose
// connections are ended again and again. There is one message for each time.
func TestTerminatedConnectionsFireEachTimeOnce(t *testing.T) {
	t.Parallel()
	server, schema := pgtest.Shared(t), pgtest.Schema()
	control := server.Pool(t)
	const application, processes, goroutines = "mailbox with schedules", 3, 2
	own, err := open(t, control, &Options{Schema: schema}).OpenQueue(t.Context(), "jobs")
	ok(t, err)
	_, created, err := own.Fire(t.Context(), driver.Firing{Name: "hourly", Definition: []byte("def")})
	if err != nil || !created {
		t.Fatalf("created %v: %v", created, err)
	}
	var stop atomic.Bool
	var fired atomic.Int64
	var running sync.WaitGroup
	for range processes {
		q, err := open(t, namedPool(t, server, application), &Options{Schema: schema}).OpenQueue(t.Context(), "jobs")
		ok(t, err)
		for range goroutines {
			running.Go(func() { fireAll(t, q, &stop, &fired) })
		}
	}
	for range volume.Count(t, 10, 200) {
		for before := fired.Load(); fired.Load() == before && !t.Failed(); {
			<-time.After(5 * time.Millisecond)
		}
		terminate(t, control, application)
	}
	stop.Store(true)
	running.Wait()
	var last driver.Schedule
	for s, err := range own.Schedules(t.Context(), "hourly") {
		ok(t, err)
		last = s
	}
	_, got := receiveBodies(t, own, int(last.Through.UnixMilli()))
	for i, d := range got {
		if want := strconv.Itoa(i + 1); string(d.Body) != want {
			t.Fatalf("message %d is for time %s, want %s", i, d.Body, want)
		}
	}
	more, err := own.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
	if err != nil || len(more) > 0 {
		t.Errorf("another message: %v, %v", more, err)
	}
	t.Logf("%d times fired, %d of them confirmed", last.Through.UnixMilli(), fired.Load())
}

// fireAll fires for one time after the other, until stop is set.
func fireAll(t *testing.T, q driver.Queue, stop *atomic.Bool, fired *atomic.Int64) {
	var known driver.Schedule
	for !stop.Load() {
		next := time.UnixMilli(millis(known.Through) + 1)
		now, done, err := q.Fire(t.Context(), driver.Firing{
			Name: "hourly", Revision: max(known.Revision, 1), Through: next,
			Messages: []driver.DueMessage{{Due: next, Outgoing: driver.Outgoing{Body: []byte(strconv.FormatInt(next.UnixMilli(), 10))}}},
		})
		switch {
		case err == nil:
			known = now
		case !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, context.Canceled):
			t.Error(err)
			return
		}
		if done {
			fired.Add(1)
		}
	}
}
