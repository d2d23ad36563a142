package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// primarySet is the name of the watched servers in the sentinels.
const primarySet = "mailbox"

// A SentinelGroup is a primary and its replicas, and three sentinels that promote a replica
// when the primary does not answer any more.
type SentinelGroup struct {
	settings  settings
	servers   []*Server
	sentinels []*Server
}

// Sentinel starts a primary with two replicas, or as many as Replicas says, and three
// sentinels. It returns when they all know each other, and closes them when the test ends.
func Sentinel(t testing.TB, opts ...Option) *SentinelGroup {
	t.Helper()
	group, err := startSentinel(t.Context(), opts)
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(group.Close)
	return group
}

func startSentinel(ctx context.Context, opts []Option) (*SentinelGroup, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	g := &SentinelGroup{settings: s}
	if err := g.start(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *SentinelGroup) start(ctx context.Context) error {
	primary, err := startServer(ctx, g.settings)
	if err != nil {
		return err
	}
	g.servers = []*Server{primary}
	replicas, err := startServers(ctx, g.settings, g.settings.replicas, func(int) []string {
		return []string{fmt.Sprintf("replicaof 127.0.0.1 %d", primary.port)}
	})
	if err != nil {
		return err
	}
	g.servers = append(g.servers, replicas...)
	// Sentinels ask a new primary for its replicas at once, and then not again for ten
	// seconds; so the replicas start first.
	err = until(ctx, "the replicas", func(ctx context.Context) error { return primary.hasReplicas(ctx, len(replicas)) })
	if err != nil {
		return err
	}
	g.sentinels, err = startServers(ctx, g.settings, 3, func(int) []string { return g.watching(primary) })
	if err != nil {
		return err
	}
	for _, sentinel := range g.sentinels {
		// Sentinels introduce themselves every two seconds unless a test hurries them, and
		// one that got no processor time for two seconds does nothing for thirty. Old ones
		// do not have this command, and are only slower.
		_, _ = sentinel.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "500",
			"ASK-PERIOD", "200", "PING-PERIOD", "200", "TILT-PERIOD", "1000")
	}
	return g.WaitHealthy(ctx)
}

// watching returns the configuration of a sentinel.
func (g *SentinelGroup) watching(primary *Server) []string {
	directives := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", primarySet, primary.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", primarySet, g.settings.nodeTimeout.Milliseconds()),
		// Also how long a sentinel waits before it tries a second time.
		fmt.Sprintf("sentinel failover-timeout %s %d", primarySet, 4*g.settings.nodeTimeout.Milliseconds()),
		fmt.Sprintf("sentinel parallel-syncs %s %d", primarySet, g.settings.replicas),
	}
	if u := g.settings.adminUser(); u.name != "" {
		directives = append(directives,
			fmt.Sprintf("sentinel auth-user %s %s", primarySet, u.name),
			fmt.Sprintf("sentinel auth-pass %s %s", primarySet, u.password))
	}
	return directives
}

// ClientOption returns the options of a client that finds the primary through the
// sentinels.
func (g *SentinelGroup) ClientOption() rueidis.ClientOption {
	var addresses []string
	for _, sentinel := range g.sentinels {
		addresses = append(addresses, sentinel.Addr())
	}
	option := g.settings.clientOption(addresses...)
	option.Sentinel.MasterSet = primarySet
	option.Sentinel.TLSConfig = option.TLSConfig
	return option
}

// Servers returns the data servers, in any role.
func (g *SentinelGroup) Servers() []*Server { return slices.Clone(g.servers) }

// Sentinels returns the sentinels.
func (g *SentinelGroup) Sentinels() []*Server { return slices.Clone(g.sentinels) }

// Primary returns the primary, in the view of all running sentinels. It is an error if they
// disagree, as they do during a failover.
func (g *SentinelGroup) Primary(ctx context.Context) (*Server, error) {
	var primary *Server
	for _, sentinel := range running(g.sentinels) {
		reply, err := sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", primarySet)
		if err != nil {
			return nil, err
		}
		found := g.at(reply)
		if found == nil || primary != nil && found != primary {
			return nil, fmt.Errorf("redistest: sentinel %s names %v as the primary", sentinel.Addr(), reply)
		}
		primary = found
	}
	if primary == nil {
		return nil, fmt.Errorf("redistest: no sentinel is running")
	}
	return primary, nil
}

