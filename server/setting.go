package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Setting is one thing that can be configured: by a key in the file, by a flag,
// and by a variable of the environment.
type Setting struct {
	// Key is "section.name", Flag the name of the flag without dashes, and
	// Variable that of the environment.
	Key, Flag, Variable string
	// Help says what it is, in a sentence.
	Help string
	// Live says that a reload changes it.
	Live bool
	// CanBeOff says that 0 turns it off. In a Config that is driver.Off.
	CanBeOff bool

	field func(c *Config) any // a pointer to the field
}

// Settings lists everything that can be configured.
func Settings() []Setting { return append([]Setting(nil), settings...) }

func setting(key, flag, help string, live bool, field func(*Config) any) Setting {
	return Setting{
		Key: key, Flag: flag, Variable: "MAILBOXD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")),
		Help: help, Live: live, field: field,
	}
}

// orOff is a setting that 0 turns off.
func (s Setting) orOff() Setting {
	s.Help += "; 0 turns it off"
	s.CanBeOff = true
	return s
}

// A size is a number of bytes.
type size int

var settings = []Setting{
	setting("profile", "profile", "what kind of daemon this is: micronode or macronode", false, func(c *Config) any { return &c.Profile }),
	setting("amnesia", "amnesia", "write no file, ever", false, func(c *Config) any { return &c.Amnesia }),
	setting("backend", "backend", "where messages are kept: memory:, disk:DIRECTORY or redis://HOST:PORT", false, func(c *Config) any { return &c.Backend }),
	setting("data_dir", "data-dir", "directory of keys, tokens and messages", false, func(c *Config) any { return &c.DataDir }),
	setting("audience", "audience", "name of this service, for tokens with an audience", false, func(c *Config) any { return &c.Audience }),

	setting("listen.http", "listen", "address for HTTP, or off", false, func(c *Config) any { return &c.Listen }),
	setting("listen.oap", "listen-oap", "address for OAP/1 frames, or off", false, func(c *Config) any { return &c.ListenOAP }),
	setting("listen.sqs", "listen-sqs", "further address for clients of Amazon SQS", false, func(c *Config) any { return &c.ListenSQS }),
	setting("listen.metrics", "listen-metrics", "further address for health and metrics alone, without a token", false, func(c *Config) any { return &c.ListenMetrics }),
	setting("listen.socket", "socket", "path of a unix socket for HTTP", false, func(c *Config) any { return &c.Socket }),
	setting("listen.insecure", "insecure-listen", "allow plaintext on addresses beyond this machine", false, func(c *Config) any { return &c.InsecureListen }),
	setting("listen.hosts", "allowed-hosts", "further host names, with commas between, by which clients without a token may reach plaintext listeners: NAME, *.SUFFIX or *", false, func(c *Config) any { return &c.AllowedHosts }),
	setting("listen.max_conns", "max-conns", "connections on each listener", false, func(c *Config) any { return &c.MaxConnections }),
	setting("listen.read_timeout", "read-timeout", "how long a request may take to arrive", false, func(c *Config) any { return &c.ReadTimeout }),
	setting("listen.write_timeout", "write-timeout", "how long a client may take to read an answer", false, func(c *Config) any { return &c.WriteTimeout }),
	setting("listen.idle_timeout", "idle-timeout", "how long a connection may do nothing", false, func(c *Config) any { return &c.IdleTimeout }),
	setting("listen.drain_timeout", "drain-timeout", "how long the daemon takes to stop at most", true, func(c *Config) any { return &c.DrainTimeout }),

	setting("tls.cert", "tls-cert", "file of the certificate; read anew on SIGHUP", false, func(c *Config) any { return &c.TLSCert }),
	setting("tls.key", "tls-key", "file of its key", false, func(c *Config) any { return &c.TLSKey }),
	setting("tls.client_ca", "tls-client-ca", "file of authorities whose certificates clients must show", false, func(c *Config) any { return &c.TLSClientCA }),

	setting("limits.max_payload_bytes", "max-payload-bytes", "bytes of a payload", true, func(c *Config) any { return (*size)(&c.MaxPayloadBytes) }),
	setting("mailbox.shards", "shards", "shards of topics that were not configured", false, func(c *Config) any { return &c.Shards }),
	setting("mailbox.shard_capacity", "shard-cap", "messages that wait in a shard", false, func(c *Config) any { return &c.ShardCapacity }).orOff(),
	setting("mailbox.shard_bytes", "shard-bytes", "bytes that wait in a shard", false, func(c *Config) any { return (*size)(&c.ShardBytes) }).orOff(),
	setting("mailbox.global_inflight", "global-inflight", "messages in flight over all queues; no tenant beside others has more than half", true, func(c *Config) any { return &c.GlobalInFlight }).orOff(),
	setting("mailbox.max_topics", "max-topics", "queues that exist; no tenant beside others has more than half", true, func(c *Config) any { return &c.MaxTopics }),
	setting("mailbox.max_waiting", "max-waiting", "receives that wait at once; no tenant beside others has more than half", true, func(c *Config) any { return &c.MaxWaiting }),
	setting("mailbox.dedup_max", "dedup-max", "keys that a topic remembers", false, func(c *Config) any { return &c.DedupMax }).orOff(),
	setting("mailbox.visibility_min", "visibility-min", "shortest visibility that can be asked for", true, func(c *Config) any { return &c.VisibilityMin }),
	setting("mailbox.default_visibility", "default-visibility", "visibility of receives that do not ask", false, func(c *Config) any { return &c.VisibilityDefault }),
	setting("mailbox.max_messages", "max-messages", "messages of a receive that does not say", false, func(c *Config) any { return &c.MaxMessages }),
	setting("mailbox.max_bytes", "max-bytes", "bytes of a receive that does not say", false, func(c *Config) any { return (*size)(&c.MaxBytes) }),
	setting("mailbox.max_wait", "max-wait", "how long a receive can wait", true, func(c *Config) any { return &c.MaxWait }),
	setting("mailbox.t_replay", "t-replay", "how long an idempotency key is remembered", false, func(c *Config) any { return &c.ReplayWindow }),
	setting("mailbox.cap_cache_ttl", "cap-cache-ttl", "how long a verified token is trusted, 5s to 120s", false, func(c *Config) any { return &c.CapCacheTTL }),
	setting("mailbox.backoff_base", "backoff-base", "first bound of the wait after a nack", true, func(c *Config) any { return &c.BackoffBase }),
	setting("mailbox.backoff_max", "backoff-max", "last bound of the wait after a nack", true, func(c *Config) any { return &c.BackoffMax }),
	setting("mailbox.max_attempts", "max-attempts", "deliveries before a message is a dead letter", false, func(c *Config) any { return &c.MaxAttempts }).orOff(),

	setting("retention.ready", "retain-ready", "how long messages are kept", false, func(c *Config) any { return &c.RetainReady }).orOff(),
	setting("retention.dead", "retain-dead", "how long dead letters are kept", false, func(c *Config) any { return &c.RetainDead }).orOff(),
	setting("retention.max_dead", "max-dead", "dead letters of a topic", false, func(c *Config) any { return &c.MaxDead }).orOff(),
	setting("retention.max_hold", "max-hold", "how long a delivery can be held by extending it; never less than 10 times its visibility", false, func(c *Config) any { return &c.MaxHold }).orOff(),
	setting("retention.inflight_factor", "inflight-factor", "has no effect; use --max-hold", false, func(c *Config) any { return &c.InFlightFactor }),

	setting("auth.key_file", "key-file", "file of the keys that tokens are made with", false, func(c *Config) any { return &c.KeyFile }),
	setting("auth.token_file", "token-file", "file of the operator's token", false, func(c *Config) any { return &c.TokenFile }),
	setting("auth.token_out", "token-out", "file descriptor or path to which the operator's token is written once, at the start", false, func(c *Config) any { return &c.TokenOut }),
	setting("auth.revocation_file", "revocation-file", "file of revocations", false, func(c *Config) any { return &c.RevocationFile }),

	setting("sqs.credentials_file", "sqs-credentials-file", "file of access keys that stand for capabilities", false, func(c *Config) any { return &c.SQS.CredentialsFile }),
	setting("sqs.unsigned", "sqs-unsigned", "believe everybody on listen.sqs, for tests", false, func(c *Config) any { return &c.SQS.Unsigned }),
	setting("sqs.compatibility", "sqs-compatibility", "be found where localstack or elasticmq was", false, func(c *Config) any { return &c.SQS.Compatibility }),
	setting("sqs.strict_minute", "sqs-strict-minute", "refuse for a minute what AWS does: names of deleted queues, second purges", false, func(c *Config) any { return &c.SQS.StrictMinute }),

	setting("log.format", "log-format", "json or text", false, func(c *Config) any { return &c.LogFormat }),
	setting("log.level", "log-level", "debug, info, warn or error", true, func(c *Config) any { return &c.LogLevel }),
}

