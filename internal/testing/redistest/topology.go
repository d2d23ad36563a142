package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A clusterNode is a line of CLUSTER NODES: one node's view of another, or of itself.
type clusterNode struct {
	id      string
	server  *Server
	flags   []string
	primary string // the id of the primary it follows
	epoch   int
	slots   []slotRange
}

// A slotRange is a range of slots, both ends included.
type slotRange struct{ first, last int }

func (n *clusterNode) has(flag string) bool { return slices.Contains(n.flags, flag) }

func (n *clusterNode) owns(slot int) bool {
	return slices.ContainsFunc(n.slots, func(r slotRange) bool { return r.first <= slot && slot <= r.last })
}

// view returns a node's view of all nodes.
func (c *ClusterGroup) view(ctx context.Context, node *Server) ([]clusterNode, error) {
	text, err := node.text(ctx, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	var nodes []clusterNode
	for line := range strings.Lines(text) {
		n, err := c.parseNode(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("redistest: CLUSTER NODES line %q: %w", line, err)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// parseNode reads the words of a line: id, address, flags, primary, two times,
// epoch, link and then slots.
func (c *ClusterGroup) parseNode(words []string) (clusterNode, error) {
	if len(words) < 8 {
		return clusterNode{}, fmt.Errorf("%d words", len(words))
	}
	n := clusterNode{id: words[0], flags: strings.Split(words[2], ","), primary: words[3]}
	address, _, _ := strings.Cut(words[1], "@")
	for _, server := range c.nodes {
		if server != nil && strings.HasSuffix(address, ":"+strconv.Itoa(server.port)) {
			n.server = server
		}
	}
	var err error
	if n.epoch, err = strconv.Atoi(words[6]); err != nil {
		return clusterNode{}, err
	}
	for _, word := range words[8:] {
		if strings.HasPrefix(word, "[") {
			continue // a slot that is moving
		}
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		var r slotRange
		if r.first, err = strconv.Atoi(first); err != nil {
			return clusterNode{}, err
		}
		if r.last, err = strconv.Atoi(last); err != nil {
			return clusterNode{}, err
		}
		n.slots = append(n.slots, r)
	}
	return n, nil
}

// selfViews returns each running node's view of itself: a node is the first to know of a
// change.
func (c *ClusterGroup) selfViews(ctx context.Context) ([]clusterNode, error) {
	var views []clusterNode
	for _, server := range running(c.nodes) {
		view, err := c.view(ctx, server)
		if err != nil {
			if !server.Running() {
				continue // it was killed just now
			}
			return nil, err
		}
		for _, n := range view {
			if n.has("myself") {
				n.server = server
				views = append(views, n)
			}
		}
	}
	return views, nil
}

// agree returns nil if these nodes see a healthy cluster, and agree with each owner of
// slots about it.
func (c *ClusterGroup) agree(ctx context.Context, nodes []*Server) error {
	views, err := c.selfViews(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		text, err := node.text(ctx, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if info := fields(text); info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(slots) {
			return fmt.Errorf("%s: cluster_state %s, %s slots ok", node.Addr(), info["cluster_state"], info["cluster_slots_ok"])
		}
		view, err := c.view(ctx, node)
		if err != nil {
			return err
		}
		for _, self := range views {
			i := slices.IndexFunc(view, func(n clusterNode) bool { return n.id == self.id })
			if i < 0 {
				return fmt.Errorf("%s does not know %s", node.Addr(), self.server.Addr())
			}
			if err := self.resembles(view[i]); err != nil {
				return fmt.Errorf("%s about %s: %w", node.Addr(), self.server.Addr(), err)
			}
		}
	}
	return nil
}

// resembles returns nil if another node's view of a node is its view of itself.
func (n *clusterNode) resembles(other clusterNode) error {
	for _, flag := range []string{"fail", "fail?", "handshake", "noaddr"} {
		if other.has(flag) {
			return fmt.Errorf("flag %s", flag)
		}
	}
	for _, role := range []string{"master", "slave"} {
		if n.has(role) != other.has(role) {
			return fmt.Errorf("flags %v here, %v there", n.flags, other.flags)
		}
	}
	if n.primary != other.primary || !slices.Equal(n.slots, other.slots) {
		return fmt.Errorf("primary %s and slots %v here, %s and %v there", n.primary, n.slots, other.primary, other.slots)
	}
	return nil
}

// replicated returns nil if every node without slots follows one that has slots, and both
// report the link as up.
func (c *ClusterGroup) replicated(ctx context.Context) error {
	views, err := c.selfViews(ctx)
	if err != nil {
		return err
	}
	replicas := make(map[string]int)
	for _, n := range views {
		if n.has("master") {
			continue
		}
		i := slices.IndexFunc(views, func(p clusterNode) bool { return p.id == n.primary })
		if i < 0 {
			return fmt.Errorf("%s follows %s, which does not run", n.server.Addr(), n.primary)
		}
		if err := n.server.replicatesFrom(ctx, views[i].server); err != nil {
			return err
		}
		replicas[n.primary]++
	}
	for _, n := range views {
		switch {
		case n.has("slave"):
		case len(n.slots) == 0:
			return fmt.Errorf("%s is a primary without slots", n.server.Addr())
		default:
			if err := n.server.hasReplicas(ctx, replicas[n.id]); err != nil {
				return err
			}
		}
	}
	return nil
}
