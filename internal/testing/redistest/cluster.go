package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A ClusterGroup is a Redis Cluster: primaries that share the slots, each with
// replicas.
type ClusterGroup struct {
	settings settings
	nodes    []*Server
}

// Cluster starts a cluster of 3 primaries with 2 replicas each, or as many as Primaries and
// Replicas say. It returns when all nodes agree and all replicas are up to date, and closes
// them when the test ends.
func Cluster(t testing.TB, opts ...Option) *ClusterGroup {
	t.Helper()
	group, err := startCluster(t.Context(), opts)
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(group.Close)
	return group
}

func startCluster(ctx context.Context, opts []Option) (*ClusterGroup, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := &ClusterGroup{settings: s}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// start does the same as redis-cli --cluster create, without fixed waits.
func (c *ClusterGroup) start(ctx context.Context) error {
	var err error
	primaries := c.settings.primaries
	c.nodes, err = startServers(ctx, c.settings, primaries*(1+c.settings.replicas), func(int) []string {
		return []string{
			"cluster-enabled yes",
			fmt.Sprintf("cluster-node-timeout %d", c.settings.nodeTimeout.Milliseconds()),
			"cluster-allow-replica-migration no", // each primary keeps its replicas
		}
	})
	if err != nil {
		return err
	}
	for i, node := range c.nodes {
		// Different epochs need no election.
		if _, err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i, primary := range c.nodes[:primaries] {
		first, last := i*slots/primaries, (i+1)*slots/primaries-1
		if _, err := primary.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
			return err
		}
	}
	if err := c.introduce(ctx); err != nil {
		return err
	}
	for i, replica := range c.nodes[primaries:] {
		id, err := c.nodes[i%primaries].text(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		// It cannot follow a node that it does not know yet.
		err = until(ctx, "a replica", func(ctx context.Context) error {
			_, err := replica.Do(ctx, "CLUSTER", "REPLICATE", id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.WaitHealthy(ctx)
}

// introduce makes every node meet every other: gossip would do it too, but takes longer. A node
// forgets another that takes too long to shake hands, so they may have to meet again.
func (c *ClusterGroup) introduce(ctx context.Context) error {
	return until(ctx, "nodes to meet", func(ctx context.Context) error {
		var missing error
		for i, node := range c.nodes {
			view, err := c.view(ctx, node)
			if err != nil {
				return err
			}
			if len(view) != len(c.nodes) || slices.ContainsFunc(view, func(n clusterNode) bool { return n.has("handshake") }) {
				missing = fmt.Errorf("%s knows %d of %d nodes", node.Addr(), len(view), len(c.nodes))
			}
			for _, other := range c.nodes[:i] {
				if slices.ContainsFunc(view, func(n clusterNode) bool { return n.server == other }) {
					continue
				}
				_, err := node.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.busPort))
				if err != nil {
					return err
				}
			}
		}
		return missing
	})
}

// ClientOption returns the options of a client of the cluster.
func (c *ClusterGroup) ClientOption() rueidis.ClientOption {
	var addresses []string
	for _, node := range c.nodes {
		addresses = append(addresses, node.Addr())
	}
	return c.settings.clientOption(addresses...)
}

// Nodes returns all servers of the cluster, in any role.
func (c *ClusterGroup) Nodes() []*Server { return slices.Clone(c.nodes) }

// Primaries returns the running servers that own slots.
func (c *ClusterGroup) Primaries(ctx context.Context) ([]*Server, error) {
	nodes, err := c.selfViews(ctx)
	if err != nil {
		return nil, err
	}
	var primaries []*Server
	for _, n := range nodes {
		if n.has("master") && len(n.slots) > 0 {
			primaries = append(primaries, n.server)
		}
	}
	return primaries, nil
}

// PrimaryOf returns the running server that owns the slot of a key.
func (c *ClusterGroup) PrimaryOf(ctx context.Context, key string) (*Server, error) {
	return c.PrimaryOfSlot(ctx, Slot(key))
}

// PrimaryOfSlot returns the running server that owns a slot. Of several that
// claim it, after a failover, it is the one that was elected last.
func (c *ClusterGroup) PrimaryOfSlot(ctx context.Context, slot int) (*Server, error) {
	nodes, err := c.selfViews(ctx)
	if err != nil {
		return nil, err
	}
	var owner clusterNode
	for _, n := range nodes {
		if n.has("master") && n.owns(slot) && (owner.server == nil || n.epoch > owner.epoch) {
			owner = n
		}
	}
	if owner.server == nil {
		return nil, fmt.Errorf("redistest: no running server owns slot %d", slot)
	}
	return owner.server, nil
}

// ReplicasOf returns the running replicas of a primary, which need not be running.
func (c *ClusterGroup) ReplicasOf(ctx context.Context, primary *Server) ([]*Server, error) {
	nodes, err := c.selfViews(ctx)
	if err != nil {
		return nil, err
	}
	var replicas []*Server
	for _, n := range nodes {
		view, err := c.view(ctx, n.server)
		if err != nil {
			return nil, err
		}
		for _, other := range view {
			if n.has("slave") && other.server == primary && other.id == n.primary {
				replicas = append(replicas, n.server)
			}
		}
	}
	return replicas, nil
}

// Failover makes a replica take over from its primary, which must be running and hands
// over in order. It returns when the replica is the primary and the old one has become its
// replica.
func (c *ClusterGroup) Failover(ctx context.Context, replica *Server) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before, err := replica.Info(ctx, "replication")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(c.nodes, func(s *Server) bool { return strconv.Itoa(s.port) == before["master_port"] })
	if i < 0 {
		return fmt.Errorf("redistest: %s is not a replica", replica.Addr())
	}
	return until(ctx, "a failover by hand", func(ctx context.Context) error {
		if replica.hasRole(ctx, "slave") == nil {
			// The other primaries do not vote twice within twice the node timeout, and
			// servers give up after 5 s, so the command may have to be repeated. An answer other than OK means that a
			// failover is under way.
			_, err := replica.Do(ctx, "CLUSTER", "FAILOVER")
			if refused := ReplyError(""); err != nil && !errors.As(err, &refused) {
				return err
			}
		}
		wait, cancel := context.WithTimeout(ctx, min(2*c.settings.nodeTimeout, 10*time.Second))
		defer cancel()
		return until(wait, "the old primary to follow", func(ctx context.Context) error {
			if err := replica.hasRole(ctx, "master"); err != nil {
				return err
			}
			return c.nodes[i].replicatesFrom(ctx, replica)
		})
	})
}

// WaitFailover returns the server that has taken the slots of old, which was
// killed or stopped, once all running nodes agree.
func (c *ClusterGroup) WaitFailover(ctx context.Context, old *Server) (*Server, error) {
	slot, err := c.lastSlotOf(ctx, old)
	if err != nil {
		return nil, err
	}
	var primary *Server
	err = until(ctx, "a failover", func(ctx context.Context) error {
		if primary, err = c.PrimaryOfSlot(ctx, slot); err != nil {
			return err
		}
		return c.agree(ctx, running(c.nodes))
	})
	return primary, err
}

// lastSlotOf returns a slot that old owned, as far as the other nodes know.
func (c *ClusterGroup) lastSlotOf(ctx context.Context, old *Server) (int, error) {
	for _, node := range running(c.nodes) {
		view, err := c.view(ctx, node)
		if err != nil {
			return 0, err
		}
		for _, n := range view {
			if n.server == old && len(n.slots) > 0 {
				return n.slots[0].first, nil
			}
		}
	}
	return 0, fmt.Errorf("redistest: no running node knows a slot of %s", old.Addr())
}

// WaitHealthy returns when every node runs and sees a healthy cluster, all see the same
// owners, and every replica is up to date with its primary.
func (c *ClusterGroup) WaitHealthy(ctx context.Context) error {
	return until(ctx, "the cluster to be whole", func(ctx context.Context) error {
		for _, node := range c.nodes {
			if !node.Running() {
				return fmt.Errorf("%s does not run", node.Addr())
			}
		}
		if err := c.agree(ctx, c.nodes); err != nil {
			return err
		}
		return c.replicated(ctx)
	})
}

// Close kills all nodes. Closing twice is fine.
func (c *ClusterGroup) Close() { closeServers(c.nodes) }
