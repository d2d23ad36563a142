package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// runSchedules runs the schedules of a broker until the function that it returns is called, or the
// test ends.
func (b *bench) runSchedules() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.RunSchedules(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) putSchedule(c broker.Caller, queue string, s schedule.Schedule) broker.ScheduleStatus {
	b.t.Helper()
	status, err := c.PutSchedule(b.t.Context(), queue, s)
	if err != nil {
		b.t.Fatalf("put a schedule: %v", err)
	}
	return status
}

// dues receives and acks all messages of a queue, and returns their schedules and due times.
func (b *bench) dues(c broker.Caller, queue string) (all []string) {
	b.t.Helper()
	for {
		got := b.receive(c, queue, 100)
		if len(got) == 0 {
			return all
		}
		for _, d := range got {
			all = append(all, d.Attributes[driver.AttributeScheduleName]+" "+d.Attributes[driver.AttributeScheduleDue])
			if err := c.Ack(b.t.Context(), queue, []string{d.Receipt}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

func TestScheduleSendsSealedMessagesWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		b.runSchedules()
		c := b.as("acme")
		b.send(c, "jobs", "first")
		began := time.Now()
		time.Sleep(time.Hour) // the broker has looked, and found nothing
		status := b.putSchedule(c, "jobs", schedule.Schedule{Name: "often", Every: time.Minute, Body: []byte("body"), Attributes: map[string]string{"colour": "red"}})
		if len(status.Upcoming) != 5 || !status.Upcoming[4].Equal(time.Now().Add(5*time.Minute)) || status.Schedule.Queue != "jobs" {
			t.Errorf("the status is %+v", status)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		got := b.receive(c, "jobs", 10)
		if len(got) != 4 {
			t.Fatalf("got %d messages after %v, want 4", len(got), time.Since(began))
		}
		for i, d := range got[1:] {
			due := began.Add(time.Hour + time.Duration(i+1)*time.Minute).UTC().Format(time.RFC3339Nano)
			if string(d.Body) != "body" || d.Attributes["colour"] != "red" || d.Attributes[driver.AttributeScheduleDue] != due || d.Seal.HashChain.IsZero() {
				t.Errorf("message %d is %+v, want one that is due at %s", i, d, due)
			}
		}
		if err := c.Ack(t.Context(), "jobs", []string{got[1].Receipt}); err != nil {
			t.Fatal(err)
		}
		status, err := c.Schedule(t.Context(), "jobs", "often")
		if err != nil || !slices.Equal(status.Outcomes, []string{"acked", "delivered", "delivered"}) {
			t.Errorf("the outcomes are %q, error %v", status.Outcomes, err)
		}
	})
}

func TestScheduleIsManaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		b.runSchedules()
		c := b.as("")
		b.send(c, "jobs", "first")
		b.dues(c, "jobs")
		b.putSchedule(c, "jobs", schedule.Schedule{Name: "often", Every: time.Minute})
		b.putSchedule(c, "jobs", schedule.Schedule{Name: "daily", Cron: "0 6 * * *", Zone: "America/New_York", Paused: true})
		all, err := c.ScheduleList(t.Context(), "jobs")
		if err != nil || len(all) != 2 || all[0].Schedule.Name != "daily" || all[1].Schedule.Every != time.Minute {
			t.Errorf("the list is %+v, error %v", all, err)
		}
		status, err := c.ResumeSchedule(t.Context(), "jobs", "daily")
		if err != nil || len(status.Upcoming) != 5 || status.Upcoming[0].Format("15:04 MST") != "06:00 EST" {
			t.Errorf("resumed: %+v, error %v", status, err)
		}
		if _, err := c.PauseSchedule(t.Context(), "jobs", "often"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := b.dues(c, "jobs"); len(got) != 0 {
			t.Errorf("while it is paused: got %q", got)
		}
		run, err := c.RunSchedule(t.Context(), "jobs", "often")
		if got := b.dues(c, "jobs"); err != nil || !slices.Equal(got, []string{"often "}) || run.MessageID == "" || !run.Due.IsZero() {
			t.Errorf("run now: got %q, %+v, error %v", got, run, err)
		}
		for _, name := range []string{"often", "daily"} {
			if err := c.RemoveSchedule(t.Context(), "jobs", name); err != nil {
				t.Fatal(err)
			}
		}
		expectCode(t, c.RemoveSchedule(t.Context(), "jobs", "often"), driver.ErrNotFound, "a second removal")
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if got := b.dues(c, "jobs"); len(got) != 0 {
			t.Errorf("after they were removed: got %q", got)
		}
	})
}

