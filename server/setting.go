package server

//go:generate go test -count=1 -run ^TestGeneratedFilesAreCurrent$ . -update

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// A setting is one value of the configuration. It is set by a key in the file, by a
// flag, or by an environment variable.
type setting struct {
	// Key is "section.name", Flag the name of the flag without dashes, and
	// Variable the name of the environment variable.
	Key, Flag, Variable string
	// Group is the title of its section.
	Group string
	// Help describes it in a phrase.
	Help string
	// Unit is one of the units below.
	Unit string
	// Default is the default of a macronode in the form that the flag takes, or a phrase
	// in parentheses if it depends on other settings. DefaultMicro is that of a
	// micronode.
	Default, DefaultMicro string
	// Live says that a reload changes it; other settings need a restart.
	Live bool
	// CanBeOff says that 0 turns it off. In a Config that is driver.Off.
	CanBeOff bool
	// NewQueues says that it applies to new queues only: existing queues keep the value
	// that they were created with.
	NewQueues bool
	// Range is the accepted range, in the form that the flag takes; empty if the unit is
	// the only restriction.
	Range string
	// Secret says that the value may contain a password.
	Secret bool
	// Deprecated says that it is accepted and has no effect.
	Deprecated bool

	field     func(c *Config) any // a pointer to the field
	low, high int64               // bounds of a number; high is 0 if there are none
	// The value must be at least leastTimes the value of the setting least, if that is
	// not empty.
	least      string
	leastTimes int64
}

// The units of settings.
const (
	unitText     = "text"
	unitSwitch   = "true or false"
	unitCount    = "count"
	unitBytes    = "bytes"    // 65536, 64KiB, 1MiB
	unitDuration = "duration" // 250ms, 5s, 168h
)

// groups are the titles of the sections.
var groups = map[string]string{
	"": "daemon", "listen": "listeners", "tls": "TLS", "limits": "limits", "mailbox": "queues", "retention": "retention",
	"auth": "keys and tokens", "sqs": "Amazon SQS", "log": "log",
}

// section returns the table of the file that contains the setting, or "" for the top
// level.
func (s *setting) section() string {
	section, _, found := strings.Cut(s.Key, ".")
	if !found {
		return ""
	}
	return section
}

// allSettings returns all settings.
func allSettings() []setting {
	macro, micro := Defaults(Macronode), Defaults(Micronode)
	all := slices.Clone(settings)
	for i := range all {
		s := &all[i]
		s.Group, s.Unit, s.Range = groups[s.section()], s.unit(), s.shownRange()
		if s.Default == "" {
			s.Default, s.DefaultMicro = s.text(&macro), s.text(&micro)
		} else {
			s.DefaultMicro = s.Default
		}
	}
	return all
}

func newSetting(key, flag, help string, live bool, field func(*Config) any) setting {
	return setting{
		Key: key, Flag: flag, Variable: "MAILBOXD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")),
		Help: help, Live: live, field: field,
	}
}

// orOff returns the setting with 0 meaning off.
func (s setting) orOff() setting {
	s.Help += "; 0 turns it off"
	s.CanBeOff = true
	return s
}

// ofNewQueues returns the setting with NewQueues.
func (s setting) ofNewQueues() setting {
	s.NewQueues = true
	return s
}

// secret returns the setting with Secret.
func (s setting) secret() setting {
	s.Secret = true
	return s
}

// deprecated returns the setting with Deprecated.
func (s setting) deprecated() setting {
	s.Deprecated = true
	return s
}

// otherwise returns the setting with a phrase for its default, which depends on other
// settings.
func (s setting) otherwise(phrase string) setting {
	s.Default = "(" + phrase + ")"
	return s
}

// between returns the setting with a range of numbers.
func (s setting) between(low, high int64) setting {
	s.low, s.high = low, high
	return s
}

// lasting returns the setting with a range of durations.
func (s setting) lasting(low, high time.Duration) setting { return s.between(int64(low), int64(high)) }

// atLeast returns the setting with a lower bound: a multiple of another setting.
func (s setting) atLeast(times int64, key string) setting {
	s.least, s.leastTimes = key, times
	return s
}

