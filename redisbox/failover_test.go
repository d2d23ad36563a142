package redisbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
)

// These tests take servers of a cluster down in every way a single one can
// fail, while producers and consumers are at work, and look for what got lost.

// nodeTimeout is how long a server may be silent: so long that only those are
// replaced that a test means, although the machine is busy.
const nodeTimeout = 2 * time.Second

// maxReorderDepth is how far order may suffer in a shard that fails over.
const maxReorderDepth = 32

// replicasEach is how many replicas every primary of a cluster has.
const replicasEach = 2

// failovers is how often each test fails something: 3 times, or as often as
// MAILBOX_FAILOVERS says.
func failovers(t *testing.T) int {
	t.Helper()
	text := os.Getenv("MAILBOX_FAILOVERS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("MAILBOX_FAILOVERS is %q, not a number of failovers", text)
	}
	return n
}

// A calamity befalls the primary that serves some key of the queue. It returns
// when the cluster is whole again.
type calamity func(ctx context.Context, cluster *redistest.ClusterGroup, victim *redistest.Server, key string) error

var calamities = []struct {
	name   string
	strike calamity
}{
	{"the primary is killed", kill},
	{"the primary hangs for longer than the node timeout", hang},
	{"a replica takes over by hand", takeOver},
	{"a slot moves to another primary", moveSlot},
}

func kill(ctx context.Context, cluster *redistest.ClusterGroup, victim *redistest.Server, _ string) error {
	victim.Kill()
	if _, err := cluster.WaitFailover(ctx, victim); err != nil {
		return err
	}
	return victim.Restart(ctx)
}

func hang(ctx context.Context, cluster *redistest.ClusterGroup, victim *redistest.Server, _ string) error {
	victim.Stop()
	// It does whatever it was asked when it wakes up, and only then hears that
	// it is not the primary any more.
	defer victim.Continue()
	_, err := cluster.WaitFailover(ctx, victim)
	return err
}

func takeOver(ctx context.Context, cluster *redistest.ClusterGroup, victim *redistest.Server, _ string) error {
	replicas, err := cluster.ReplicasOf(ctx, victim)
	if err != nil {
		return err
	}
	return cluster.Failover(ctx, replicas[rand.IntN(len(replicas))])
}

