package redistest

import (
	"fmt"
	"strings"
)

// configuration returns the text of redis.conf. Its settings make servers start and find
// each other quickly.
func (s *Server) configuration(directives []string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("bind 127.0.0.1")
	line("dir %q", s.dir)
	line("daemonize no")
	if s.settings.tls == nil {
		line("port %d", s.port)
	} else {
		line("port 0")
		line("tls-port %d", s.port)
		line("tls-cert-file %q", s.path(certificateFile))
		line("tls-key-file %q", s.path(keyFile))
		line("tls-ca-cert-file %q", s.path(authorityFile))
		line("tls-auth-clients no")
		line("tls-replication yes")
	}
	if s.sentinel {
		line("protected-mode no")
	} else {
		line(`save ""`)
		line("appendonly no")
		line("repl-diskless-sync yes")
		line("repl-diskless-sync-delay 0") // by default it waits 5 s for more replicas
		line("repl-ping-replica-period 1")
		s.writeUsers(line)
	}
	for _, directive := range directives {
		if directive == "cluster-enabled yes" {
			line("cluster-port %d", s.busPort)
			if s.settings.tls != nil {
				line("tls-cluster yes")
			}
		}
		line("%s", directive)
	}
	if !s.sentinel {
		for _, directive := range s.settings.directives {
			line("%s", directive)
		}
	}
	return b.String()
}

// writeUsers writes the access control list, with the user for replication.
func (s *Server) writeUsers(line func(format string, args ...any)) {
	if len(s.settings.users) == 0 {
		return
	}
	line("user default off")
	for _, u := range s.settings.users {
		line("user %s on >%s %s", u.name, u.password, u.rules)
	}
	line("masteruser %s", s.settings.adminUser().name)
	line("masterauth %s", s.settings.adminUser().password)
}
