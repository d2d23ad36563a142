package redistest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// soon returns a context for operations that take seconds, on a busy machine minutes.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func pids(servers ...*redistest.Server) []int {
	var found []int
	for _, server := range servers {
		found = append(found, server.PID())
	}
	return found
}

// must fails the test if there is an error, and returns the value otherwise.
func must[T any](t *testing.T) func(value T, err error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// setOnReplicas sets a value that survives the loss of a primary.
func setOnReplicas(ctx context.Context, t *testing.T, client rueidis.Client, key, value string) {
	t.Helper()
	err := client.Dedicated(func(c rueidis.DedicatedClient) error {
		replies := c.DoMulti(ctx, c.B().Set().Key(key).Value(value).Build(), c.B().Wait().Numreplicas(2).Timeout(1000).Build())
		if err := replies[0].Error(); err != nil {
			return err
		}
		if n, err := replies[1].AsInt64(); err != nil || n != 2 {
			return fmt.Errorf("%d replicas have it: %w", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSentinelsReplaceKilledPrimary(t *testing.T) {
	var started []int
	t.Run("failover", func(t *testing.T) {
		ctx := soon(t)
		group := redistest.Sentinel(t, redistest.NodeTimeout(time.Second))
		started = pids(append(group.Servers(), group.Sentinels()...)...)
		client := connect(t, group.ClientOption())
		setOnReplicas(ctx, t, client, "k", "v")
		old := must[*redistest.Server](t)(group.KillPrimary(ctx))
		primary := must[*redistest.Server](t)(group.WaitFailover(ctx, old))
		if primary == old || !primary.Running() {
			t.Errorf("%s took over from %s", primary.Addr(), old.Addr())
		}
		if err := old.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		started = append(started, old.PID())
		if err := group.WaitHealthy(ctx); err != nil {
			t.Fatal(err)
		}
		if now := must[*redistest.Server](t)(group.Primary(ctx)); now != primary {
			t.Errorf("%s is the primary again", now.Addr())
		}
		if value, err := get(ctx, client, "k"); err != nil || value != "v" {
			t.Errorf("after the failover the client got %q, %v", value, err)
		}
	})
	expectGone(t, started...)
}

func TestSentinelsWithPasswordsAndTLS(t *testing.T) {
	ctx := soon(t)
	group := redistest.Sentinel(t, redistest.TLS(), redistest.User("u", "p", "~*", "&*", "+@all"), redistest.Replicas(1))
	if err := set(ctx, connect(t, group.ClientOption()), "k", "v"); err != nil {
		t.Error(err)
	}
}

func TestSlotMatchesSpecification(t *testing.T) {
	for key, want := range map[string]int{
		"123456789": 0x31C3, "": 0, "foo{bar}baz": redistest.Slot("bar"), "foo{}{bar}": 8363,
		"{user1000}.following": redistest.Slot("user1000"), "foo{{bar}}zap": redistest.Slot("{bar"),
	} {
		if got := redistest.Slot(key); got != want {
			t.Errorf("%q is in slot %d, not %d", key, got, want)
		}
	}
}

func TestClusterSurvivesFailoversAndMoves(t *testing.T) {
	var started []int
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.Cluster(t, redistest.AppendOnly(redistest.FsyncEverySec), redistest.NodeTimeout(time.Second))
		started = pids(cluster.Nodes()...)
		if len(started) != 9 {
			t.Errorf("%d nodes", len(started))
		}
		t.Run("kill", func(t *testing.T) { testKill(t, cluster) })
		t.Run("stop", func(t *testing.T) { testStop(t, cluster) })
		t.Run("by hand", func(t *testing.T) { testByHand(t, cluster) })
		t.Run("move a slot", func(t *testing.T) { testMove(t, cluster) })
		started = append(started, pids(cluster.Nodes()...)...)
	})
	expectGone(t, started...)
}

// expectPrimaries checks that there are three, each with two replicas.
func expectPrimaries(t *testing.T, cluster *redistest.ClusterGroup) {
	t.Helper()
	ctx := soon(t)
	if err := cluster.WaitHealthy(ctx); err != nil {
		t.Fatal(err)
	}
	primaries := must[[]*redistest.Server](t)(cluster.Primaries(ctx))
	if len(primaries) != 3 {
		t.Errorf("%d primaries", len(primaries))
	}
	for _, primary := range primaries {
		if replicas := must[[]*redistest.Server](t)(cluster.ReplicasOf(ctx, primary)); len(replicas) != 2 {
			t.Errorf("%s has %d replicas", primary.Addr(), len(replicas))
		}
	}
}

func testKill(t *testing.T, cluster *redistest.ClusterGroup) {
	ctx := soon(t)
	old := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "a"))
	replicas := must[[]*redistest.Server](t)(cluster.ReplicasOf(ctx, old))
	old.Kill()
	primary := must[*redistest.Server](t)(cluster.WaitFailover(ctx, old))
	if !slices.Contains(replicas, primary) {
		t.Errorf("%s took over, and was not a replica of %s", primary.Addr(), old.Addr())
	}
	if err := old.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	expectPrimaries(t, cluster)
	if now := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "a")); now != primary {
		t.Errorf("%s is the primary again", now.Addr())
	}
}