// at returns the server with an address that a sentinel answered.
func (g *SentinelGroup) at(reply any) *Server {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return nil
	}
	address := net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1]))
	i := slices.IndexFunc(g.servers, func(s *Server) bool { return s.Addr() == address })
	if i < 0 {
		return nil
	}
	return g.servers[i]
}

// KillPrimary kills the primary and returns it. It does not wait for the
// sentinels to notice, see WaitFailover.
func (g *SentinelGroup) KillPrimary(ctx context.Context) (*Server, error) {
	primary, err := g.Primary(ctx)
	if err != nil {
		return nil, err
	}
	primary.Kill()
	return primary, nil
}

// WaitFailover returns the new primary once the sentinels agree on one other than old, and
// it accepts writes.
func (g *SentinelGroup) WaitFailover(ctx context.Context, old *Server) (*Server, error) {
	var primary *Server
	err := until(ctx, "a failover", func(ctx context.Context) error {
		var err error
		if primary, err = g.Primary(ctx); err != nil {
			return err
		}
		if primary == old {
			return fmt.Errorf("%s is still the primary", old.Addr())
		}
		return primary.hasRole(ctx, "master")
	})
	return primary, err
}

// WaitHealthy returns when the sentinels agree on a primary that is running,
// all other running servers replicate from it, and the sentinels know them and
// each other.
func (g *SentinelGroup) WaitHealthy(ctx context.Context) error {
	return until(ctx, "sentinels and servers to agree", func(ctx context.Context) error {
		primary, err := g.Primary(ctx)
		if err != nil {
			return err
		}
		replicas := slices.DeleteFunc(running(g.servers), func(s *Server) bool { return s == primary })
		if err := primary.hasReplicas(ctx, len(replicas)); err != nil {
			return err
		}
		for _, replica := range replicas {
			if err := replica.replicatesFrom(ctx, primary); err != nil {
				return err
			}
		}
		for _, sentinel := range running(g.sentinels) {
			if err := g.knowsAll(ctx, sentinel, len(replicas)); err != nil {
				return err
			}
		}
		return nil
	})
}

// knowsAll returns nil if a sentinel sees all other sentinels and replicas.
func (g *SentinelGroup) knowsAll(ctx context.Context, sentinel *Server, replicas int) error {
	reply, err := sentinel.Do(ctx, "SENTINEL", "MASTER", primarySet)
	if err != nil {
		return err
	}
	state := pairs(reply)
	if state["flags"] != "master" || state["num-other-sentinels"] != fmt.Sprint(len(g.sentinels)-1) {
		return fmt.Errorf("sentinel %s: flags %s, %s other sentinels", sentinel.Addr(), state["flags"], state["num-other-sentinels"])
	}
	reply, err = sentinel.Do(ctx, "SENTINEL", "REPLICAS", primarySet)
	if err != nil {
		return err
	}
	list, _ := reply.([]any)
	good := 0
	for _, element := range list {
		if replica := pairs(element); replica["flags"] == "slave" && replica["master-link-status"] == "ok" {
			good++
		}
	}
	if good != replicas {
		return fmt.Errorf("sentinel %s sees %d good replicas, not %d", sentinel.Addr(), good, replicas)
	}
	return nil
}

// hasRole returns nil if the server says that it is a "master" or a "slave".
func (s *Server) hasRole(ctx context.Context, role string) error {
	info, err := s.Info(ctx, "replication")
	if err != nil {
		return err
	}
	if info["role"] != role {
		return fmt.Errorf("%s is a %s", s.Addr(), info["role"])
	}
	return nil
}

// pairs reads a flat list of names and values.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	found := make(map[string]string, len(list)/2)
	for pair := range slices.Chunk(list, 2) {
		if len(pair) == 2 {
			found[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return found
}

// containsField reports whether a list like "ip=…,port=…,state=online" has a field.
func containsField(list, field string) bool {
	return slices.Contains(strings.Split(list, ","), field)
}

// Close kills all servers and sentinels. Closing twice is fine.
func (g *SentinelGroup) Close() {
	closeServers(g.sentinels)
	closeServers(g.servers)
}
