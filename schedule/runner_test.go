package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// inBubble runs a test in virtual time, with an empty queue in memory.
func inBubble(t *testing.T, config driver.Config, test func(t *testing.T, q driver.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := membox.New(nil)
		if err := b.ConfigureQueue(t.Context(), "jobs", config); err != nil {
			t.Fatal(err)
		}
		q, err := b.OpenQueue(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		test(t, q)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

func mustRunner(t testing.TB, q driver.Queue, options *RunnerOptions) *Runner {
	t.Helper()
	r, err := NewRunner(q, "jobs", options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustPut(t testing.TB, r *Runner, s Schedule) Status {
	t.Helper()
	status, err := r.Put(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// start runs a runner until the function that it returns is called.
func start(t testing.TB, r *Runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

// received receives and acks all messages that wait, and returns their schedules and due times.
func received(t testing.TB, q driver.Queue) (all []string) {
	t.Helper()
	for {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1000, Visibility: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return all
		}
		for _, d := range got {
			all = append(all, d.Attributes[driver.AttributeScheduleName]+" "+d.Attributes[driver.AttributeScheduleDue])
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRunnerSendsMessagesWhenDue(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		status := mustPut(t, r, Schedule{Name: "often", Every: time.Minute, Body: []byte("body"), Attributes: map[string]string{"colour": "red"}})
		began := time.Now()
		if !status.Next.Equal(began.Add(time.Minute)) || !status.Schedule.Created.Equal(began) {
			t.Errorf("the status is %+v", status)
		}
		defer start(t, r)()
		for i := 1; i <= 3; i++ {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Hour, Wait: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatalf("got %d messages, error %v", len(got), err)
			}
			due := began.Add(time.Duration(i) * time.Minute)
			if !time.Now().Equal(due) {
				t.Errorf("message %d comes after %v", i, time.Since(began))
			}
			d := got[0]
			if string(d.Body) != "body" || d.Attributes["colour"] != "red" || d.Attributes[driver.AttributeScheduleName] != "often" ||
				d.Attributes[driver.AttributeScheduleDue] != due.UTC().Format(time.RFC3339Nano) {
				t.Errorf("message %d has the body %q and %v", i, d.Body, d.Attributes)
			}
		}
		status, err := r.Get(t.Context(), "often")
		if err != nil || len(status.Runs) != 3 || !status.Through.Equal(began.Add(3*time.Minute)) || !status.Next.Equal(began.Add(4*time.Minute)) {
			t.Errorf("the status is %+v, error %v", status, err)
		}
	})
}

func TestRunnerNoticesChangesOfOtherProcesses(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		defer start(t, mustRunner(t, q, nil))()
		other := mustRunner(t, q, nil)
		time.Sleep(time.Hour + time.Second)
		mustPut(t, other, Schedule{Name: "often", Every: time.Minute})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := received(t, q); len(got) != 2 {
			t.Errorf("got %q, want two messages", got)
		}
		if err := other.Remove(t.Context(), "often"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := received(t, q); len(got) != 0 {
			t.Errorf("after it was removed: got %q", got)
		}
	})
}

func TestPausedScheduleSendsNothingAndCatchesNothingUp(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		mustPut(t, r, Schedule{Name: "often", Every: time.Minute, CatchUp: CatchUpAll})
		defer start(t, r)()
		time.Sleep(90 * time.Second)
		if status, err := r.Pause(t.Context(), "often"); err != nil || !status.Schedule.Paused || !status.Next.IsZero() {
			t.Errorf("the status is %+v, error %v", status, err)
		}
		mustPut(t, r, Schedule{Name: "often", Every: time.Minute, CatchUp: CatchUpAll}) // it stays paused
		time.Sleep(10 * time.Minute)
		if got := received(t, q); len(got) != 1 {
			t.Errorf("got %q, want one message from before the pause", got)
		}
		run, err := r.RunNow(t.Context(), "often")
		if err != nil || !run.Due.IsZero() || run.MessageID == "" {
			t.Errorf("run now: %+v, error %v", run, err)
		}
		if got := received(t, q); !slices.Equal(got, []string{"often "}) {
			t.Errorf("got %q, want one message without a due time", got)
		}
		if _, err := r.Resume(t.Context(), "often"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := received(t, q); len(got) != 1 {
			t.Errorf("got %q, want one message after the pause", got)
		}
	})
}

func TestMissedTimesAreCaughtUpAfterAnOutage(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		for _, rule := range []CatchUp{CatchUpNone, CatchUpOne, CatchUpAll} {
			mustPut(t, r, Schedule{Name: string(rule), Every: time.Hour, CatchUp: rule})
		}
		began := time.Now().UTC()
		time.Sleep(100*time.Hour + 30*time.Minute)
		stop := start(t, r)
		synctest.Wait()
		stop()
		counts := make(map[string]int)
		for _, one := range received(t, q) {
			name, due, _ := strings.Cut(one, " ")
			counts[name]++
			if want := began.Add(100 * time.Hour).Format(time.RFC3339Nano); name == "one" && due != want {
				t.Errorf("one is due at %s, want %s", due, want)
			}
		}
		if counts["none"] != 0 || counts["one"] != 1 || counts["all"] != 100 {
			t.Errorf("got %v", counts)
		}
		if status, err := r.Get(t.Context(), "all"); err != nil || len(status.Runs) != driver.MaxRuns {
			t.Errorf("the status is %+v, error %v", status, err)
		}
	})
}

func TestPutChangesOnlyWhatDiffers(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		s := Schedule{Name: "nightly", Cron: "0 3 * * *", Zone: "Europe/Berlin", CatchUp: CatchUpAll}
		first := mustPut(t, r, s)
		revision := func() uint64 {
			record, err := r.read(t.Context(), "nightly")
			if err != nil {
				t.Fatal(err)
			}
			return record.Revision
		}
		before := revision()
		time.Sleep(50 * time.Hour)
		if again := mustPut(t, r, s); revision() != before || !again.Schedule.Created.Equal(first.Schedule.Created) {
			t.Errorf("the same schedule again is %+v", again)
		}
		s.Body = []byte("new")
		if status := mustPut(t, r, s); revision() == before || !status.Through.Equal(first.Through) {
			t.Errorf("with another body it is %+v", status)
		}
		s.Cron = "0 4 * * *"
		if status := mustPut(t, r, s); !status.Through.Equal(status.Now) {
			t.Errorf("with other times it is dealt with through %v, want now, %v", status.Through, status.Now)
		}
		stop := start(t, r)
		synctest.Wait()
		stop()
		if got := received(t, q); len(got) > 0 {
			t.Errorf("times before the change were caught up: %q", got)
		}
	})
}

func TestUnknownAndWrongSchedulesAreRefused(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		_, pause := r.Pause(t.Context(), "none")
		_, run := r.RunNow(t.Context(), "none")
		_, get := r.Get(t.Context(), "none")
		for i, err := range []error{pause, run, get, r.Remove(t.Context(), "none")} {
			if !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for field, s := range map[string]Schedule{
			"Queue": {Name: "a", Every: time.Hour, Queue: "other"},
			"Every": {Name: "a", Every: time.Millisecond},
			"Name":  {Every: time.Hour},
		} {
			_, err := r.Put(t.Context(), s)
			if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrInvalid || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := NewRunner(q, "jobs", &RunnerOptions{Refresh: time.Millisecond}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a refresh of a millisecond: %v", err)
		}
		if _, err := NewRunner(unable{}, "jobs", nil); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("a queue without schedules: %v", err)
		}
	})
}

