package redisbox_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
)

// These tests show which clocks matter: no client's, and of the servers' only their
// speed.

// A new primary's clock may be minutes off. Leases and delays still last as long as they
// should, or longer if the first caller does not know how much time has passed; and dedup
// keys are remembered.
func TestNewPrimaryClockExpiresNothingEarly(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t, redistest.ClockSkew(0), redistest.Replicas(1), redistest.NodeTimeout(nodeTimeout))
	for _, test := range []struct {
		name     string
		skew     time.Duration
		newcomer bool // the first caller has not called before
	}{
		{"ahead", 2 * time.Minute, false},
		{"behind", -2 * time.Minute, false},
		{"ahead, seen by a newcomer", 2 * time.Minute, true},
		{"behind, seen by a newcomer", -2 * time.Minute, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			lasting := 8 * time.Second
			for !testNewClock(t, cluster, test.skew, test.newcomer, lasting) {
				if lasting *= 2; lasting > 2*time.Minute {
					t.Fatal("replicas take too long to take over: this shows nothing")
				}
			}
		})
	}
}

// testNewClock makes a replica with another clock the primary while leases and delays
// last. It reports false if they did not last long enough.
func testNewClock(t *testing.T, cluster *redistest.ClusterGroup, skew time.Duration, newcomer bool, lasting time.Duration) bool {
	t.Helper()
	backend := openBackend(t, cluster.ClientOption(), &redisbox.Options{Replicas: 1, ReplicaTimeout: time.Minute})
	name := redistest.Prefix(t) + "clock"
	if err := backend.ConfigureQueue(t.Context(), name, driver.Config{DedupWindow: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	q := openNamed(t, backend, name)
	replica := replicaWithClock(t, cluster, name, skew)
	start := time.Now()
	sent, err := q.Send(t.Context(), []driver.Outgoing{
		{Body: []byte("leased")},
		{Body: []byte("held")},
		{Body: []byte("delayed"), Delay: lasting},
		{Body: []byte("keyed"), DedupKey: "key", Delay: 10 * time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	leased, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: lasting})
	if err != nil || len(leased) != 2 {
		t.Fatalf("received %d, %v", len(leased), err)
	}

	if newcomer {
		if err := backend.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Failover(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	if newcomer {
		q = openNamed(t, openBackend(t, cluster.ClientOption(), &redisbox.Options{Replicas: 1, ReplicaTimeout: time.Minute}), name)
	}
	early, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: lasting, Wait: time.Second})
	if passed := time.Since(start); passed > lasting {
		return false
	} else if err != nil || len(early) != 0 {
		t.Fatalf("after %v of %v there came %d messages, %v", passed, lasting, len(early), err)
	}
	if err := q.Ack(t.Context(), []driver.Receipt{leased[1].Receipt}); time.Since(start) > lasting {
		return false
	} else if err != nil {
		t.Errorf("ack of a lease that is not over: %v", err)
	}
	again, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("keyed"), DedupKey: "key"}})
	if err != nil || !again[0].Duplicate || again[0].ID != sent[3].ID {
		t.Errorf("a dedup key was forgotten: %+v, %v", again, err)
	}
	if !newcomer {
		expectOnTime(t, q, start, lasting)
	}
	return true
}

// expectOnTime checks that a leased and a delayed message become ready on time.
func expectOnTime(t *testing.T, q driver.Queue, start time.Time, lasting time.Duration) {
	t.Helper()
	var bodies []string
	for len(bodies) < 2 {
		late, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute, Wait: 2 * lasting})
		if err != nil || len(late) == 0 {
			t.Fatalf("after %v there is only %q, %v", time.Since(start), bodies, err)
		}
		for _, d := range late {
			bodies = append(bodies, string(d.Body))
		}
		if passed := time.Since(start); passed < lasting {
			t.Errorf("%q came after %v, not %v", bodies, passed, lasting)
		}
	}
	if slices.Sort(bodies); !slices.Equal(bodies, []string{"delayed", "leased"}) {
		t.Errorf("got %q", bodies)
	}
	t.Logf("what was to last %v lasted %v", lasting, time.Since(start).Round(time.Millisecond))
}

