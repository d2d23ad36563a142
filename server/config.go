package server

import (
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The profiles.
const (
	// Micronode is one process, in memory, that remembers nothing.
	Micronode = "micronode"
	// Macronode is durable.
	Macronode = "macronode"
)

// Config says what a daemon is. The zero value of a field means its default, which
// may depend on the profile; see Defaults. driver.Off turns a limit off, where
// Setting.CanBeOff says so. Keys, flags and variables of the fields
// are listed by Settings.
type Config struct {
	// Profile is Micronode or Macronode.
	Profile string
	// Amnesia keeps the daemon from writing any file. Nil means that of the
	// profile.
	Amnesia *bool
	// Backend is where messages are kept: "memory:", "disk:" and a directory, or
	// a URL of Redis. Empty means memory on a micronode, and DataDir on a
	// macronode.
	Backend string
	// DataDir is where the daemon keeps what is its own: keys, revocations, the
	// operator's token, and messages if Backend does not say otherwise.
	DataDir string
	// DiskReserve is how much of the volume stays free on disk:; 0 means 5 % of it, at
	// least 16 MiB and at most 1 GiB. Below it sends are refused, and settling goes on.
	DiskReserve int
	// Audience is the name of this service, for tokens with an audience.
	Audience string

	// Listen is the address for HTTP, and ListenOAP that for OAP/1 frames; port 0
	// takes any that is free, "off" none.
	Listen    string
	ListenOAP string
	// ListenMetrics is a further address on which only health, readiness and
	// metrics are served; empty means none.
	ListenMetrics string
	// ListenSQS is a further address for clients of Amazon SQS; empty means none.
	// Those that sign are served on Listen too.
	ListenSQS string
	// SQS says how clients of Amazon SQS are served.
	SQS SQSConfig
	// Socket is the path of a unix socket for HTTP; empty means none.
	Socket string
	// InsecureListen allows plaintext on addresses that are not of this machine.
	InsecureListen bool
	// AllowedHosts are further names, with commas between, by which clients without a
	// token may reach plaintext listeners. Addresses, localhost, names without a dot,
	// names below "internal", and those in the addresses to listen on are allowed
	// anyway. "*.example.com" allows the names below, and "*" every name.
	AllowedHosts string

	// TLSCert and TLSKey are files; without them there is no TLS. TLSClientCA
	// makes clients show a certificate of these authorities.
	TLSCert, TLSKey, TLSClientCA string

	// MaxConnections bounds connections on each listener.
	MaxConnections int
	// ReadTimeout and WriteTimeout bound how long a request may take to arrive and
	// an answer to be read; IdleTimeout how long a connection may do nothing.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// DrainDelay is how long readiness fails before a drain begins, so that load
	// balancers see it. It is off by default.
	DrainDelay time.Duration
	// DrainTimeout bounds how long a drain takes.
	DrainTimeout time.Duration

	// MaxPayloadBytes bounds payloads.
	MaxPayloadBytes int
	// Shards, ShardCapacity and ShardBytes are those of topics that were not
	// configured.
	Shards        int
	ShardCapacity int
	ShardBytes    int
	// GlobalInFlight bounds the messages that are out over all topics.
	GlobalInFlight int
	// GlobalDedup bounds the dedup keys that are remembered over all queues.
	GlobalDedup int
	// MaxTopics bounds the queues that exist. Those that exist already can always be
	// used.
	MaxTopics int
	// MaxWaiting bounds the receives that wait at once.
	MaxWaiting int
	// DedupMax bounds how many keys a topic remembers.
	DedupMax int

	// VisibilityMin and VisibilityDefault are for receives that ask for less, and
	// that do not ask.
	VisibilityMin, VisibilityDefault time.Duration
	// MaxMessages and MaxBytes are how much a receive brings that does not say.
	MaxMessages, MaxBytes int
	// MaxWait bounds how long a receive can wait.
	MaxWait time.Duration

	// ReplayWindow is how long a key is remembered.
	ReplayWindow time.Duration
	// CapCacheTTL is how long a verified token is trusted.
	CapCacheTTL time.Duration
	// BackoffBase and BackoffMax are those of nacks without a delay.
	BackoffBase, BackoffMax time.Duration
	// MaxAttempts is how often a message is delivered before it is a dead letter.
	MaxAttempts int
	// RetainReady and RetainDead are how long messages and dead letters are kept.
	RetainReady, RetainDead time.Duration
	// MaxHold bounds how long a delivery can be held by extending it; see
	// driver.HoldBound.
	MaxHold time.Duration
	// InFlightFactor was a multiple of the visibility that bounded the same. It is
	// accepted with a warning and has no effect.
	//
	// Deprecated: use MaxHold.
	InFlightFactor int
	// MaxDead bounds the dead letters of a topic.
	MaxDead int

	// KeyFile, TokenFile and RevocationFile are those of DataDir if they are
	// empty.
	KeyFile, TokenFile, RevocationFile string
	// TokenOut is where the program mailboxd writes the operator's token when it has
	// started: the number of an open file descriptor, or a path; empty means nowhere.
	// It is for daemons with amnesia, which keep no TokenFile.
	TokenOut string

	// LogFormat is "json" or "text", and LogLevel "debug", "info", "warn" or
	// "error".
	LogFormat, LogLevel string
}

// Off is an address that nobody listens on.
const Off = "off"

// Defaults returns the configuration of a profile, with everything filled in that
// does not depend on something else. An unknown profile is taken for a macronode.
func Defaults(profile string) Config {
	amnesia := profile == Micronode
	c := Config{
		Profile: profile, Amnesia: &amnesia, DataDir: defaultDataDir(), Audience: "mailboxd",
		Listen: "127.0.0.1:9410", ListenOAP: "127.0.0.1:9411",
		MaxConnections: 20_000, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 10 * time.Minute,
		DrainDelay: driver.Off, DrainTimeout: 5 * time.Second, MaxPayloadBytes: 704 << 10,
		Shards: 1, ShardCapacity: 1 << 20, ShardBytes: 16 << 30, GlobalInFlight: 1 << 18, GlobalDedup: 3 << 19, MaxTopics: 100_000, MaxWaiting: 32 << 10, DedupMax: 1 << 20,
		VisibilityMin: 250 * time.Millisecond, VisibilityDefault: 5 * time.Second,
		MaxMessages: 32, MaxBytes: 512 << 10, MaxWait: 20 * time.Minute,
		ReplayWindow: 300 * time.Second, CapCacheTTL: 30 * time.Second,
		BackoffBase: 200 * time.Millisecond, BackoffMax: 60 * time.Second, MaxAttempts: 5,
		RetainReady: 7 * 24 * time.Hour, RetainDead: 14 * 24 * time.Hour, MaxHold: driver.DefaultMaxHold, MaxDead: 1 << 20,
		LogFormat: "json", LogLevel: "info",
	}
	if profile == Micronode {
		c.ShardCapacity, c.ShardBytes, c.GlobalInFlight, c.GlobalDedup, c.DedupMax, c.MaxDead = 1<<17, 1<<30, 1<<16, 1<<18, 1<<17, 1<<14
	} else {
		c.Profile = Macronode
	}
	return c
}

// complete fills in what is zero: from the defaults of the profile, and from
// other fields.
func (c Config) complete() Config {
	if c.Profile == "" {
		c.Profile = Macronode
	}
	defaults := Defaults(c.Profile)
	for i := range settings {
		settings[i].complete(&c, &defaults)
	}
	if c.Amnesia == nil {
		c.Amnesia = defaults.Amnesia
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

// topicDefaults are the configuration of topics that say nothing.
func (c *Config) topicDefaults() driver.Config {
	return driver.Config{
		Shards: c.Shards, MaxDeliveries: c.MaxAttempts, MaxMessages: inAllShards(c.ShardCapacity, c.Shards), MaxBytes: inAllShards(c.ShardBytes, c.Shards),
		MaxDead: c.MaxDead, DedupWindow: c.ReplayWindow, DedupMax: c.DedupMax,
		RetainReady: driver.Retention{Age: c.RetainReady}, RetainDead: driver.Retention{Age: c.RetainDead},
		MaxHold: c.MaxHold,
	}
}

// inAllShards is the bound of a topic whose shards have this one.
func inAllShards(bound, shards int) int {
	if bound == driver.Off {
		return driver.Off
	}
	return bound * shards
}

// loopback reports whether an address can be reached from this machine only.
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