// A size is a number of bytes.
type size int

// maxDuration bounds durations that have no other bound.
const maxDuration = 10 * 365 * 24 * time.Hour

var settings = []setting{
	newSetting("profile", "profile", "kind of daemon: macronode (durable) or micronode (in memory)", false, func(c *Config) any { return &c.Profile }),
	newSetting("amnesia", "amnesia", "never write a file", false, func(c *Config) any { return &c.Amnesia }),
	newSetting("backend", "backend", "where messages are kept: memory:, disk:DIRECTORY, redis://HOST:PORT or postgres://HOST:PORT/DATABASE", false, func(c *Config) any { return &c.Backend }).secret().otherwise("memory: on a micronode, else disk: and queues in data_dir"),
	newSetting("data_dir", "data-dir", "directory of keys, tokens and messages", false, func(c *Config) any { return &c.DataDir }).otherwise("$STATE_DIRECTORY, else mailboxd in $XDG_STATE_HOME or in ~/.local/state, else /var/lib/mailboxd"),
	newSetting("disk_reserve", "disk-reserve", "free bytes kept on the volume of disk:; with less, sends are refused and settling still works", false, func(c *Config) any { return (*size)(&c.DiskReserve) }).otherwise("5% of the volume, at least 16MiB and at most 1GiB").orOff().between(1, 1<<50),
	newSetting("audience", "audience", "name of this service, for tokens with an audience", false, func(c *Config) any { return &c.Audience }),

	newSetting("listen.http", "listen", "address for HTTP and gRPC, or off", false, func(c *Config) any { return &c.Listen }),
	newSetting("listen.oap", "listen-oap", "address for OAP/1 frames, or off", false, func(c *Config) any { return &c.ListenOAP }),
	newSetting("listen.sqs", "listen-sqs", "further address for clients of Amazon SQS", false, func(c *Config) any { return &c.ListenSQS }).otherwise("none; the port of the emulator with sqs.compatibility"),
	newSetting("listen.metrics", "listen-metrics", "further address for health and metrics only, without a token", false, func(c *Config) any { return &c.ListenMetrics }),
	newSetting("listen.socket", "socket", "path of a unix socket for HTTP", false, func(c *Config) any { return &c.Socket }),
	newSetting("listen.console", "console-path", "path of the web console on listen.http and listen.socket, or off", false, func(c *Config) any { return &c.ConsolePath }),
	newSetting("listen.insecure", "insecure-listen", "allow plaintext on addresses beyond this machine", false, func(c *Config) any { return &c.InsecureListen }),
	newSetting("listen.hosts", "allowed-hosts", "further host names, separated by commas, by which clients without a token may reach plaintext listeners: NAME, *.SUFFIX or *", false, func(c *Config) any { return &c.AllowedHosts }),
	newSetting("listen.max_conns", "max-conns", "connections on each listener", false, func(c *Config) any { return &c.MaxConnections }).between(1, 1<<24),
	newSetting("listen.read_timeout", "read-timeout", "how long a request may take to arrive", false, func(c *Config) any { return &c.ReadTimeout }).lasting(time.Millisecond, time.Hour),
	newSetting("listen.write_timeout", "write-timeout", "how long a client may take to read an answer", false, func(c *Config) any { return &c.WriteTimeout }).lasting(time.Millisecond, time.Hour),
	newSetting("listen.idle_timeout", "idle-timeout", "how long a connection may be idle", false, func(c *Config) any { return &c.IdleTimeout }).lasting(time.Millisecond, 24*time.Hour),
	newSetting("listen.drain_delay", "drain-delay", "how long readiness fails, while requests work, before a drain closes listeners", true, func(c *Config) any { return &c.DrainDelay }).orOff().lasting(time.Nanosecond, time.Hour),
	newSetting("listen.drain_timeout", "drain-timeout", "how long a drain may take", true, func(c *Config) any { return &c.DrainTimeout }).lasting(time.Millisecond, time.Hour),

	newSetting("tls.cert", "tls-cert", "file of the certificate; SIGHUP reads it again", false, func(c *Config) any { return &c.TLSCert }),
	newSetting("tls.key", "tls-key", "file of its key; SIGHUP reads it again", false, func(c *Config) any { return &c.TLSKey }),
	newSetting("tls.client_ca", "tls-client-ca", "file of the authorities that client certificates must be from; SIGHUP reads it again", false, func(c *Config) any { return &c.TLSClientCA }),

	newSetting("limits.max_payload_bytes", "max-payload-bytes", "bytes of a message body", true, func(c *Config) any { return (*size)(&c.MaxBodyBytes) }).between(1<<10, 1<<20),

	newSetting("mailbox.shards", "shards", "shards of a queue", false, func(c *Config) any { return &c.Shards }).ofNewQueues().between(1, driver.MaxShards),
	newSetting("mailbox.shard_capacity", "shard-cap", "messages in a shard", false, func(c *Config) any { return &c.ShardCapacity }).orOff().ofNewQueues().between(1, 1<<40),
	newSetting("mailbox.shard_bytes", "shard-bytes", "bytes in a shard", false, func(c *Config) any { return (*size)(&c.ShardBytes) }).orOff().ofNewQueues().between(1, 1<<50),
	newSetting("mailbox.global_inflight", "global-inflight", "messages in flight over all queues; no tenant beside others has more than half", true, func(c *Config) any { return &c.GlobalInFlight }).orOff().between(1, 1<<30),
	newSetting("mailbox.max_topics", "max-topics", "queues that exist; no tenant beside others has more than half", true, func(c *Config) any { return &c.MaxQueues }).between(1, 1<<30),
	newSetting("mailbox.max_schedules", "max-schedules", "schedules over all queues; no tenant beside others has more than half", true, func(c *Config) any { return &c.MaxSchedules }).between(1, 1<<20),
	newSetting("mailbox.max_reply_slots", "max-reply-slots", "reply slots; no tenant beside others has more than half", false, func(c *Config) any { return &c.MaxReplySlots }).between(1, 1<<24),
	newSetting("mailbox.max_reply_bytes", "max-reply-bytes", "bytes of answers that wait in memory to be read, with the backend memory; no tenant beside others has more than half", false, func(c *Config) any { return (*size)(&c.MaxReplyBytes) }).between(16<<20, 1<<40),
	newSetting("mailbox.max_waiting", "max-waiting", "receives, and calls for answers, that wait at once; no tenant beside others has more than half", true, func(c *Config) any { return &c.MaxWaiting }).between(1, 1<<30),
	newSetting("mailbox.global_dedup", "global-dedup", "dedup keys remembered over all queues, and unique keys held, 64 bytes of memory each; no tenant beside others has more than half", true, func(c *Config) any { return &c.GlobalDedup }).orOff().between(1, 1<<30),
	newSetting("mailbox.dedup_max", "dedup-max", "dedup keys that a queue remembers", false, func(c *Config) any { return &c.DedupMax }).orOff().ofNewQueues().between(1, 1<<40),
	newSetting("mailbox.visibility_min", "visibility-min", "shortest visibility that a receive may ask for", true, func(c *Config) any { return &c.VisibilityMin }).lasting(time.Millisecond, driver.DefaultMaxVisibility),
	newSetting("mailbox.default_visibility", "default-visibility", "default visibility of a receive", false, func(c *Config) any { return &c.VisibilityDefault }).lasting(time.Millisecond, driver.DefaultMaxVisibility).atLeast(1, "mailbox.visibility_min"),
	newSetting("mailbox.max_messages", "max-messages", "default message limit of a receive", false, func(c *Config) any { return &c.MaxMessages }).between(1, driver.DefaultMaxBatch),
	newSetting("mailbox.max_bytes", "max-bytes", "default byte limit of a receive", false, func(c *Config) any { return (*size)(&c.MaxBytes) }).between(1, 1<<20),
	newSetting("mailbox.max_wait", "max-wait", "how long a receive may wait", true, func(c *Config) any { return &c.MaxWait }).lasting(time.Second, 24*time.Hour),
	newSetting("mailbox.t_replay", "t-replay", "dedup window: how long a dedup key is remembered", false, func(c *Config) any { return &c.DedupWindow }).ofNewQueues().lasting(2*time.Millisecond, maxDuration).atLeast(2, "mailbox.default_visibility"),
	newSetting("mailbox.cap_cache_ttl", "cap-cache-ttl", "how long a verified token is trusted", false, func(c *Config) any { return &c.CapCacheTTL }).lasting(verify.MinCacheTTL, verify.MaxCacheTTL),
	newSetting("mailbox.backoff_base", "backoff-base", "first bound of the wait after a nack", true, func(c *Config) any { return &c.BackoffBase }).lasting(time.Millisecond, driver.DefaultMaxVisibility),
	newSetting("mailbox.backoff_max", "backoff-max", "last bound of the wait after a nack", true, func(c *Config) any { return &c.BackoffMax }).lasting(time.Millisecond, driver.DefaultMaxVisibility).atLeast(1, "mailbox.backoff_base"),
	newSetting("mailbox.max_attempts", "max-attempts", "deliveries before a message is dead-lettered", false, func(c *Config) any { return &c.MaxDeliveries }).orOff().ofNewQueues().between(1, 1<<20),

	newSetting("retention.ready", "retain-ready", "how long messages are kept", false, func(c *Config) any { return &c.RetainReady }).orOff().ofNewQueues().lasting(time.Second, driver.MaxRetention),
	newSetting("retention.dead", "retain-dead", "how long dead letters are kept", false, func(c *Config) any { return &c.RetainDead }).orOff().ofNewQueues().lasting(time.Second, driver.MaxRetention),
	newSetting("retention.max_dead", "max-dead", "dead letters of a queue", false, func(c *Config) any { return &c.MaxDead }).orOff().ofNewQueues().between(1, 1<<40),
	newSetting("retention.max_hold", "max-hold", "how long a delivery can be held by extending it; never less than 10 times its visibility", false, func(c *Config) any { return &c.MaxHold }).orOff().ofNewQueues().lasting(time.Second, maxDuration),
	newSetting("retention.inflight_factor", "inflight-factor", "has no effect; use --max-hold", false, func(c *Config) any { return &c.InFlightFactor }).deprecated(),

	newSetting("auth.key_file", "key-file", "file of the keys that tokens are made with; SIGHUP reads it again", false, func(c *Config) any { return &c.KeyFile }).otherwise("keys in data_dir"),
	newSetting("auth.token_file", "token-file", "file of the operator's token", false, func(c *Config) any { return &c.TokenFile }).otherwise("operator.token in data_dir"),
	newSetting("auth.token_out", "token-out", "file descriptor or path to which the operator's token is written once, at the start", false, func(c *Config) any { return &c.TokenOut }),
	newSetting("auth.revocation_file", "revocation-file", "file of revocations", false, func(c *Config) any { return &c.RevocationFile }).otherwise("revocations in data_dir"),

	newSetting("sqs.credentials_file", "sqs-credentials-file", "file of access keys that stand for tokens; SIGHUP reads it again", false, func(c *Config) any { return &c.SQS.CredentialsFile }),
	newSetting("sqs.unsigned", "sqs-unsigned", "accept unsigned requests on listen.sqs, for tests", false, func(c *Config) any { return &c.SQS.Unsigned }),
	newSetting("sqs.compatibility", "sqs-compatibility", "stand in for localstack or elasticmq", false, func(c *Config) any { return &c.SQS.Compatibility }),
	newSetting("sqs.strict_minute", "sqs-strict-minute", "refuse for a minute what AWS refuses: names of deleted queues, second purges", false, func(c *Config) any { return &c.SQS.StrictMinute }),
	newSetting("sqs.take_over", "sqs-take-over", "read the requests after the first of a connection without package http, for less processor time", false, func(c *Config) any { return &c.SQS.TakeOver }),

	newSetting("log.format", "log-format", "json or text", false, func(c *Config) any { return &c.LogFormat }),
	newSetting("log.level", "log-level", "debug, info, warn or error", true, func(c *Config) any { return &c.LogLevel }),
}

