package schedule

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A faultyLink is what one process sees of a queue: it can be cut off, lose answers, and deliver
// calls long after the caller has given up.
type faultyLink struct {
	driver.Queue
	random *rand.Rand // used by one goroutine
	late   *sync.WaitGroup
	cut    *outages
}

// outages are those of a backend.
type outages struct {
	mu    sync.Mutex // guards until
	until time.Time
}

func (o *outages) down() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.until)
}

func (o *outages) begin(length time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = time.Now().Add(length)
}

func (l *faultyLink) Fire(ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
	failed := &driver.Error{Code: driver.ErrUnavailable, Op: "fire"}
	if l.cut.down() {
		return driver.Schedule{}, false, failed
	}
	switch l.random.IntN(40) {
	case 0:
		return driver.Schedule{}, false, failed
	case 1: // the answer is lost
		_, _, _ = l.Queue.Fire(ctx, f)
		return driver.Schedule{}, false, failed
	case 2: // the call arrives later
		delay := time.Duration(l.random.IntN(180)) * time.Minute
		l.late.Go(func() {
			time.Sleep(delay)
			_, _, _ = l.Queue.Fire(context.Background(), f)
		})
		return driver.Schedule{}, false, failed
	}
	return l.Queue.Fire(ctx, f)
}

func (l *faultyLink) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	if l.cut.down() {
		return func(yield func(driver.Schedule, error) bool) {
			yield(driver.Schedule{}, &driver.Error{Code: driver.ErrUnavailable, Op: "list schedules"})
		}
	}
	return l.Queue.Schedules(ctx, name)
}

// A wrongClock is minutes apart from others, and is set now and then.
type wrongClock struct {
	random *rand.Rand
	offset time.Duration
	next   time.Time
}

func (c *wrongClock) now() time.Time {
	if now := time.Now(); now.After(c.next) {
		c.offset = time.Duration(c.random.IntN(20)-10) * time.Minute
		c.next = now.Add(time.Duration(c.random.IntN(100)) * time.Hour)
	}
	return time.Now().Round(0).Add(c.offset) // without the monotonic clock, which is never set
}

// live starts runners one after the other until the end, each of which ends after a while.
func live(t *testing.T, q driver.Queue, seed uint64, cut *outages, late *sync.WaitGroup, end time.Time) {
	random := rand.New(rand.NewPCG(seed, 1))
	for time.Now().Before(end) {
		link := &faultyLink{Queue: q, random: rand.New(rand.NewPCG(seed, random.Uint64())), late: late, cut: cut}
		r, err := NewRunner(link, "jobs", &RunnerOptions{Refresh: 5 * time.Hour})
		if err != nil {
			t.Error(err)
			return
		}
		clock := &wrongClock{random: rand.New(rand.NewPCG(seed, random.Uint64()))}
		r.clock = clock.now
		ctx, crash := context.WithTimeout(context.Background(), time.Duration(1+random.IntN(400))*time.Hour)
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
		crash()
		time.Sleep(time.Duration(random.IntN(40)) * time.Hour)
	}
}

// yearly are the schedules of the year: clock changes in both directions in three zones.
var yearly = []Schedule{
	{Name: "berlin night", Cron: "30 2 * * *", Zone: "Europe/Berlin"},
	{Name: "berlin often", Cron: "*/20 1-3 * * SAT,SUN", Zone: "Europe/Berlin"},
	{Name: "new york night", Cron: "15 1,2 * * *", Zone: "America/New_York"},
	{Name: "new york elapsed", Cron: "0 */4 * * *", Zone: "America/New_York"},
	{Name: "lord howe night", Cron: "10,40 1,2 * * *", Zone: "Australia/Lord_Howe"},
	{Name: "lord howe elapsed", Cron: "45 * * * SUN", Zone: "Australia/Lord_Howe"},
	{Name: "interval", Every: 7*time.Hour + 13*time.Minute},
}

// TestFiveRunnersSendOneMessageForEachDueTime runs a year with crashes, outages, lost answers,
// calls that arrive late, and wrong clocks.
func TestFiveRunnersSendOneMessageForEachDueTime(t *testing.T) {
	volume.Repeats(t)
	const runners = 5
	days := volume.Part(366, 4)
	if days < 366 {
		days = 120 // from September on: clocks go back in the north and forward in the south
	}
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		if days == 120 {
			time.Sleep(time.Until(time.Date(2000, 9, 1, 0, 0, 0, 0, time.UTC)))
		}
		began := time.Now().UTC()
		end := began.AddDate(0, 0, days)
		manager := mustRunner(t, q, nil)
		for _, s := range yearly {
			for _, rule := range []CatchUp{CatchUpAll, CatchUpOne} {
				s.CatchUp, s.Name = rule, strings.TrimSuffix(s.Name, " all")+" "+string(rule)
				mustPut(t, manager, s)
			}
		}
		var processes, late sync.WaitGroup
		cut := new(outages)
		for i := range runners {
			processes.Go(func() { live(t, q, uint64(i), cut, &late, end) })
		}
		processes.Go(func() {
			for random := rand.New(rand.NewPCG(99, 99)); time.Now().Before(end); {
				time.Sleep(time.Duration(random.IntN(300)) * time.Hour)
				length := time.Duration(random.IntN(60)) * time.Minute // most are short
				if random.IntN(10) == 0 {
					length *= 30
				}
				cut.begin(length)
			}
		})
		processes.Wait()
		late.Wait()
		stop := start(t, manager) // sends what is left
		synctest.Wait()
		stop()
		checkYear(t, received(t, q), began, time.Now())
	})
}

// checkYear compares messages with due times that are computed minute by minute.
func checkYear(t *testing.T, got []string, began, end time.Time) {
	sent := make(map[string]int, len(got))
	for _, one := range got {
		sent[one]++
	}
	expected, caught := 0, 0
	for _, s := range yearly {
		for _, due := range yearOf(t, s, began, end) {
			at := " " + due.UTC().Format(time.RFC3339Nano)
			all, one := sent[s.Name+" all"+at], sent[s.Name+" one"+at]
			if all != 1 || one > 1 {
				t.Errorf("%s is due%s: %d messages, and %d of the one that catches one up", s.Name, at, all, one)
			}
			delete(sent, s.Name+" all"+at)
			delete(sent, s.Name+" one"+at)
			expected++
			caught += one
		}
	}
	for one, n := range sent {
		t.Errorf("%s: %d messages, and it was not due", one, n)
	}
	if expected < 500 || caught < expected/2 || caught == expected {
		t.Errorf("%d due times, of which %d were caught up one by one", expected, caught)
	}
	t.Logf("%d due times, one message for each; %d of them if one is caught up", expected, caught)
}

func yearOf(t *testing.T, s Schedule, began, end time.Time) (due []time.Time) {
	if s.Every > 0 {
		for at := began.Add(s.Every); !at.After(end); at = at.Add(s.Every) {
			due = append(due, at)
		}
		return due
	}
	times := slowTimes(mustCron(t, s.Cron), began, end, mustZone(t, s.Zone))
	return slices.DeleteFunc(times, func(at time.Time) bool { return !at.After(began) })
}
