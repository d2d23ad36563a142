package server

import (
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/maxhold"
)

// The profiles.
const (
	// Micronode is one process with its messages in memory.
	Micronode = "micronode"
	// Macronode is durable.
	Macronode = "macronode"
)

// Config is the configuration of a daemon. The zero value of a field means its
// default, which may depend on the profile; see Defaults. driver.Off turns a limit off
// where setting.CanBeOff allows it. Settings lists the keys, flags and variables of the
// fields.
type Config struct {
	// Profile is Micronode or Macronode.
	Profile string
	// Amnesia keeps the daemon from writing any file. Nil means the default of the
	// profile.
	Amnesia *bool
	// Backend is where messages are kept: "memory:", "disk:" and a directory, or
	// a URL of Redis or PostgreSQL. Empty means memory on a micronode, and DataDir on a
	// macronode.
	Backend string
	// DataDir is the directory for keys, revocations, the operator's token, and for
	// messages if Backend is empty.
	DataDir string
	// DiskReserve is how many bytes of the volume of disk: stay free; 0 means 5 % of it,
	// at least 16 MiB and at most 1 GiB. With less free space sends are refused, and
	// settling still works.
	DiskReserve int
	// Audience is the name of this service, for tokens with an audience.
	Audience string

	// Listen is the address for HTTP, and ListenOAP the one for OAP/1 frames. Port 0
	// means any free port, and "off" means no listener.
	Listen    string
	ListenOAP string
	// ListenMetrics is a further address on which only health, readiness and
	// metrics are served; empty means none.
	ListenMetrics string
	// ListenSQS is a further address for clients of Amazon SQS; empty means none.
	// Those that sign are served on Listen too.
	ListenSQS string
	// SQS configures the surface for clients of Amazon SQS.
	SQS SQSConfig
	// Socket is the path of a unix socket for HTTP; empty means none.
	Socket string
	// ConsolePath is the path of the console on Listen and Socket, which begins and ends with
	// a slash, or "off".
	ConsolePath string
	// InsecureListen allows plaintext on addresses that are not of this machine.
	InsecureListen bool
	// AllowedHosts are further names, separated by commas, by which clients without a
	// token may reach plaintext listeners. Addresses, localhost, names without a dot,
	// names below "internal", and the names in listen addresses are always allowed.
	// "*.example.com" allows all names below example.com, and "*" every name.
	AllowedHosts string

	// TLSCert and TLSKey are files; without them there is no TLS. With TLSClientCA,
	// clients must present a certificate of these authorities.
	TLSCert, TLSKey, TLSClientCA string

	// MaxConnections bounds connections on each listener.
	MaxConnections int
	// ReadTimeout bounds how long a request may take to arrive, WriteTimeout how long
	// a client may take to read an answer, and IdleTimeout how long a connection may be
	// idle.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// DrainDelay is how long readiness fails before a drain begins, so that load
	// balancers see it. It is off by default.
	DrainDelay time.Duration
	// DrainTimeout bounds the duration of a drain.
	DrainTimeout time.Duration

	// MaxBodyBytes bounds the body of a message.
	MaxBodyBytes int
	// Shards, ShardCapacity and ShardBytes are the defaults of new queues.
	Shards        int
	ShardCapacity int
	ShardBytes    int
	// GlobalInFlight bounds the messages in flight over all queues.
	GlobalInFlight int
	// GlobalDedup bounds the dedup keys that are remembered over all queues, and the unique keys that are held.
	GlobalDedup int
	// MaxQueues bounds the number of queues. Existing queues can always be used.
	MaxQueues int
	// MaxSchedules bounds the schedules over all queues.
	MaxSchedules int
	// MaxReplySlots bounds the reply slots.
	MaxReplySlots int
	// MaxReplyBytes bounds the bytes of answers in memory that wait to be read.
	MaxReplyBytes int
	// MaxWaiting bounds how many receives wait at the same time.
	MaxWaiting int
	// DedupMax bounds how many dedup keys a queue remembers.
	DedupMax int

	// VisibilityMin is the shortest visibility of a receive, and VisibilityDefault the
	// one of a receive that does not name one.
	VisibilityMin, VisibilityDefault time.Duration
	// MaxMessages and MaxBytes limit a receive that does not name its own limits.
	MaxMessages, MaxBytes int
	// MaxWait bounds how long a receive can wait.
	MaxWait time.Duration

	// DedupWindow is how long a dedup key is remembered.
	DedupWindow time.Duration
	// CapCacheTTL is how long a verified token is cached.
	CapCacheTTL time.Duration
	// BackoffBase and BackoffMax bound the backoff of nacks without a delay.
	BackoffBase, BackoffMax time.Duration
	// MaxDeliveries is how often a message is delivered before it is dead-lettered.
	MaxDeliveries int
	// RetainReady and RetainDead are how long messages and dead letters are kept.
	RetainReady, RetainDead time.Duration
	// MaxHold bounds how long a delivery can be held by extending it; see
	// driver.HoldBound.
	MaxHold time.Duration
	// InFlightFactor bounded the same as a multiple of the visibility. It is accepted
	// with a warning and has no effect.
	//
	// Deprecated: use MaxHold.
	InFlightFactor int
	// MaxDead bounds the dead letters of a queue.
	MaxDead int

	// KeyFile, TokenFile and RevocationFile are paths; empty means the default name in
	// DataDir.
	KeyFile, TokenFile, RevocationFile string
	// TokenOut is where the program mailboxd writes the operator's token after it has
	// started: the number of an open file descriptor, or a path; empty means nowhere.
	// It is for daemons with amnesia, which have no TokenFile.
	TokenOut string

	// LogFormat is "json" or "text", and LogLevel "debug", "info", "warn" or
	// "error".
	LogFormat, LogLevel string
}