// unit returns the unit, which follows from the type of the field.
func (s *setting) unit() string {
	switch s.field(new(Config)).(type) {
	case *bool, **bool:
		return unitSwitch
	case *int:
		return unitCount
	case *size:
		return unitBytes
	case *time.Duration:
		return unitDuration
	}
	return unitText
}

// text returns the value in the form that the flag takes.
func (s *setting) text(c *Config) string {
	switch field := s.field(c).(type) {
	case *string:
		return *field
	case *bool:
		return strconv.FormatBool(*field)
	case **bool:
		return strconv.FormatBool(*field != nil && **field)
	case *int:
		return strconv.Itoa(max(*field, 0)) // 0 if it is off
	case *size:
		return formatSize(max(*field, 0))
	case *time.Duration:
		return formatDuration(max(*field, 0))
	}
	return ""
}

// formatDuration returns 168h instead of 168h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// formatSize is the inverse of parseSize.
func formatSize(n size) string {
	for _, unit := range slices.Backward(sizeUnits[:3]) {
		if n > 0 && int(n)%unit.factor == 0 {
			return strconv.Itoa(int(n)/unit.factor) + unit.suffix
		}
	}
	return strconv.Itoa(int(n))
}

// complete sets the default if the setting is not set.
func (s *setting) complete(c, defaults *Config) {
	switch field := s.field(c).(type) {
	case *string:
		orDefault(field, *s.field(defaults).(*string))
	case **bool:
		orDefault(field, *s.field(defaults).(**bool))
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

// set parses a value. The error quotes the value and says what is wanted; text settings,
// which may contain a password, have no such error. Empty means the default if that
// depends on other settings.
func (s *setting) set(c *Config, text string) error {
	if text == "" && s.Default != "" {
		s.copy(c, new(Config))
		return nil
	}
	switch field := s.field(c).(type) {
	case *string:
		*field = text
	case *bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return invalid(text, "true or false")
		}
		*field = value
	case **bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return invalid(text, "true or false")
		}
		*field = &value
	case *int:
		value, err := strconv.Atoi(text)
		if err != nil {
			return invalid(text, "a whole number")
		}
		return given(s, field, value, text)
	case *size:
		value, err := parseSize(text)
		if err != nil {
			return err
		}
		return given(s, field, value, text)
	case *time.Duration:
		value, err := time.ParseDuration(text)
		if err != nil {
			return invalid(text, "a duration like 250ms, 5s or 168h")
		}
		return given(s, field, value, text)
	default:
		return fmt.Errorf("cannot be set")
	}
	return nil
}