func TestSchedulesNeedAdminAndSend(t *testing.T) {
	b := memory(t, broker.Limits{})
	all := b.as("")
	b.send(all, "jobs", "a")
	b.putSchedule(all, "jobs", schedule.Schedule{Name: "often", Every: time.Minute})
	calls := func(c broker.Caller) map[string]error {
		errs := make(map[string]error)
		_, errs["put"] = c.PutSchedule(t.Context(), "jobs", schedule.Schedule{Name: "often", Every: time.Minute, Body: []byte("abc")})
		_, errs["run"] = c.RunSchedule(t.Context(), "jobs", "often")
		_, errs["get"] = c.Schedule(t.Context(), "jobs", "often")
		_, errs["list"] = c.ScheduleList(t.Context(), "jobs")
		_, errs["pause"] = c.PauseSchedule(t.Context(), "jobs", "often")
		_, errs["resume"] = c.ResumeSchedule(t.Context(), "jobs", "often")
		errs["remove"] = c.RemoveSchedule(t.Context(), "jobs", "often")
		return errs
	}
	without := b.as("", capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck, capability.OpPurge, capability.OpDLQ, capability.OpPeek, capability.OpStats))
	for name, err := range calls(without) {
		expectCode(t, err, driver.ErrForbidden, name+" with a token that lacks admin")
	}
	for name, err := range calls(b.as("", capability.Operations(capability.OpAdmin))) {
		if name == "put" || name == "run" {
			expectCode(t, err, driver.ErrForbidden, name+" with a token that lacks send")
		} else if err != nil {
			t.Errorf("%s with a token for admin: %v", name, err)
		}
	}
	_, err := b.as("", capability.MaxBodyBytes(2)).PutSchedule(t.Context(), "jobs", schedule.Schedule{Name: "often", Every: time.Minute, Body: []byte("abc")})
	expectCode(t, err, driver.ErrForbidden, "a body that the token does not allow")
}

func TestWrongSchedulesAreRefused(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "jobs", "a")
	often := schedule.Schedule{Name: "often", Every: time.Minute}
	for _, wrong := range []struct {
		field  string
		detail string
		change func(*schedule.Schedule)
	}{
		{"Cron", "61", func(s *schedule.Schedule) { s.Every, s.Cron = 0, "61 * * * *" }},
		{"Cron", "either a cron expression or an interval", func(s *schedule.Schedule) { s.Every = 0 }},
		{"Cron", "either a cron expression or an interval", func(s *schedule.Schedule) { s.Cron = "@daily" }},
		{"Zone", "Moon/Sea", func(s *schedule.Schedule) { s.Every, s.Cron, s.Zone = 0, "@daily", "Moon/Sea" }},
		{"Every", "1s", func(s *schedule.Schedule) { s.Every = time.Millisecond }},
		{"Name", "128", func(s *schedule.Schedule) { s.Name = strings.Repeat("x", 129) }},
		{"Body", "65536", func(s *schedule.Schedule) { s.Body = make([]byte, 64<<10+1) }},
		{"CatchUp", "none, one or all", func(s *schedule.Schedule) { s.CatchUp = "some" }},
		{"Attributes", "", func(s *schedule.Schedule) { s.Attributes = map[string]string{broker.AttributeSeal: "x"} }},
	} {
		s := often
		wrong.change(&s)
		_, err := c.PutSchedule(t.Context(), "jobs", s)
		expectCode(t, err, driver.ErrInvalid, "a schedule with a wrong "+wrong.field)
		if e, _ := errors.AsType[*driver.Error](err); e == nil || e.Field != wrong.field || !strings.Contains(e.Detail, wrong.detail) {
			t.Errorf("a wrong %s is refused with %v", wrong.field, err)
		}
	}
	_, err := c.PutSchedule(t.Context(), "unknown", often)
	expectCode(t, err, driver.ErrNotFound, "a schedule of a queue that does not exist")
	_, err = b.as("acme").Schedule(t.Context(), "jobs", "often")
	expectCode(t, err, driver.ErrNotFound, "a schedule of another tenant's queue")
	for _, call := range []func() error{
		func() error { _, err := c.Schedule(t.Context(), "jobs", "often"); return err },
		func() error { _, err := c.PauseSchedule(t.Context(), "jobs", "often"); return err },
		func() error { _, err := c.ResumeSchedule(t.Context(), "jobs", "often"); return err },
		func() error { _, err := c.RunSchedule(t.Context(), "jobs", "often"); return err },
		func() error { return c.RemoveSchedule(t.Context(), "jobs", "often") },
	} {
		expectCode(t, call(), driver.ErrNotFound, "a schedule that does not exist")
	}
}