// replicaWithClock returns a replica of a queue's primary, restarted with a clock that
// differs from the primary's. A clock that jumps while the server runs would look to it
// like minutes without messages from other servers.
func replicaWithClock(t *testing.T, cluster *redistest.ClusterGroup, queue string, skew time.Duration) *redistest.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	primary, err := cluster.PrimaryOf(ctx, someKey(ctx, t, cluster, queue, "meta"))
	if err != nil {
		t.Fatal(err)
	}
	replicas, err := cluster.ReplicasOf(ctx, primary)
	if err != nil || len(replicas) == 0 {
		t.Fatalf("%s has %d replicas, %v", primary.Addr(), len(replicas), err)
	}
	replica := replicas[0]
	replica.Kill()
	if err := errors.Join(replica.SetClockSkew(primary.ClockSkew()+skew), replica.Restart(ctx), cluster.WaitHealthy(ctx)); err != nil {
		t.Fatal(err)
	}
	return replica
}

// The clock of a synctest bubble shows the first of January 2000 and stands still while a
// goroutine in it waits for the network. So a client in a bubble has a clock that is
// decades off and does not run. That must not make a difference, and no request may
// contain its time.
func TestWrongClientClockHasNoEffect(t *testing.T) {
	server := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var requests requestLog
	proxy.OnRequest(requests.take)
	name := redistest.Prefix(t) + "clock"
	received := receiveOutside(t, openNamed(t, openBackend(t, server.ClientOption(), nil), name))
	option := server.ClientOption()
	option.InitAddress = []string{proxy.Addr()}

	const short = 600 * time.Millisecond
	now := time.Now()
	var wrongNow time.Time
	synctest.Test(t, func(t *testing.T) {
		if wrongNow = time.Now(); now.Sub(wrongNow) < 24*time.Hour {
			t.Fatalf("the clock of the bubble shows %v", wrongNow)
		}
		q := openNamed(t, openBackend(t, option, nil), name)
		_, err := q.Send(t.Context(), []driver.Outgoing{
			{Body: []byte("leased"), DedupKey: "key"},
			{Body: []byte("delayed"), Delay: short},
		})
		if err != nil {
			t.Fatal(err)
		}
		leased, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: short})
		if err != nil || len(leased) != 1 {
			t.Fatalf("received %d, %v", len(leased), err)
		}
		if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: leased[0].Receipt, Visibility: short}}); err != nil {
			t.Error(err)
		}
		if early := received(0); len(early) != 0 {
			t.Errorf("another receiver got %d messages that are leased or delayed", len(early))
		}
		late := received(2 * short)
		if len(late) != 2 {
			t.Errorf("another receiver got %d messages after leases and delays were over", len(late))
		}
		for _, d := range late {
			if off := d.EnqueuedAt.Sub(now); off.Abs() > time.Minute {
				t.Errorf("%q was enqueued at %v", d.Body, d.EnqueuedAt)
			}
		}
		if err := q.Ack(t.Context(), []driver.Receipt{leased[0].Receipt}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("ack after the lease: %v", err)
		}
	})
	requests.expectNone(t, wrongNow)
}

// receiveOutside returns a function that receives after a while in real time, even when
// it is called in a bubble.
func receiveOutside(t *testing.T, q driver.Queue) (received func(after time.Duration) []driver.Delivery) {
	t.Helper()
	asked, answers := make(chan time.Duration), make(chan []driver.Delivery)
	go func() {
		for after := range asked {
			rest(t.Context(), after)
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
			if err != nil {
				t.Error(err)
			}
			answers <- got
		}
	}()
	t.Cleanup(func() { close(asked) })
	return func(after time.Duration) []driver.Delivery {
		asked <- after
		return <-answers
	}
}

// A requestLog keeps the requests that a proxy sees.
type requestLog struct {
	mu       sync.Mutex // guards requests
	requests [][]string
}

func (l *requestLog) take(args []string) redistest.Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, args)
	return redistest.Pass
}

// expectNone fails the test if a request has an argument that is a time close to when.
func (l *requestLog) expectNone(t *testing.T, when time.Time) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	scripts := 0
	for _, args := range l.requests {
		if args[0] == "EVALSHA" || args[0] == "EVAL" {
			scripts++
		}
		for i, arg := range args {
			if tellsTime(arg, when) {
				t.Errorf("argument %d of %.40q tells the client's time: %s", i, args, arg)
			}
		}
	}
	if scripts < 5 {
		t.Errorf("of %d requests, %d run a script: is that all?", len(l.requests), scripts)
	}
}

// tellsTime reports whether a text is a number that means a time within a day of when, in
// any unit.
func tellsTime(text string, when time.Time) bool {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	const day = 24 * 60 * 60
	for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
		if math.Abs(number/unit-float64(when.Unix())) < day {
			return true
		}
	}
	return false
}
