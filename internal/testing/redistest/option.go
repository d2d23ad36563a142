package redistest

import (
	"strings"
	"time"
)

// An Option changes how servers are started.
type Option func(*settings)

// settings are the values that options set.
type settings struct {
	directives []string
	users      []user
	tls        *certificates
	wantTLS    bool
	skewed     bool
	skew       time.Duration

	// These concern groups of servers only.
	primaries   int
	replicas    int
	nodeTimeout time.Duration
}

// A user is an entry of the access control list.
type user struct{ name, password, rules string }

// Fsync is when a server writes its append-only file through to the disk.
type Fsync string

// When to write through.
const (
	FsyncAlways   Fsync = "always"
	FsyncEverySec Fsync = "everysec"
	FsyncNo       Fsync = "no"
)

// AppendOnly turns the append-only file on, so that a server that is killed and restarted
// has its data again. Without it, all data is lost.
func AppendOnly(when Fsync) Option {
	return func(s *settings) {
		s.directives = append(s.directives, "appendonly yes", "appendfsync "+string(when))
	}
}

// Config adds a line to the configuration file: a directive and its arguments.
// It comes after those of this package, and wins.
func Config(directive string, arguments ...string) Option {
	return func(s *settings) {
		s.directives = append(s.directives, directive+" "+strings.Join(arguments, " "))
	}
}

// TLS makes servers accept only TLS, with certificates made for this test. ClientOption
// trusts them.
func TLS() Option { return func(s *settings) { s.wantTLS = true } }

// User adds a user to the access control list, with rules such as "~*", "+@all"
// or "-@dangerous". With at least one user there is no access without a
// password. ClientOption names the first user.
func User(name, password string, rules ...string) Option {
	return func(s *settings) {
		s.users = append(s.users, user{name, password, strings.Join(rules, " ")})
	}
}

// ClockSkew makes a server's wall clock wrong by d, ahead if it is positive. The monotonic
// clock is not changed. Server.SetClockSkew changes it later, if the server was started
// with ClockSkew, even with 0. It needs Linux and a C compiler.
func ClockSkew(d time.Duration) Option {
	return func(s *settings) { s.skewed, s.skew = true, d }
}

// Primaries sets how many primaries a cluster has, 3 by default.
func Primaries(n int) Option { return func(s *settings) { s.primaries = n } }

// Replicas sets how many replicas each primary has, 2 by default.
func Replicas(n int) Option { return func(s *settings) { s.replicas = n } }

// NodeTimeout sets how long a node may be silent before the others replace it:
// cluster-node-timeout, and down-after-milliseconds for sentinels. It is 30 s by default, so
// that a busy machine, on which servers are silent for a while, does not replace them.
func NodeTimeout(d time.Duration) Option { return func(s *settings) { s.nodeTimeout = d } }

// admin is the user of this package when there is an access control list.
const admin = "redistest"

func newSettings(opts []Option) (settings, error) {
	s := settings{primaries: 3, replicas: 2, nodeTimeout: 30 * time.Second}
	for _, opt := range opts {
		opt(&s)
	}
	if len(s.users) > 0 {
		s.users = append(s.users, user{admin, randomText(), "~* &* +@all"})
	}
	if s.wantTLS {
		var err error
		if s.tls, err = newCertificates(); err != nil {
			return settings{}, err
		}
	}
	return s, nil
}

// adminUser returns the user for this package's own connections, and for those between
// servers; empty without an access control list.
func (s *settings) adminUser() user {
	if len(s.users) == 0 {
		return user{}
	}
	return s.users[len(s.users)-1]
}