// unable is a queue without schedules.
type unable struct{ driver.Queue }

func (unable) Traits() driver.Traits { return driver.Traits{} }

func TestUnreadableScheduleDoesNotStopOthers(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		if _, done, err := q.Fire(t.Context(), driver.Firing{Name: "later version", Definition: []byte(`{"moon": "full"}`)}); err != nil || !done {
			t.Fatal(done, err)
		}
		mustPut(t, r, Schedule{Name: "often", Every: time.Minute})
		defer start(t, r)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := received(t, q); len(got) != 1 {
			t.Errorf("got %q, want one message", got)
		}
		all := listed(t, r)
		if len(all) != 2 || all[0].Schedule.Name != "later version" || all[0].Err == nil || all[1].Schedule.Every != time.Minute || all[1].Err != nil {
			t.Errorf("the list is %+v", all)
		}
	})
}

// listed returns all schedules.
func listed(t testing.TB, r *Runner) (all []Status) {
	t.Helper()
	for status, err := range r.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, status)
	}
	return all
}

func TestUnreadableScheduleIsNotReplaced(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		const definition = `{"moon": "full"}`
		if _, done, err := q.Fire(t.Context(), driver.Firing{Name: "moon", Definition: []byte(definition)}); err != nil || !done {
			t.Fatal(done, err)
		}
		for name, change := range map[string]func() error{
			"put":    func() error { _, err := r.Put(t.Context(), Schedule{Name: "moon", Every: time.Minute}); return err },
			"pause":  func() error { _, err := r.Pause(t.Context(), "moon"); return err },
			"resume": func() error { _, err := r.Resume(t.Context(), "moon"); return err },
			"run":    func() error { _, err := r.RunNow(t.Context(), "moon"); return err },
			"get":    func() error { _, err := r.Get(t.Context(), "moon"); return err },
		} {
			if err := change(); !errors.Is(err, driver.ErrConflict) || !strings.Contains(err.Error(), `schedule "moon" cannot be read here`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for s, err := range q.Schedules(t.Context(), "") {
			if err != nil || string(s.Definition) != definition {
				t.Errorf("stored: %q, error %v", s.Definition, err)
			}
		}
		if err := r.Remove(t.Context(), "moon"); err != nil {
			t.Fatal(err)
		}
		mustPut(t, r, Schedule{Name: "moon", Every: time.Minute})
	})
}

