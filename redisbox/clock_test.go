package redisbox

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// TestServerClockSetBackDelaysNothing: the shard's time goes on although the server's
// clock is set back.
func TestServerClockSetBackDelaysNothing(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	server := redistest.Standalone(t, redistest.ClockSkew(0))
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	send(t, q, "a")
	start := time.Now()
	receive(t, q, 1, lease)
	if err := server.SetClockSkew(-2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
	if early := len(got) > 0 && time.Since(start) < lease; err != nil || early {
		t.Fatalf("got %d messages after %v, error %v", len(got), time.Since(start), err)
	}
	if len(got) == 0 { // otherwise this machine took as long as the lease
		got, err = q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
	}
	if err != nil || len(got) != 1 {
		t.Fatalf("got %d messages, error %v", len(got), err)
	}
	if took := time.Since(start); took < lease-lease/10 || took > time.Minute {
		t.Errorf("a lease of %v ended after %v", lease, took)
	}
}

// TestServerClockEndsDelaysSoonerAndLivesBothWays is what Redis makes of TIME-0: a step back prolongs lives alone, and
// a step forward ends delays, due times and lives.
func TestServerClockEndsDelaysSoonerAndLivesBothWays(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, redistest.ClockSkew(0))
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	set := func(skew time.Duration) {
		t.Helper()
		if err := server.SetClockSkew(skew); err != nil {
			t.Fatal(err)
		}
	}
	sendWith := func(left time.Duration) {
		t.Helper()
		_, err := q.Send(t.Context(), []driver.Outgoing{{Delay: left}, {DeliverAt: time.Now().Add(left)}, {TTL: left}})
		if err != nil {
			t.Fatal(err)
		}
	}
	const left = 8 * time.Second
	start := time.Now()
	sendWith(left)
	set(-2 * time.Minute)
	for {
		stats, err := q.Stats(t.Context())
		took := time.Since(start)
		if err != nil || took > time.Minute {
			t.Fatalf("after %v: %+v, error %v", took, stats, err)
		}
		if stats.Delayed == 0 {
			if took < left-left/10 {
				t.Errorf("a delay and a due time %v ahead have ended after %v", left, took)
			}
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	wantStats(t, q, driver.Stats{Ready: 3})
	set(0)
	wantStats(t, q, driver.Stats{Ready: 2, Dead: 1})
	sendWith(10 * time.Minute)
	wantStats(t, q, driver.Stats{Ready: 3, Delayed: 2, Dead: 1})
	set(15 * time.Minute)
	wantStats(t, q, driver.Stats{Ready: 4, Dead: 2})
}

func TestStalePrimaryIsRefused(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	send(t, q, "a")
	b.server.RetryFor = 300 * time.Millisecond
	clock := &q.Shards[0].Clock
	clock.Saw(0, 0, 1000) // a later primary has answered
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("b")}})
	wantCode(t, err, driver.ErrUnavailable)
	// If no later primary comes back, this one is accepted.
	clock.Mu.Lock()
	clock.StaleSince = time.Now().Add(-2 * shard.FenceFor)
	clock.Mu.Unlock()
	clock.SawStale()
	b.server.RetryFor = 10 * time.Second
	wantStats(t, q, driver.Stats{Ready: 1})
}

// TestRestartedOldPrimaryStaysStale: a primary that was replaced may come back without
// knowing it. If it passed for the latest, processes that have met it would refuse the
// real one.
func TestRestartedOldPrimaryStaysStale(t *testing.T) {
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways))
	b := open(t, connect(t, server.ClientOption()), nil)
	q := openQueue(t, b)
	send(t, q, "a")
	clock := &q.Shards[0].Clock
	_, own := clock.Floor()
	clock.Saw(0, 0, own+1) // another primary has taken over
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.server.RetryFor = 300 * time.Millisecond
	_, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
	wantCode(t, err, driver.ErrUnavailable)
	if _, term := clock.Floor(); term != own+1 {
		t.Errorf("it has term %v, and the latest is %v", term, own+1)
	}
	// A process that knows no other primary is served.
	receive(t, openQueue(t, open(t, connect(t, server.ClientOption()), nil)), 1, hold)
}

// TestManyDueMessagesComeInOrder: more messages are due than one call may handle, and the
// lowest place still goes first.
func TestManyDueMessagesComeInOrder(t *testing.T) {
	server := redistest.Standalone(t, redistest.ClockSkew(0))
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	const n = 1500
	var want []string
	for i := range n / 100 {
		msgs := make([]driver.Outgoing, 100)
		for k := range msgs { // the later it is sent, the earlier it is due
			msgs[k].Delay = 10*time.Minute - time.Duration(100*i+k)*100*time.Millisecond
		}
		sent, err := q.Send(t.Context(), msgs)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sent {
			want = append(want, s.ID)
		}
	}
	wantStats(t, q, driver.Stats{Delayed: n})
	if err := server.SetClockSkew(15 * time.Minute); err != nil {
		t.Fatal(err)
	}
	for len(want) > 0 {
		for _, d := range receive(t, q, min(100, len(want)), hold) {
			if d.ID != want[0] {
				t.Fatalf("with %d to come: got %s, want %s", len(want), d.ID, want[0])
			}
			want = want[1:]
		}
	}
	wantStats(t, q, driver.Stats{InFlight: n})
	if err := server.SetClockSkew(time.Hour); err != nil {
		t.Fatal(err)
	}
	wantStats(t, q, driver.Stats{Ready: n})
}