func testStop(t *testing.T, cluster *redistest.ClusterGroup) {
	ctx := soon(t)
	old := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "a"))
	old.Stop()
	primary := must[*redistest.Server](t)(cluster.WaitFailover(ctx, old))
	old.Continue()
	expectPrimaries(t, cluster)
	if now := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "a")); now != primary || now == old {
		t.Errorf("%s is the primary, after %s and %s", now.Addr(), old.Addr(), primary.Addr())
	}
}

func testByHand(t *testing.T, cluster *redistest.ClusterGroup) {
	ctx := soon(t)
	old := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "a"))
	replica := must[[]*redistest.Server](t)(cluster.ReplicasOf(ctx, old))[0]
	if err := cluster.Failover(ctx, replica); err != nil {
		t.Fatal(err)
	}
	if now := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "a")); now != replica {
		t.Errorf("%s is the primary, not %s", now.Addr(), replica.Addr())
	}
	expectPrimaries(t, cluster)
}

func testMove(t *testing.T, cluster *redistest.ClusterGroup) {
	ctx := soon(t)
	client := connect(t, cluster.ClientOption())
	const keys = 20
	for i := range keys {
		if err := set(ctx, client, fmt.Sprintf("{move}%d", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	slot := redistest.Slot("{move}")
	from := must[*redistest.Server](t)(cluster.PrimaryOfSlot(ctx, slot))
	primaries := must[[]*redistest.Server](t)(cluster.Primaries(ctx))
	to := primaries[0]
	if to == from {
		to = primaries[1]
	}
	moved := 0
	err := cluster.MoveSlot(ctx, slot, from, to, func() {
		moved++
		for i := range keys { // wherever it is
			if value, err := get(ctx, client, fmt.Sprintf("{move}%d", i)); err != nil || value != "v" {
				t.Errorf("key %d on the way: %q, %v", i, value, err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if moved != keys {
		t.Errorf("%d of %d keys moved", moved, keys)
	}
	if owner := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "{move}")); owner != to {
		t.Errorf("%s owns the slot, not %s", owner.Addr(), to.Addr())
	}
	expectPrimaries(t, cluster)
	for i := range keys {
		if value, err := get(ctx, client, fmt.Sprintf("{move}%d", i)); err != nil || value != "v" {
			t.Errorf("key %d afterwards: %q, %v", i, value, err)
		}
	}
}

func TestClusterWithPasswordsAndTLSMovesSlots(t *testing.T) {
	ctx := soon(t)
	cluster := redistest.Cluster(t, redistest.TLS(), redistest.User("u", "p", "~*", "&*", "+@all"),
		redistest.Primaries(3), redistest.Replicas(0))
	client := connect(t, cluster.ClientOption())
	if err := set(ctx, client, "{k}", "v"); err != nil {
		t.Fatal(err)
	}
	from := must[*redistest.Server](t)(cluster.PrimaryOf(ctx, "{k}"))
	primaries := must[[]*redistest.Server](t)(cluster.Primaries(ctx))
	to := primaries[(slices.Index(primaries, from)+1)%len(primaries)]
	if err := cluster.MoveSlot(ctx, redistest.Slot("{k}"), from, to, nil); err != nil {
		t.Fatal(err)
	}
	if value, err := get(ctx, client, "{k}"); err != nil || value != "v" {
		t.Errorf("after the move: %q, %v", value, err)
	}
}

func TestSharedServerIsSameForAllTests(t *testing.T) {
	server, sentinel, cluster := redistest.SharedServer(t), redistest.SharedSentinel(t), redistest.SharedCluster(t)
	if redistest.SharedServer(t) != server || redistest.SharedSentinel(t) != sentinel || redistest.SharedCluster(t) != cluster {
		t.Error("something shared was started twice")
	}
	if prefix := redistest.Prefix(t); prefix == redistest.Prefix(t) {
		t.Error("two prefixes are the same")
	}
}