// invalid returns the error about a value that cannot be parsed or is out of range.
func invalid(value, want string) error {
	const shown = 64 // bytes
	if len(value) > shown {
		value = value[:shown] + "…"
	}
	return fmt.Errorf("invalid value %q; want %s", value, want)
}

// given sets a number. In a Config 0 means the default, so here 0 means off or is
// refused; a negative number is refused.
func given[N int | size | time.Duration](s *setting, field *N, value N, text string) error {
	switch {
	case value > 0:
		*field = value
	case !s.CanBeOff:
		return invalid(text, "more than 0")
	case value < 0:
		return invalid(text, "more than 0, or 0 to turn it off")
	default:
		*field = driver.Off
	}
	return nil
}

// sizeUnits are the suffixes of sizes, in ascending order, then those of plain bytes.
var sizeUnits = []struct {
	suffix string
	factor int
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}

// parseSize reads 1048576, 1024KiB or 1MiB.
func parseSize(text string) (size, error) {
	for _, unit := range sizeUnits {
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
	return 0, invalid(text, "a number of bytes like 65536, 64KiB or 1MiB")
}

// copy copies the value from another configuration.
func (s *setting) copy(to, from *Config) {
	switch field := s.field(to).(type) {
	case *string:
		*field = *s.field(from).(*string)
	case *bool:
		*field = *s.field(from).(*bool)
	case **bool:
		*field = *s.field(from).(**bool)
	case *int:
		*field = *s.field(from).(*int)
	case *size:
		*field = *s.field(from).(*size)
	case *time.Duration:
		*field = *s.field(from).(*time.Duration)
	}
}
