package oapapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// scheduling runs a test in virtual time, with a daemon that runs schedules and a queue jobs.
func scheduling(t *testing.T, test func(t *testing.T, d *daemon, ring *keyring.Ring)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		d := newDaemonWith(t, membox.New(nil), oapapi.Options{}, ring, mint(t, ring))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.broker.RunSchedules(ctx)
		}()
		d.make(t, "jobs")
		test(t, d, ring)
		cancel()
		<-ended
		d.stop(t)
	})
}

// opened returns a client and the queue jobs.
func opened(t *testing.T, d *daemon, token string) (*remotebox.Backend, driver.Queue) {
	t.Helper()
	client := remotebox.New([]string{"pipe"}, token, &remotebox.Options{Dial: d.pipe})
	q, err := client.OpenQueue(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	return client, q
}

// TestScheduleWorksThroughDaemonAsLocally manages schedules with package schedule over OAP/1. The
// daemon runs them, and a runner of the client may too.
func TestScheduleWorksThroughDaemonAsLocally(t *testing.T) {
	scheduling(t, func(t *testing.T, d *daemon, _ *keyring.Ring) {
		client, q := opened(t, d, d.token)
		defer client.Close()
		r, err := schedule.NewRunner(q, "jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		status, err := r.Put(t.Context(), schedule.Schedule{Name: "often", Every: time.Minute, Body: []byte("body")})
		if err != nil || !status.Next.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("put: %+v, error %v", status, err)
		}
		due := make(map[string]int)
		count := func() {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range got {
				due[m.Attributes[driver.AttributeScheduleDue]]++
			}
		}
		time.Sleep(5*time.Minute + time.Second)
		count()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		count()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if len(due) != 10 {
			t.Errorf("%d due times, want 10: %v", len(due), due)
		}
		for at, n := range due {
			if n != 1 {
				t.Errorf("%d messages for %s", n, at)
			}
		}
		run, err := r.RunNow(t.Context(), "often")
		if err != nil || run.MessageID == "" {
			t.Errorf("run now: %+v, %v", run, err)
		}
		if _, err := r.Pause(t.Context(), "often"); err != nil {
			t.Fatal(err)
		}
		if status, err = r.Get(t.Context(), "often"); err != nil || !status.Schedule.Paused || len(status.Runs) != driver.MaxRuns {
			t.Errorf("get: %+v, error %v", status, err)
		}
		if err := r.Remove(t.Context(), "often"); err != nil {
			t.Fatal(err)
		}
		for status := range r.List(t.Context()) {
			t.Errorf("there is %+v", status)
		}
	})
}

func TestWrongFiringsAreRefusedByDaemon(t *testing.T) {
	scheduling(t, func(t *testing.T, d *daemon, ring *keyring.Ring) {
		client, q := opened(t, d, d.token)
		defer client.Close()
		definition := func(name, queue, rest string) []byte {
			return fmt.Appendf(nil, `{"name":%q,"queue":%q,"created":"2000-01-01T00:00:00Z",%s}`, name, queue, rest)
		}
		for _, wrong := range []struct {
			field      string
			definition []byte
		}{
			{"cron", definition("often", "jobs", `"cron":"61 * * * *"`)},
			{"zone", definition("often", "jobs", `"cron":"@daily","zone":"Moon/Sea"`)},
			{"name", definition("other", "jobs", `"cron":"@daily"`)},
			{"queue", definition("often", "other", `"cron":"@daily"`)},
			{"", definition("often", "jobs", `"moon":"full"`)},
		} {
			_, done, err := q.Fire(t.Context(), driver.Firing{Name: "often", Definition: wrong.definition})
			e, _ := errors.AsType[*driver.Error](err)
			if done || e == nil || e.Code != driver.ErrInvalid || !strings.EqualFold(e.Field, wrong.field) {
				t.Errorf("%s: done %v, error %v", wrong.definition, done, err)
			}
		}
		good := driver.Firing{Name: "often", Definition: definition("often", "jobs", `"cron":"@daily"`)}
		now, done, err := q.Fire(t.Context(), good)
		if err != nil || !done {
			t.Fatalf("fire: %v, %v", done, err)
		}
		large := driver.Firing{Name: "often", Revision: now.Revision}
		for range driver.MaxRuns {
			large.Messages = append(large.Messages, driver.DueMessage{Outgoing: driver.Outgoing{Body: make([]byte, 200<<10)}})
		}
		if _, _, err := q.Fire(t.Context(), large); !errors.Is(err, driver.ErrTooLarge) {
			t.Errorf("a firing that fits in no frame: %v", err)
		}
		for operation, wants := range map[capability.Operation][2]driver.Code{
			capability.OpSend:  {driver.ErrForbidden, driver.ErrForbidden},
			capability.OpAdmin: {driver.ErrForbidden, ""},
		} {
			narrow, q := opened(t, d, mint(t, ring, capability.Operations(operation)))
			_, _, err := q.Fire(t.Context(), driver.Firing{Name: "often", Revision: now.Revision, Messages: []driver.DueMessage{{}}})
			if !errors.Is(err, wants[0]) {
				t.Errorf("fire with a token for %v: %v", operation, err)
			}
			for _, err := range q.Schedules(t.Context(), "") {
				if wants[1] == "" && err != nil || wants[1] != "" && !errors.Is(err, wants[1]) {
					t.Errorf("schedules with a token for %v: %v", operation, err)
				}
			}
			_ = narrow.Close()
		}
	})
}