// TestChangedBodyKeepsMissedTimes changes the body of a schedule that found no room for a minute.
func TestChangedBodyKeepsMissedTimes(t *testing.T) {
	inBubble(t, driver.Config{MaxMessages: 3}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		s := Schedule{Name: "often", Every: time.Second, CatchUp: CatchUpAll}
		created := mustPut(t, r, s).Schedule.Created
		defer start(t, r)()
		time.Sleep(time.Minute + 500*time.Millisecond)
		s.Body = []byte("new")
		mustPut(t, r, s)
		var got []string
		for range 5 {
			time.Sleep(time.Minute)
			synctest.Wait()
			got = append(got, received(t, q)...)
		}
		for i, due := range got {
			if want := "often " + created.Add(time.Duration(i+1)*time.Second).Format(time.RFC3339Nano); due != want {
				t.Fatalf("message %d is %q, want %q", i, due, want)
			}
		}
		if len(got) != 15 {
			t.Errorf("got %d messages, want 15", len(got))
		}
	})
}

// TestChangedRuleRevivesNothing changes the rule for catching up after an outage that the rule
// before it left out, and after one that it must still catch up.
func TestChangedRuleRevivesNothing(t *testing.T) {
	for _, test := range []struct {
		from, to CatchUp
		late     time.Duration // since the last due time
		want     int
	}{
		{CatchUpNone, CatchUpAll, 30 * time.Minute, 0},
		{CatchUpNone, CatchUpOne, 30 * time.Minute, 0},
		{CatchUpNone, "", 30 * time.Minute, 0},
		{CatchUpNone, CatchUpAll, time.Minute, 1},
		{CatchUpNone, CatchUpAll, time.Minute + time.Millisecond, 0},
		{CatchUpOne, CatchUpAll, 30 * time.Minute, 3},
		{CatchUpAll, CatchUpOne, 30 * time.Minute, 1},
		{CatchUpAll, CatchUpNone, 30 * time.Minute, 0},
	} {
		t.Run(fmt.Sprintf("from %s to %s after %v", test.from, test.to, test.late), func(t *testing.T) {
			inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
				s := Schedule{Name: "hourly", Every: time.Hour, CatchUp: test.from}
				first := mustPut(t, mustRunner(t, q, nil), s)
				time.Sleep(3*time.Hour + test.late)
				r := mustRunner(t, q, nil)
				if test.from == CatchUpNone && test.late > lateLimit {
					stop := start(t, r) // it looks, and leaves them out
					synctest.Wait()
					stop()
				}
				s.CatchUp = test.to
				if status := mustPut(t, r, s); status.Through.Before(first.Through) {
					t.Errorf("dealt with through %v after %v", status.Through, first.Through)
				}
				defer start(t, r)()
				synctest.Wait()
				if got := received(t, q); len(got) != test.want {
					t.Errorf("got %q, want %d messages", got, test.want)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := received(t, q); len(got) != 1 {
					t.Errorf("got %q in the hour that follows, want one message", got)
				}
			})
		})
	}
}

