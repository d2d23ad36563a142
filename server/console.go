package server

import (
	"context"
	"net/http"
	"path"
	"strings"

	"github.com/mailboxmq/mailbox/internal/version"
	"github.com/mailboxmq/mailbox/server/internal/console"
	"github.com/mailboxmq/mailbox/server/internal/guard"
)

// Console returns the web console of the daemon, for programs that serve it themselves: on
// a listener of their own, or under a prefix that ends with a slash. Its pages need a token
// as the login. Before the daemon has started it answers with status 503. The program
// bounds connections and headers, as for any handler.
func (s *Server) Console() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.started:
			s.console.ServeHTTP(w, r)
		default:
			http.Error(w, "the daemon has not started", http.StatusServiceUnavailable)
		}
	})
}

func (s *Server) newConsole(config *Config, hosts guard.Hosts) *console.Handler {
	return console.New(console.Options{
		Broker: s.broker, Logger: s.log, WriteTimeout: config.WriteTimeout, Hosts: hosts, Version: version.Read().Version,
		Health: func(ctx context.Context) console.Health {
			r := s.readiness(ctx)
			return console.Health{Missing: r.Missing, Degraded: r.Degraded, Notes: r.Notes}
		},
		Settings: s.shownSettings,
	})
}

// besideConsole serves the console under its path, and other elsewhere.
func (s *Server) besideConsole(config *Config, other http.Handler) http.Handler {
	prefix := config.ConsolePath
	if prefix == Off {
		return other
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, inside := strings.CutPrefix(r.URL.Path, prefix)
		switch {
		case inside && !strings.Contains(name, "/"):
			s.console.ServeHTTP(w, r)
		case r.URL.Path+"/" == prefix && r.Method == http.MethodGet:
			w.Header().Set("Location", path.Base(prefix)+"/") // relative: a proxy may have removed a prefix
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			other.ServeHTTP(w, r)
		}
	})
}

// shownSettings returns the settings in force, without those that may contain a password.
func (s *Server) shownSettings() []console.Setting {
	config := s.Config()
	var shown []console.Setting
	for _, setting := range allSettings() {
		value := setting.text(&config)
		if setting.Secret {
			value = "(not shown)"
		}
		if !setting.Deprecated {
			shown = append(shown, console.Setting{Key: setting.Key, Value: value, Help: setting.Help})
		}
	}
	return shown
}
