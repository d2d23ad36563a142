package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
)

// Validate returns nil if the configuration is valid, and otherwise an error that names
// the setting, its value and what is wanted. It does no I/O.
func (c Config) Validate() error {
	c = c.complete()
	for _, check := range []func(*Config) error{
		checkProfile, checkBackend, checkListeners, checkConsole, checkSQS, checkTLS, checkRanges, checkLog,
	} {
		if err := check(&c); err != nil {
			return err
		}
	}
	return nil
}

// named returns the key and the flag of a setting, for errors.
func named(key string) string { return fmt.Sprintf("%s (--%s)", key, settingOf(key).Flag) }

// about returns the error about an invalid value of a setting.
func about(key, value, want string) error {
	return fmt.Errorf("%s: %w", named(key), invalid(value, want))
}

func checkProfile(c *Config) error {
	if c.Profile != Micronode && c.Profile != Macronode {
		return about("profile", c.Profile, Micronode+" or "+Macronode)
	}
	return nil
}

func checkBackend(c *Config) error {
	const want = "want memory:, disk:DIRECTORY, redis://HOST:PORT or postgres://HOST:PORT/DATABASE"
	scheme, rest, ok := strings.Cut(c.Backend, ":")
	switch {
	case !ok:
		return fmt.Errorf("backend (--backend): invalid value; " + want)
	case scheme == "memory" && rest != "":
		return fmt.Errorf("backend (--backend): memory: takes nothing after the colon")
	case scheme == "disk" && rest == "":
		return fmt.Errorf("backend (--backend): disk: needs a directory after the colon")
	case scheme == "disk" && *c.Amnesia:
		return fmt.Errorf("backend (--backend): disk: writes files, which amnesia forbids; choose memory:, redis: or postgres:, or turn amnesia off")
	case scheme == "memory" || scheme == "disk":
		return nil
	case scheme == "redis" || scheme == "rediss":
		if _, _, err := splitReplicas(c.Backend); err != nil {
			return fmt.Errorf("backend (--backend): %w", err)
		}
		return nil
	case scheme == "postgres" || scheme == "postgresql":
		parsed, err := url.Parse(c.Backend)
		if err != nil || parsed.Host == "" && parsed.Query().Get("host") == "" || strings.Trim(parsed.Path, "/") == "" {
			return fmt.Errorf("backend (--backend): invalid URL; want postgres://USER:PASSWORD@HOST:PORT/DATABASE")
		}
		return nil
	}
	return fmt.Errorf("backend (--backend): unknown scheme %s:; "+want, scheme)
}

// checkConsole refuses a path that would hide others.
func checkConsole(c *Config) error {
	path := c.ConsolePath
	if path == Off {
		return nil
	}
	if len(path) < 3 || !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%") || strings.Contains(path, "//") || strings.HasPrefix(path, "/v1/") {
		return about("listen.console", path, "a path like /console/, outside /v1/, or off")
	}
	return nil
}

func checkListeners(c *Config) error {
	if c.Listen == Off && c.ListenOAP == Off && c.Socket == "" && (c.ListenSQS == Off || c.ListenSQS == "") {
		return fmt.Errorf("listen.http (--listen) and listen.oap (--listen-oap) are off and there is no socket; no client could reach the daemon")
	}
	for _, l := range []struct{ key, address string }{
		{"listen.http", c.Listen}, {"listen.oap", c.ListenOAP}, {"listen.sqs", c.ListenSQS}, {"listen.metrics", c.ListenMetrics},
	} {
		if l.address == Off || l.address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(l.address); err != nil {
			return about(l.key, l.address, "HOST:PORT")
		}
		if c.InsecureListen || loopback(l.address) {
			continue
		}
		if l.key == "listen.metrics" { // which is never encrypted
			return fmt.Errorf("%s: %s is beyond this machine, and would show the names of queues and tenants in plaintext and without a token; set listen.insecure (--insecure-listen) if a firewall restricts access", named(l.key), l.address)
		}
		if c.TLSCert == "" {
			return fmt.Errorf("%s: %s is beyond this machine, and tokens and messages would travel in plaintext; set tls.cert and tls.key, or listen.insecure (--insecure-listen) if the network protects them", named(l.key), l.address)
		}
	}
	if _, err := c.hosts(); err != nil {
		return fmt.Errorf("%s: %w", named("listen.hosts"), err)
	}
	return nil
}

func checkTLS(c *Config) error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return fmt.Errorf("tls.cert (--tls-cert) and tls.key (--tls-key) go together; set both or none")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return fmt.Errorf("tls.client_ca (--tls-client-ca) needs tls.cert and tls.key")
	}
	return nil
}

func checkLog(c *Config) error {
	if c.LogFormat != "json" && c.LogFormat != "text" {
		return about("log.format", c.LogFormat, "json or text")
	}
	if _, err := c.logLevel(); err != nil {
		return about("log.level", c.LogLevel, "debug, info, warn or error")
	}
	return nil
}

func (c *Config) logLevel() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(c.LogLevel))
	return level, err
}