// TestFiredDefinitionIsOneThatCanBeRun stores definitions with Fire that the broker would run.
func TestFiredDefinitionIsOneThatCanBeRun(t *testing.T) {
	b := memory(t, broker.Limits{MaxPayloadBytes: 16})
	c := b.as("")
	b.send(c, "jobs", "a")
	definition := func(name, queue, more string) string {
		return fmt.Sprintf(`{"name":%q,"queue":%q,"created":"2000-01-01T00:00:00Z","every_ms":60000%s}`, name, queue, more)
	}
	for _, wrong := range []struct{ field, definition string }{
		{"Name", definition("other", "jobs", "")},
		{"Name", " " + definition("other", "jobs", "")}, // JSON has spaces before it
		{"Queue", "\r\n\t" + definition("often", "other", "")},
		{"Attributes", definition("often", "jobs", `,"attributes":{"`+broker.AttributeSeal+`":"x"}`)},
		{"Body", definition("often", "jobs", `,"body":"`+strings.Repeat("AAAA", 6)+`"`)},
	} {
		now, done, err := c.Fire(t.Context(), "jobs", driver.Firing{Name: "often", Definition: []byte(wrong.definition)})
		if e, _ := errors.AsType[*driver.Error](err); done || e == nil || e.Field != wrong.field {
			t.Errorf("%q: stored %v, error %v", wrong.definition, done, err)
		}
		if done {
			_, _, _ = c.Fire(t.Context(), "jobs", driver.Firing{Name: "often", Revision: now.Revision, Remove: true})
		}
	}
	for name, good := range map[string]string{"often": "\n" + definition("often", "jobs", ""), "raw": "not for the daemon", "empty": " "} {
		if _, done, err := c.Fire(t.Context(), "jobs", driver.Firing{Name: name, Definition: []byte(good)}); err != nil || !done {
			t.Errorf("%q: stored %v, error %v", good, done, err)
		}
	}
}

func TestTenantsHaveTheirOwnSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		b.runSchedules()
		for _, tenant := range []string{"", "acme", "umbrella"} {
			c := b.as(tenant)
			b.send(c, "jobs", "first")
			b.dues(c, "jobs")
			b.putSchedule(c, "jobs", schedule.Schedule{Name: "often", Every: time.Minute, Attributes: map[string]string{"tenant": tenant}})
		}
		if _, err := b.as("acme").PauseSchedule(t.Context(), "jobs", "often"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for tenant, want := range map[string]int{"": 2, "acme": 0, "umbrella": 2} {
			if got := b.receive(b.as(tenant), "jobs", 10); len(got) != want || want > 0 && got[0].Attributes["tenant"] != tenant {
				t.Errorf("tenant %q got %d messages, want %d", tenant, len(got), want)
			}
		}
	})
}

func TestSchedulesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxSchedules: 3})
		c := b.as("")
		for _, queue := range []string{"a", "b"} {
			b.send(c, queue, "first")
		}
		for i := range 3 {
			b.putSchedule(c, []string{"a", "b"}[i%2], schedule.Schedule{Name: fmt.Sprint(i), Every: time.Hour})
		}
		_, err := c.PutSchedule(t.Context(), "b", schedule.Schedule{Name: "more", Every: time.Hour})
		if expectCode(t, err, driver.ErrFull, "one schedule too many"); err == nil || !strings.Contains(err.Error(), "max_schedules 3") {
			t.Errorf("one schedule too many: %v", err)
		}
		b.putSchedule(c, "a", schedule.Schedule{Name: "0", Every: time.Minute}) // a change needs no room
		b.runSchedules()                                                        // counts what there is
		synctest.Wait()
		_, err = c.PutSchedule(t.Context(), "b", schedule.Schedule{Name: "more", Every: time.Hour})
		expectCode(t, err, driver.ErrFull, "one schedule too many after a scan")
		if err := c.RemoveSchedule(t.Context(), "a", "0"); err != nil {
			t.Fatal(err)
		}
		b.putSchedule(c, "b", schedule.Schedule{Name: "more", Every: time.Hour})
		if err := c.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.putSchedule(c, "a", schedule.Schedule{Name: "3", Every: time.Hour})
		b.putSchedule(c, "a", schedule.Schedule{Name: "4", Every: time.Hour})
	})
}

