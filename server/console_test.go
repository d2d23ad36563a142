package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// page returns the status, the address and the text of a page, after redirects.
func (r *running) page(address string) (status int, path, text string) {
	r.t.Helper()
	response, err := http.Get(address)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, response.Request.URL.Path, string(body)
}

func TestConsoleIsServedBesideProtocols(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode})
	base := "http://" + r.Address(server.HTTP)
	for _, path := range []string{"/console", "/console/", "/console/queues"} {
		if status, at, text := r.page(base + path); status != http.StatusOK || at != "/console/login" || !strings.Contains(text, "A token is the login") {
			t.Errorf("%s: %d at %s: %.200s", path, status, at, text)
		}
	}
	if answer, err := http.DefaultTransport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, base+"/console", nil)); err != nil {
		t.Fatal(err)
	} else if at := answer.Header.Get("Location"); answer.Body.Close() != nil || at != "console/" {
		t.Errorf("sent to %q, want a relative address, which works behind a proxy that removes a prefix", at)
	}
	if status, _, _ := r.page(base + "/healthz"); status != http.StatusOK {
		t.Errorf("health beside the console: %d", status)
	}
	if status, _, text := r.page(base + "/console/a/b"); status == http.StatusOK || strings.Contains(text, "<html") {
		t.Errorf("a path below the console: %d %.200s", status, text)
	}
	own := httptest.NewServer(http.StripPrefix("/ops", r.Console()))
	defer own.Close()
	if status, at, text := r.page(own.URL + "/ops/mail/queues"); status != http.StatusOK || at != "/ops/mail/login" || !strings.Contains(text, "A token is the login") {
		t.Errorf("under a prefix: %d at %s: %.200s", status, at, text)
	}
}

func TestConsoleIsMovedOrTurnedOff(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, ConsolePath: "/ops/mail/"})
	base := "http://" + r.Address(server.HTTP)
	if status, at, _ := r.page(base + "/ops/mail/"); status != http.StatusOK || at != "/ops/mail/login" {
		t.Errorf("moved: %d at %s", status, at)
	}
	if status, _, _ := r.page(base + "/console/"); status != http.StatusNotFound {
		t.Errorf("where it was: %d", status)
	}
	r.halt()
	r = start(t, server.Config{Profile: server.Micronode, ConsolePath: server.Off})
	if status, _, _ := r.page("http://" + r.Address(server.HTTP) + "/console/"); status != http.StatusNotFound {
		t.Errorf("turned off: %d", status)
	}
	for _, path := range []string{"/", "console", "/console", "//", "/v1/console/", "/a?b/"} {
		config := server.Config{ConsolePath: path}
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "listen.console") {
			t.Errorf("path %q: %v", path, err)
		}
	}
}

func TestConsoleBeforeStartIsUnavailable(t *testing.T) {
	daemon, err := server.New(server.Config{Profile: server.Micronode}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	daemon.Console().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
}
