package redisbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
)

// These tests make servers of a cluster fail in every way a single one can fail, while
// producers and consumers run, and look for lost messages.

// nodeTimeout is how long a server may be silent: so long that on a busy machine only
// the servers that a test makes fail are replaced.
const nodeTimeout = 2 * time.Second

// maxReorderDepth is how far order may be lost in a shard that fails over.
const maxReorderDepth = 32

// replicasEach is how many replicas every primary of a cluster has.
const replicasEach = 2

// A failure makes target fail, the primary that serves a key of the queue. It returns
// when the cluster has recovered.
type failure func(ctx context.Context, cluster *redistest.ClusterGroup, target *redistest.Server, key string) error

var failures = []struct {
	name  string
	cause failure
}{
	{"the primary is killed", kill},
	{"the primary hangs for longer than the node timeout", hang},
	{"a replica takes over by hand", takeOver},
	{"a slot moves to another primary", moveSlot},
}

func kill(ctx context.Context, cluster *redistest.ClusterGroup, target *redistest.Server, _ string) error {
	target.Kill()
	if _, err := cluster.WaitFailover(ctx, target); err != nil {
		return err
	}
	return target.Restart(ctx)
}

func hang(ctx context.Context, cluster *redistest.ClusterGroup, target *redistest.Server, _ string) error {
	target.Stop()
	// When it continues, it executes the requests it got, and learns only then that it
	// is not the primary any more.
	defer target.Continue()
	_, err := cluster.WaitFailover(ctx, target)
	return err
}

func takeOver(ctx context.Context, cluster *redistest.ClusterGroup, target *redistest.Server, _ string) error {
	replicas, err := cluster.ReplicasOf(ctx, target)
	if err != nil {
		return err
	}
	return cluster.Failover(ctx, replicas[rand.IntN(len(replicas))])
}

func moveSlot(ctx context.Context, cluster *redistest.ClusterGroup, target *redistest.Server, key string) error {
	primaries, err := cluster.Primaries(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(primaries, func(s *redistest.Server) bool { return s == target })
	between := func() { rest(ctx, 5*time.Millisecond) }
	return cluster.MoveSlot(ctx, redistest.Slot(key), target, others[rand.IntN(len(others))], between)
}

// causeFailures causes n failures, each where another key of the queue is.
func causeFailures(t *testing.T, cluster *redistest.ClusterGroup, load *failoverLoad, queue string, cause failure, n int) {
	t.Helper()
	for range n {
		load.waitFor(200)
		ctx, cancel := context.WithTimeout(t.Context(), loadPace)
		// A server without messages of the queue would prove little.
		key := someKey(ctx, t, cluster, queue, "data")
		target, err := cluster.PrimaryOf(ctx, key)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		load.crash(func(ctx context.Context) error {
			if err := cause(ctx, cluster, target, key); err != nil {
				return err
			}
			return cluster.WaitHealthy(ctx)
		})
	}
	load.waitFor(200)
}

// someKey returns a random key of the queue with this name, as soon as there is one.
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

// All replicas have to confirm, because any of them may be the next primary: on a busy
// machine one that is behind can be elected, because the others learn its offset late.
func TestFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	cluster := failoverCluster(t)
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			queue := redistest.Prefix(t) + "failover"
			load := startLoad(t, openBackend(t, cluster.ClientOption(), &redisbox.Options{Replicas: replicasEach}), queue)
			causeFailures(t, cluster, load, queue, c.cause, volume.Count(t, 3, 200))
			expectNothingLost(t, load)
		})
	}
}

// expectNothingLost ends a load, and checks its history against the guarantees of
// failovers.
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

// When a primary that hung continues, sentinels leave it alone for a while, and clients
// that are still connected use it. Its answers then count for nothing, because no replica
// confirms them. Sentinels may promote a replica that has confirmed nothing, so all
// replicas have to confirm.
func TestSentinelFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t, redistest.AppendOnly(redistest.FsyncEverySec), redistest.NodeTimeout(nodeTimeout))
	option := group.ClientOption()
	option.Sentinel.TopologyRefreshInterval = time.Second
	for _, c := range []struct {
		name  string
		cause func(*redistest.Server)
		heal  func(context.Context, *redistest.Server) error
	}{
		{"the primary is killed", (*redistest.Server).Kill, func(ctx context.Context, s *redistest.Server) error { return s.Restart(ctx) }},
		{"the primary hangs", (*redistest.Server).Stop, func(_ context.Context, s *redistest.Server) error { s.Continue(); return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			load := startLoad(t, openBackend(t, option, &redisbox.Options{Replicas: 2}), redistest.Prefix(t)+"failover")
			for range volume.Count(t, 1, 200) { // every day, the tests above do most of the work
				load.waitFor(200)
				load.crash(func(ctx context.Context) error {
					primary, err := group.Primary(ctx)
					if err != nil {
						return err
					}
					c.cause(primary)
					_, failed := group.WaitFailover(ctx, primary)
					return errors.Join(failed, c.heal(ctx, primary), group.WaitHealthy(ctx))
				})
			}
			load.waitFor(200)
			expectNothingLost(t, load)
		})
	}
}

// The harness must find lost messages where there are some: a primary that hangs and
// continues acknowledges the messages it got meanwhile, and then drops them to become a
// replica.
func TestHangWithoutReplicasOptionLosesMessages(t *testing.T) {
	t.Parallel()
	cluster := failoverCluster(t)
	const attempts = 10
	for attempt := range attempts {
		queue := redistest.Prefix(t) + "failover"
		load := startLoad(t, openBackend(t, cluster.ClientOption(), nil), queue)
		causeFailures(t, cluster, load, queue, hang, 1)
		report, _ := load.finish()
		if lost := lostMessages(report); lost > 0 {
			t.Logf("attempt %d lost %d acknowledged messages", attempt+1, lost)
			return
		}
	}
	t.Errorf("in %d attempts no message was lost: either Redis has become safer, or the tests above prove nothing", attempts)
}

// lostMessages counts the messages that were acknowledged and are gone.
func lostMessages(report history.Report) int {
	lost := 0
	for _, v := range report.Violations {
		if v.Rule == "SND-1" {
			lost++
		}
	}
	return lost
}

// failoverCluster starts the cluster that a test makes fail.
func failoverCluster(t *testing.T) *redistest.ClusterGroup {
	t.Helper()
	return redistest.Cluster(t, redistest.Replicas(replicasEach), redistest.AppendOnly(redistest.FsyncEverySec), redistest.NodeTimeout(nodeTimeout))
}

// openBackend opens a backend until the test ends.
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