// noSchedules is a backend that lacks the trait.
type noSchedules struct{ *membox.Backend }

type queueWithoutSchedules struct{ driver.Queue }

func (b noSchedules) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return queueWithoutSchedules{q}, err
}

func (q queueWithoutSchedules) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Schedules = false
	return traits
}

func TestSchedulesAreRefusedByTrait(t *testing.T) {
	backend := membox.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	b := newBench(t, noSchedules{backend}, broker.Limits{})
	c := b.as("")
	b.send(c, "jobs", "a")
	_, err := c.PutSchedule(t.Context(), "jobs", schedule.Schedule{Name: "often", Every: time.Minute})
	if expectCode(t, err, driver.ErrUnsupported, "a schedule on a backend that keeps none"); err == nil || !strings.Contains(err.Error(), "keeps no schedules") {
		t.Errorf("refused with %v", err)
	}
	_, err = c.ScheduleList(t.Context(), "jobs")
	expectCode(t, err, driver.ErrUnsupported, "a list on a backend that keeps none")
}

// TestSchedulesThatWouldNotRunAreRefused uses a backend that does not list the queues with schedules.
func TestSchedulesThatWouldNotRunAreRefused(t *testing.T) {
	backend := membox.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	b := newBench(t, struct {
		driver.Opener
		driver.Admin
	}{backend, backend}, broker.Limits{})
	c := b.as("")
	b.send(c, "jobs", "a")
	_, err := c.PutSchedule(t.Context(), "jobs", schedule.Schedule{Name: "often", Every: time.Minute})
	expectCode(t, err, driver.ErrUnsupported, "a schedule that would not be run")
	if traits, err := c.Traits(t.Context(), "jobs"); err != nil || traits.Schedules {
		t.Errorf("the traits say that schedules are kept: %v, error %v", traits.Schedules, err)
	}
}

func TestSchedulesOfDeletedQueueEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		b.runSchedules()
		c := b.as("")
		for range 3 {
			b.send(c, "jobs", "first")
			b.dues(c, "jobs")
			b.putSchedule(c, "jobs", schedule.Schedule{Name: "often", Every: time.Minute})
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := b.dues(c, "jobs"); len(got) != 1 {
				t.Errorf("got %q, want one message", got)
			}
			if err := c.Delete(t.Context(), "jobs"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTwoBrokersSendEachDueTimeOnce stops one of two brokers on one backend, and starts it again.
func TestTwoBrokersSendEachDueTimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		b, other := newBench(t, backend, broker.Limits{}), newBench(t, backend, broker.Limits{})
		c := b.as("")
		b.send(c, "jobs", "first")
		b.dues(c, "jobs")
		stop := b.runSchedules()
		other.runSchedules()
		for _, rule := range []schedule.CatchUp{schedule.CatchUpNone, schedule.CatchUpOne, schedule.CatchUpAll} {
			b.putSchedule(c, "jobs", schedule.Schedule{Name: string(rule), Every: time.Minute, CatchUp: rule})
		}
		for i := range 10 {
			if i%2 == 1 {
				stop()
			} else if i > 0 {
				stop = b.runSchedules()
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			got := b.dues(c, "jobs")
			slices.Sort(got)
			if dues := slices.Compact(slices.Clone(got)); len(got) != 30 || len(dues) != 30 {
				t.Errorf("round %d: got %d messages for %d due times, want 30", i, len(got), len(dues))
			}
		}
	})
}

// TestScheduleOfAnotherProcessSkipsNothing stores a schedule without the broker.
func TestScheduleOfAnotherProcessSkipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		b := newBench(t, backend, broker.Limits{})
		c := b.as("")
		b.send(c, "jobs", "first")
		b.dues(c, "jobs")
		b.runSchedules()
		time.Sleep(time.Hour + 500*time.Millisecond)
		q, err := backend.OpenQueue(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		other, err := schedule.NewRunner(q, "jobs", nil)
		if err == nil {
			_, err = other.Put(t.Context(), schedule.Schedule{Name: "often", Every: time.Second, CatchUp: schedule.CatchUpNone})
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.dues(c, "jobs"); len(got) != 60 {
			t.Errorf("%d messages in a minute, want 60", len(got))
		}
	})
}
