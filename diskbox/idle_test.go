package diskbox

import (
	"fmt"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	manyQueues = 10_000
	// idleFor is a virtual day, in which any timer has time to fire.
	idleFor = 24 * time.Hour
	// mostStirs allows for the goroutines of the runtime and of the test. A goroutine that
	// wakes up every five minutes stirs 36 times a day.
	mostStirs = 12
	// mostGoroutines bounds those of one backend, the store's included.
	mostGoroutines = 40
)

// TestIdleQueuesUseNoGoroutinesOrTimers lets a day pass on a backend with many queues. Some
// have a waiting, a delayed and a leased message. Delays and leases end in the meantime, but no
// receiver waits for that, so nothing may run: the next call handles the due events.
func TestIdleQueuesUseNoGoroutinesOrTimers(t *testing.T) {
	volume.InFull(t)
	one := idle(t, 1)
	many := idle(t, manyQueues)
	t.Logf("with one queue: %+v; with %d: %+v", one, manyQueues, many)
	if many.goroutines > one.goroutines+4 { // other goroutines of this process may come and go
		t.Errorf("%d queues have %d goroutines, and one has %d", manyQueues, many.goroutines, one.goroutines)
	}
	if one.goroutines > mostGoroutines {
		t.Errorf("an idle backend has %d goroutines, want at most %d", one.goroutines, mostGoroutines)
	}
	for queues, day := range map[int]calm{1: one, manyQueues: many} {
		if day.stirs > mostStirs || day.started > 0 {
			t.Errorf("in a day of idleness with %d queues, goroutines woke up some %d times and %d were started", queues, 8*day.stirs, day.started)
		}
	}
}

// TestStirsAreNoticed shows that the test above can fail.
func TestStirsAreNoticed(t *testing.T) {
	for name, disturb := range map[string]func(done <-chan struct{}){
		"a ticker": func(done <-chan struct{}) {
			ticker := time.NewTicker(5 * time.Minute)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
				case <-done:
					return
				}
			}
		},
		"timers that start goroutines": func(done <-chan struct{}) {
			timer := time.AfterFunc(time.Hour, func() {})
			defer timer.Stop()
			<-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				defer close(done)
				go disturb(done)
				synctest.Wait()
				if day := watch(func() { time.Sleep(idleFor) }); day.stirs <= mostStirs && day.started == 0 {
					t.Errorf("went unnoticed: %+v", day)
				}
			})
		})
	}
}

// calm is the activity in a time in which nothing should happen.
type calm struct {
	goroutines int
	// stirs counts how often goroutines began to run. The runtime counts one of
	// eight.
	stirs uint64
	// started counts the goroutines that were started, as timers do.
	started uint64
}

// watch measures the activity while time passes.
func watch(goBy func()) calm {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector wakes goroutines too
	runtime.GC()
	before := stirring()
	goBy()
	after := stirring()
	return calm{goroutines: runtime.NumGoroutine(), stirs: after.stirs - before.stirs, started: after.started - before.started}
}

func stirring() (c calm) {
	samples := []metrics.Sample{{Name: "/sched/latencies:seconds"}, {Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(samples)
	for _, count := range samples[0].Value.Float64Histogram().Counts {
		c.stirs += count
	}
	c.started = samples[1].Value.Uint64()
	return c
}

// idle fills queues and measures their activity for a day.
func idle(t *testing.T, queues int) (day calm) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(t.Context(), "queues", &Options{fs: vfs.NewMem(), boot: bubbleClock{}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		used := openAndUse(t, b, queues)
		time.Sleep(time.Minute) // until the store has sealed its log and tidied up
		day = watch(func() { time.Sleep(idleFor) })
		stats, err := used.Stats(t.Context())
		if want := (driver.Stats{Ready: 3}); err != nil || stats != want {
			t.Errorf("after the day a queue holds %+v, %v; want %+v", stats, err, want)
		}
	})
	return day
}

// openAndUse opens queues, uses one of sixteen, and returns one of these. Several goroutines do
// it at once, so that they share the syncs.
func openAndUse(t *testing.T, b *Backend, queues int) driver.Queue {
	t.Helper()
	opened := make([]driver.Queue, queues)
	const workers = 64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < queues; i += workers {
				q, err := b.OpenQueue(t.Context(), fmt.Sprintf("queue-%d", i))
				if err == nil && i%16 == 0 {
					err = use(t, q)
				}
				if err != nil {
					t.Error(err)
					return
				}
				opened[i] = q
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return opened[0]
}

// use leaves one message waiting, one delayed and one leased.
func use(t *testing.T, q driver.Queue) error {
	if _, err := q.Send(t.Context(), []driver.Outgoing{{}, {}, {Delay: 10 * time.Minute}}); err != nil {
		return err
	}
	_, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
	return err
}