// isBool reports whether the setting is a switch.
func (s *Setting) isBool() bool {
	switch s.field(new(Config)).(type) {
	case *bool, **bool:
		return true
	}
	return false
}

// complete takes the default if the setting is not set.
func (s *Setting) complete(c, defaults *Config) {
	switch field := s.field(c).(type) {
	case *string:
		orDefault(field, *s.field(defaults).(*string))
	case *int:
		orDefault(field, *s.field(defaults).(*int))
	case *size:
		orDefault(field, *s.field(defaults).(*size))
	case *time.Duration:
		orDefault(field, *s.field(defaults).(*time.Duration))
	}
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// set reads a value. Its error says what is wanted, and does not repeat the value,
// which may hold a password.
func (s *Setting) set(c *Config, text string) error {
	switch field := s.field(c).(type) {
	case *string:
		*field = text
	case *bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("is to be true or false")
		}
		*field = value
	case **bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("is to be true or false")
		}
		*field = &value
	case *int:
		value, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("is to be a whole number")
		}
		return given(s, field, value)
	case *size:
		value, err := parseSize(text)
		if err != nil {
			return err
		}
		return given(s, field, value)
	case *time.Duration:
		value, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("is to be a duration like 250ms, 5s or 168h")
		}
		return given(s, field, value)
	default:
		return fmt.Errorf("cannot be set")
	}
	return nil
}