func moveSlot(ctx context.Context, cluster *redistest.ClusterGroup, victim *redistest.Server, key string) error {
	primaries, err := cluster.Primaries(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(primaries, func(s *redistest.Server) bool { return s == victim })
	between := func() { rest(ctx, 5*time.Millisecond) }
	return cluster.MoveSlot(ctx, redistest.Slot(key), victim, others[rand.IntN(len(others))], between)
}

// stageFailures lets a calamity strike n times, each time where another key of
// the queue is.
func stageFailures(t *testing.T, cluster *redistest.ClusterGroup, load *failoverLoad, queue string, strike calamity, n int) {
	t.Helper()
	for range n {
		load.waitFor(200)
		ctx, cancel := context.WithTimeout(t.Context(), loadPace)
		// To take a server from which nobody wants anything would prove little.
		key := someKey(ctx, t, cluster, queue, "data")
		victim, err := cluster.PrimaryOf(ctx, key)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		load.crash(func(ctx context.Context) error {
			if err := strike(ctx, cluster, victim, key); err != nil {
				return err
			}
			return cluster.WaitHealthy(ctx)
		})
	}
	load.waitFor(200)
}

// someKey returns a key of the queue with this name, a random one, as soon as there
// is one.
func someKey(ctx context.Context, t *testing.T, cluster *redistest.ClusterGroup, queue, name string) string {
	t.Helper()
	for ctx.Err() == nil {
		primaries, err := cluster.Primaries(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, primary := range primaries {
			reply, err := primary.Do(ctx, "KEYS", "*"+queue+"}:"+name)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range reply.([]any) {
				keys = append(keys, fmt.Sprint(key))
			}
		}
		if len(keys) > 0 {
			return keys[rand.IntN(len(keys))]
		}
		rest(ctx, time.Millisecond)
	}
	t.Fatalf("there is no key %q of %q", name, queue)
	return ""
}

// All replicas are asked to confirm, because any of them may be the next primary: one
// that is behind can be elected on a busy machine, where the others' messages about
// how far they are come late.
func TestFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	cluster := failoverCluster(t)
	for _, c := range calamities {
		t.Run(c.name, func(t *testing.T) {
			queue := redistest.Prefix(t) + "failover"
			load := startLoad(t, openBackend(t, cluster.ClientOption(), &redisbox.Options{Replicas: replicasEach}), queue)
			stageFailures(t, cluster, load, queue, c.strike, failovers(t))
			expectNothingLost(t, load)
		})
	}
}

// expectNothingLost ends a load, and holds its history against what is promised
// of failovers.
func expectNothingLost(t *testing.T, load *failoverLoad) {
	t.Helper()
	report, final := load.finish()
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.ReorderDepth > maxReorderDepth {
		t.Errorf("reorder depth %d, at most %d is promised", report.ReorderDepth, maxReorderDepth)
	}
	if final.Stats.Waiting() != 0 {
		t.Errorf("left over: %+v", final.Stats)
	}
	if report.Deliveries < report.Messages {
		t.Errorf("%d deliveries of %d messages", report.Deliveries, report.Messages)
	}
}

// Sentinels leave a primary that hung alone for a while when it is back, and
// clients that are still connected go on talking to it. Nothing that they are
// told then is a promise, because no replica confirms it. They may promote a
// replica that has confirmed nothing, so all are asked to.
func TestSentinelFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t, redistest.AppendOnly(redistest.FsyncEverySec), redistest.NodeTimeout(nodeTimeout))
	option := group.ClientOption()
	option.Sentinel.TopologyRefreshInterval = time.Second
	for _, c := range []struct {
		name   string
		strike func(*redistest.Server)
		heal   func(context.Context, *redistest.Server) error
	}{
		{"the primary is killed", (*redistest.Server).Kill, func(ctx context.Context, s *redistest.Server) error { return s.Restart(ctx) }},
		{"the primary hangs", (*redistest.Server).Stop, func(_ context.Context, s *redistest.Server) error { s.Continue(); return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			load := startLoad(t, openBackend(t, option, &redisbox.Options{Replicas: 2}), redistest.Prefix(t)+"failover")
			for range max(failovers(t)/3, 1) { // the tests above do most of the work
				load.waitFor(200)
				load.crash(func(ctx context.Context) error {
					primary, err := group.Primary(ctx)
					if err != nil {
						return err
					}
					c.strike(primary)
					_, failed := group.WaitFailover(ctx, primary)
					return errors.Join(failed, c.heal(ctx, primary), group.WaitHealthy(ctx))
				})
			}
			load.waitFor(200)
			expectNothingLost(t, load)
		})
	}
}

// The harness is worth something only if it finds loss where there is some: a
// primary that hangs and wakes up acknowledges what it got meanwhile, and then
// throws it away to become a replica.
func TestHangWithoutReplicasOptionLosesMessages(t *testing.T) {
	t.Parallel()
	cluster := failoverCluster(t)
	const attempts = 10
	for attempt := range attempts {
		queue := redistest.Prefix(t) + "failover"
		load := startLoad(t, openBackend(t, cluster.ClientOption(), nil), queue)
		stageFailures(t, cluster, load, queue, hang, 1)
		report, _ := load.finish()
		if lost := lostMessages(report); lost > 0 {
			t.Logf("attempt %d lost %d acknowledged messages", attempt+1, lost)
			return
		}
	}
	t.Errorf("in %d attempts nothing was lost: either Redis has become safer, or the tests above prove nothing", attempts)
}

// lostMessages counts the messages that were acknowledged and are gone.
func lostMessages(report drivertest.Report) int {
	lost := 0
	for _, v := range report.Violations {
		if v.Rule == "SND-1" {
			lost++
		}
	}
	return lost
}

// failoverCluster starts the cluster that a test takes apart.
func failoverCluster(t *testing.T) *redistest.ClusterGroup {
	t.Helper()
	return redistest.Cluster(t, redistest.Replicas(replicasEach), redistest.AppendOnly(redistest.FsyncEverySec), redistest.NodeTimeout(nodeTimeout))
}

// openBackend opens a backend that lives as long as the test.
func openBackend(t *testing.T, option rueidis.ClientOption, options *redisbox.Options) *redisbox.Backend {
	t.Helper()
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	backend, err := redisbox.Open(t.Context(), client, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return backend
}
