package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// Validate returns nil if a daemon can be made of the configuration, and
// otherwise an error that says in a sentence what is wrong with which setting.
// It looks at nothing but the configuration.
func (c Config) Validate() error {
	c = c.complete()
	for _, check := range []func(*Config) error{
		checkProfile, checkBackend, checkListeners, checkSQS, checkTLS, checkNumbers, checkTimes, checkLog,
	} {
		if err := check(&c); err != nil {
			return err
		}
	}
	return nil
}

func checkProfile(c *Config) error {
	if c.Profile != Micronode && c.Profile != Macronode {
		return fmt.Errorf("profile is to be %s or %s", Micronode, Macronode)
	}
	return nil
}

func checkBackend(c *Config) error {
	scheme, rest, ok := strings.Cut(c.Backend, ":")
	switch {
	case !ok:
		return fmt.Errorf("backend is to be memory:, disk:DIRECTORY or redis://HOST:PORT")
	case scheme == "memory" && rest != "":
		return fmt.Errorf("backend memory: takes nothing behind the colon")
	case scheme == "disk" && rest == "":
		return fmt.Errorf("backend disk: wants a directory behind the colon")
	case scheme == "disk" && *c.Amnesia:
		return fmt.Errorf("backend disk: writes files, which amnesia forbids: choose memory: or redis:, or turn amnesia off")
	case scheme == "memory" || scheme == "disk":
		return nil
	case scheme == "redis" || scheme == "rediss":
		parsed, err := url.Parse(c.Backend)
		if err != nil || parsed.Host == "" { // what the parser says may repeat a password
			return fmt.Errorf("backend is no good URL: want redis://HOST:PORT, with ?addr=HOST:PORT for further nodes of a cluster")
		}
		return nil
	}
	return fmt.Errorf("backend %s: is not known: want memory:, disk:DIRECTORY or redis://HOST:PORT", scheme)
}

func checkListeners(c *Config) error {
	if c.Listen == Off && c.ListenOAP == Off && c.Socket == "" && (c.ListenSQS == Off || c.ListenSQS == "") {
		return fmt.Errorf("listen.http and listen.oap are both off and there is no socket: nobody could reach the daemon")
	}
	for _, l := range []struct{ key, address string }{
		{"listen.http", c.Listen}, {"listen.oap", c.ListenOAP}, {"listen.sqs", c.ListenSQS}, {"listen.metrics", c.ListenMetrics},
	} {
		if l.address == Off || l.address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(l.address); err != nil {
			return fmt.Errorf("%s is to be HOST:PORT", l.key)
		}
		if c.InsecureListen || loopback(l.address) {
			continue
		}
		if l.key == "listen.metrics" { // which is never encrypted
			return fmt.Errorf("%s is an address beyond this machine, where the names of queues and tenants are told in plaintext and without a token: set listen.insecure if something else keeps others out", l.key)
		}
		if c.TLSCert == "" {
			return fmt.Errorf("%s is an address beyond this machine, where tokens and messages would travel in plaintext: set tls.cert and tls.key, or listen.insecure if something else protects them", l.key)
		}
	}
	if _, err := c.hosts(); err != nil {
		return fmt.Errorf("listen.hosts: %w", err)
	}
	return nil
}

func checkTLS(c *Config) error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return fmt.Errorf("tls.cert and tls.key go together: set both or none")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return fmt.Errorf("tls.client_ca needs tls.cert and tls.key")
	}
	return nil
}

func checkNumbers(c *Config) error {
	for _, n := range []struct {
		key              string
		value, low, high int
	}{
		{"listen.max_conns", c.MaxConnections, 1, 1 << 24},
		{"limits.max_payload_bytes", c.MaxPayloadBytes, 1 << 10, 1 << 20},
		{"mailbox.shards", c.Shards, 1, driver.MaxShards},
		{"mailbox.shard_capacity", c.ShardCapacity, 1, 1 << 40},
		{"mailbox.shard_bytes", c.ShardBytes, 1, 1 << 50},
		{"mailbox.global_inflight", c.GlobalInFlight, 1, 1 << 30},
		{"mailbox.max_topics", c.MaxTopics, 1, 1 << 30},
		{"mailbox.max_waiting", c.MaxWaiting, 1, 1 << 30},
		{"mailbox.dedup_max", c.DedupMax, 1, 1 << 40},
		{"mailbox.max_messages", c.MaxMessages, 1, driver.DefaultMaxBatch},
		{"mailbox.max_bytes", c.MaxBytes, 1, 1 << 20},
		{"mailbox.max_attempts", c.MaxAttempts, 1, 1 << 20},
		{"retention.max_dead", c.MaxDead, 1, 1 << 40},
	} {
		if n.value == driver.Off && settingOf(n.key).CanBeOff {
			continue
		}
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("%s is %d and is to be between %d and %d", n.key, n.value, n.low, n.high)
		}
	}
	return nil
}

func checkTimes(c *Config) error {
	const long = 10 * 365 * 24 * time.Hour
	for _, d := range []struct {
		key              string
		value, low, high time.Duration
	}{
		{"listen.read_timeout", c.ReadTimeout, time.Millisecond, time.Hour},
		{"listen.write_timeout", c.WriteTimeout, time.Millisecond, time.Hour},
		{"listen.idle_timeout", c.IdleTimeout, time.Millisecond, 24 * time.Hour},
		{"listen.drain_timeout", c.DrainTimeout, time.Millisecond, time.Hour},
		{"mailbox.visibility_min", c.VisibilityMin, time.Millisecond, driver.DefaultMaxVisibility},
		{"mailbox.default_visibility", c.VisibilityDefault, c.VisibilityMin, driver.DefaultMaxVisibility},
		{"mailbox.max_wait", c.MaxWait, time.Second, 24 * time.Hour},
		{"mailbox.t_replay", c.ReplayWindow, 2 * c.VisibilityDefault, long},
		{"mailbox.cap_cache_ttl", c.CapCacheTTL, capability.MinCacheTTL, capability.MaxCacheTTL},
		{"mailbox.backoff_base", c.BackoffBase, time.Millisecond, driver.DefaultMaxVisibility},
		{"mailbox.backoff_max", c.BackoffMax, c.BackoffBase, driver.DefaultMaxVisibility},
		{"retention.ready", c.RetainReady, time.Second, driver.MaxRetention},
		{"retention.dead", c.RetainDead, time.Second, driver.MaxRetention},
		{"retention.max_hold", c.MaxHold, time.Second, long},
	} {
		if d.value == driver.Off && settingOf(d.key).CanBeOff {
			continue
		}
		if d.value < d.low || d.value > d.high {
			return fmt.Errorf("%s is %v and is to be between %v and %v", d.key, d.value, d.low, d.high)
		}
	}
	return nil
}

func checkLog(c *Config) error {
	if c.LogFormat != "json" && c.LogFormat != "text" {
		return fmt.Errorf("log.format is to be json or text")
	}
	if _, err := c.logLevel(); err != nil {
		return fmt.Errorf("log.level is to be debug, info, warn or error")
	}
	return nil
}

func (c *Config) logLevel() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(c.LogLevel))
	return level, err
}