// given sets a number that was given. 0 would mean the default in a Config, so it
// is off, or refused; a negative number is refused.
func given[N int | size | time.Duration](s *Setting, field *N, value N) error {
	switch {
	case value > 0:
		*field = value
	case !s.CanBeOff:
		return fmt.Errorf("is %v; want more than 0", value)
	case value < 0:
		return fmt.Errorf("is %v; want more than 0, or 0 to turn it off", value)
	default:
		*field = driver.Off
	}
	return nil
}

// parseSize reads 1048576, 1024KiB or 1MiB.
func parseSize(text string) (size, error) {
	units := []struct {
		suffix string
		factor int
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}
	for _, unit := range units {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > 1<<50/unit.factor {
			break
		}
		return size(n * unit.factor), nil
	}
	return 0, fmt.Errorf("is to be a number of bytes like 65536, 64KiB or 1MiB")
}

// copy takes the value over from another configuration.
func (s *Setting) copy(to, from *Config) {
	switch field := s.field(to).(type) {
	case *string:
		*field = *s.field(from).(*string)
	case *bool:
		*field = *s.field(from).(*bool)
	case *int:
		*field = *s.field(from).(*int)
	case *size:
		*field = *s.field(from).(*size)
	case *time.Duration:
		*field = *s.field(from).(*time.Duration)
	}
}
