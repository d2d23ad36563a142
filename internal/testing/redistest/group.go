package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// startServers starts n servers concurrently. The lines of configuration may depend on the
// number of the server. If one fails, all are closed.
func startServers(ctx context.Context, s settings, n int, directives func(number int) []string) ([]*Server, error) {
	servers, errs := make([]*Server, n), make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() { servers[i], errs[i] = startServer(ctx, s, directives(i)...) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		closeServers(servers)
		return nil, err
	}
	return servers, nil
}

// closeServers closes the servers that were started.
func closeServers(servers []*Server) {
	var closing sync.WaitGroup
	for _, server := range servers {
		if server != nil {
			closing.Go(server.Close)
		}
	}
	closing.Wait()
}

// running returns the servers that are neither dead nor stopped.
func running(servers []*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool { return !s.Running() })
}

// replicatesFrom returns nil if s is a replica of primary and up to date with it.
func (s *Server) replicatesFrom(ctx context.Context, primary *Server) error {
	info, err := s.Info(ctx, "replication")
	if err != nil {
		return err
	}
	switch {
	case info["role"] != "slave":
		return fmt.Errorf("%s is a %s", s.Addr(), info["role"])
	case info["master_port"] != fmt.Sprint(primary.port):
		return fmt.Errorf("%s replicates from port %s, not from %s", s.Addr(), info["master_port"], primary.Addr())
	case info["master_link_status"] != "up":
		return fmt.Errorf("%s has no link to its primary", s.Addr())
	}
	return nil
}

// hasReplicas returns nil if s is a primary with n replicas that are online.
func (s *Server) hasReplicas(ctx context.Context, n int) error {
	info, err := s.Info(ctx, "replication")
	if err != nil {
		return err
	}
	if info["role"] != "master" {
		return fmt.Errorf("%s is a %s", s.Addr(), info["role"])
	}
	online := 0
	for i := range n {
		if replica := info[fmt.Sprintf("slave%d", i)]; containsField(replica, "state=online") {
			online++
		}
	}
	if online != n || info["connected_slaves"] != fmt.Sprint(n) {
		return fmt.Errorf("%s has %s replicas, %d of them online, not %d", s.Addr(), info["connected_slaves"], online, n)
	}
	return nil
}