// Off is the address that turns a listener off, and the path that turns the console off.
const Off = "off"

// Defaults returns the configuration of a profile, with all defaults that do not depend
// on other fields. An unknown profile counts as Macronode.
func Defaults(profile string) Config {
	amnesia, takeOver := profile == Micronode, true
	c := Config{
		Profile: profile, Amnesia: &amnesia, DataDir: defaultDataDir(), Audience: "mailboxd", SQS: SQSConfig{TakeOver: &takeOver},
		Listen: "127.0.0.1:9410", ListenOAP: "127.0.0.1:9411", ConsolePath: "/console/",
		MaxConnections: 20_000, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 10 * time.Minute,
		DrainDelay: driver.Off, DrainTimeout: 5 * time.Second, MaxBodyBytes: 704 << 10,
		Shards: 1, ShardCapacity: 1 << 20, ShardBytes: 16 << 30, GlobalInFlight: 1 << 18, GlobalDedup: 3 << 19, MaxQueues: 100_000, MaxSchedules: 10_000, MaxReplySlots: 100_000, MaxReplyBytes: 256 << 20, MaxWaiting: 32 << 10, DedupMax: 1 << 20,
		VisibilityMin: 250 * time.Millisecond, VisibilityDefault: 5 * time.Second,
		MaxMessages: 32, MaxBytes: 512 << 10, MaxWait: 20 * time.Minute,
		DedupWindow: 300 * time.Second, CapCacheTTL: 30 * time.Second,
		BackoffBase: 200 * time.Millisecond, BackoffMax: 60 * time.Second, MaxDeliveries: 5,
		RetainReady: 7 * 24 * time.Hour, RetainDead: 14 * 24 * time.Hour, MaxHold: maxhold.Default, MaxDead: 1 << 20,
		LogFormat: "json", LogLevel: "info",
	}
	if profile == Micronode {
		c.ShardCapacity, c.ShardBytes, c.GlobalInFlight, c.GlobalDedup, c.DedupMax, c.MaxDead = 1<<17, 1<<30, 1<<16, 1<<18, 1<<17, 1<<14
	} else {
		c.Profile = Macronode
	}
	return c
}

// complete returns the configuration with its zero fields set, from the defaults of the
// profile and from other fields.
func (c Config) complete() Config {
	if c.Profile == "" {
		c.Profile = Macronode
	}
	defaults := Defaults(c.Profile)
	for i := range settings {
		settings[i].complete(&c, &defaults)
	}
	if c.Backend == "" {
		if *c.Amnesia || c.Profile == Micronode {
			c.Backend = "memory:"
		} else {
			c.Backend = "disk:" + filepath.Join(c.DataDir, "queues")
		}
	}
	in := func(path *string, name string) {
		if *path == "" && !*c.Amnesia {
			*path = filepath.Join(c.DataDir, name)
		}
	}
	c.ListenSQS = c.SQS.address(c.ListenSQS)
	in(&c.KeyFile, "keys")
	in(&c.TokenFile, "operator.token")
	in(&c.RevocationFile, "revocations")
	return c
}

// queueDefaults returns the configuration of queues that were not configured.
func (c *Config) queueDefaults() driver.Config {
	return driver.Config{
		Shards: c.Shards, MaxDeliveries: c.MaxDeliveries, MaxMessages: inAllShards(c.ShardCapacity, c.Shards), MaxBytes: inAllShards(c.ShardBytes, c.Shards),
		MaxDead: c.MaxDead, DedupWindow: c.DedupWindow, DedupMax: c.DedupMax,
		RetainReady: driver.Retention{Age: c.RetainReady}, RetainDead: driver.Retention{Age: c.RetainDead},
		MaxHold: c.MaxHold,
	}
}

// inAllShards returns the bound of a queue from the bound of each of its shards.
func inAllShards(bound, shards int) int {
	if bound == driver.Off {
		return driver.Off
	}
	return bound * shards
}

// loopback reports whether an address can be reached only from this machine.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