// TestScheduleLearnedLateSkipsNothing stores schedules that a running runner does not know for up
// to ten seconds, in which they are due several times.
func TestScheduleLearnedLateSkipsNothing(t *testing.T) {
	for _, catchUp := range []CatchUp{CatchUpNone, CatchUpOne, CatchUpAll} {
		t.Run(string(catchUp), func(t *testing.T) {
			inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
				defer start(t, mustRunner(t, q, nil))()
				other := mustRunner(t, q, nil)
				time.Sleep(time.Hour + 500*time.Millisecond)
				mustPut(t, other, Schedule{Name: "often", Every: time.Second, CatchUp: catchUp})
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := received(t, q); len(got) != 60 {
					t.Errorf("%d messages in a minute, want 60", len(got))
				}
				mustPut(t, other, Schedule{Name: "often", Every: 2 * time.Second, CatchUp: catchUp})
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := received(t, q); len(got) != 30 {
					t.Errorf("%d messages in a minute after a change, want 30", len(got))
				}
			})
		})
	}
}

func TestFullQueueGetsMessagesWhenThereIsRoom(t *testing.T) {
	inBubble(t, driver.Config{MaxMessages: 3}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		mustPut(t, r, Schedule{Name: "often", Every: time.Hour, CatchUp: CatchUpAll})
		time.Sleep(8*time.Hour + time.Minute)
		defer start(t, r)()
		total := 0
		for range 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			total += len(received(t, q))
		}
		if total != 8 {
			t.Errorf("got %d messages, want 8", total)
		}
	})
}

func TestRunEndsWhenItCannotHelp(t *testing.T) {
	inBubble(t, driver.Config{}, func(t *testing.T, q driver.Queue) {
		r := mustRunner(t, q, nil)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("run: %v", err)
		}
	})
}

func ExampleRunner() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	queue, _ := backend.OpenQueue(ctx, "reports")
	runner, err := NewRunner(queue, "reports", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := runner.Put(ctx, Schedule{Name: "weekdays", Cron: "30 6 * * MON-FRI", Zone: "Europe/Berlin", Body: []byte("{}")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(status.Schedule.Name, status.Next.After(status.Now))
	running, stop := context.WithCancel(ctx)
	defer stop()
	go runner.Run(running)
	_, err = runner.RunNow(ctx, "weekdays") // without waiting for 6:30
	got, _ := queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	fmt.Println(len(got), err)
	// Output:
	// weekdays true
	// 1 <nil>
}
