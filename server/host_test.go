package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// hostRequests are the requests that a web page could send to plaintext listeners
// without a token.
var hostRequests = []struct{ name, listener, method, path string }{
	{"health", server.HTTP, "GET", "/healthz"},
	{"readiness", server.HTTP, "GET", "/readyz"},
	{"gRPC health", server.HTTP, "POST", "/grpc.health.v1.Health/Check"},
	{"metrics", server.Metrics, "GET", "/metrics"},
	{"readiness beside metrics", server.Metrics, "GET", "/readyz"},
	{"login of the console", server.HTTP, "GET", "/console/login"},
	{"queues of SQS", server.SQS, "POST", "/?Action=ListQueues"},
}

// asHost sends a request like a page whose name resolves to the address of the daemon.
func (r *running) asHost(listener, method, path, host, token string) int {
	r.t.Helper()
	request, err := http.NewRequest(method, "http://"+r.Address(listener)+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Host = host
	if strings.HasPrefix(path, "/grpc") {
		request.Header.Set("Content-Type", "application/proto")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestForeignHostIsRefusedWithoutToken(t *testing.T) {
	config := server.Config{Profile: server.Micronode, ListenMetrics: "127.0.0.1:0", ListenSQS: "127.0.0.1:0", SQS: server.SQSConfig{Unsigned: true}}
	r := start(t, config)
	for _, test := range hostRequests {
		if status := r.asHost(test.listener, test.method, test.path, "evil.example:80", ""); status != http.StatusBadRequest && status != http.StatusForbidden {
			t.Errorf("%s for evil.example: %d, want 400 or 403", test.name, status)
		}
		for _, host := range []string{"localhost:1", "127.0.0.1", "mailboxd:9410"} {
			if status := r.asHost(test.listener, test.method, test.path, host, ""); status != http.StatusOK {
				t.Errorf("%s for %s: %d, want 200", test.name, host, status)
			}
		}
	}
	// A proxy on this machine may keep the original name.
	if status := r.asHost(server.HTTP, "POST", "/v1/ping", "mailbox.example.com", r.OperatorToken().Reveal()); status != http.StatusOK {
		t.Errorf("a request with a token, by the name of a proxy: %d", status)
	}
	r.halt()
	config.AllowedHosts = "mailbox.example.com, *.prod.example"
	r = start(t, config)
	for _, test := range hostRequests {
		for _, host := range []string{"mailbox.example.com", "a.prod.example:80"} {
			if status := r.asHost(test.listener, test.method, test.path, host, ""); status != http.StatusOK {
				t.Errorf("%s for %s, which is allowed: %d", test.name, host, status)
			}
		}
	}
	config.AllowedHosts = "http://mailbox.example.com"
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "listen.hosts") {
		t.Errorf("a URL for a name: %v", err)
	}
}
