package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// A daemon runs in the test, on loopback.
type daemon struct {
	*server.Server
	t      *testing.T
	client *http.Client
	stop   context.CancelFunc // begins the drain
}

// startDaemon starts a daemon with a configuration whose addresses and directory are
// filled in.
func startDaemon(t *testing.T, config server.Config) *daemon {
	t.Helper()
	config.DataDir, config.Listen, config.ListenOAP, config.ListenMetrics = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	config.ListenSQS, config.SQS = "127.0.0.1:0", server.SQSConfig{Unsigned: true}
	s, err := server.New(config, &server.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Started():
	case err := <-done:
		cancel()
		t.Fatalf("the daemon did not start: %v", err)
	}
	d := &daemon{Server: s, t: t, client: &http.Client{Transport: &http.Transport{}}, stop: cancel}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		d.client.CloseIdleConnections()
	})
	return d
}

// post posts JSON to a listener and expects a status.
func (d *daemon) post(listener, path, token, body string, want int, headers ...string) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://"+d.Address(listener)+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := d.client.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != want {
		d.t.Fatalf("%s %s: %s: %s", path, body, response.Status, text)
	}
}

// prepare makes the queue that is always full.
func (d *daemon) prepare() {
	token := d.OperatorToken().Reveal()
	d.post(server.HTTP, "/v1/queues/configure", token, `{"topic":"full","config":{"max_messages":1}}`, http.StatusOK)
	d.post(server.HTTP, "/v1/send", token, `{"topic":"full","idem_key":"k","payload_b64":""}`, http.StatusOK)
}

// round uses every surface but OAP/1, which the worker uses, and has requests refused.
func (d *daemon) round(i int) {
	token := d.OperatorToken().Reveal()
	key := func(format string) string { return fmt.Sprintf(format, i) }
	d.post(server.HTTP, "/v1/send", token, key(`{"topic":"plain","idem_key":"%d","payload_b64":""}`), http.StatusOK)
	d.post(server.HTTP, "/v1/recv", token, `{"topic":"plain"}`, http.StatusOK)
	d.post(server.HTTP, "/v1/send", token, key(`{"topic":"full","idem_key":"%d","payload_b64":""}`), http.StatusTooManyRequests)
	d.post(server.HTTP, "/v1/stats", "wrong", `{"topic":"plain"}`, http.StatusUnauthorized)
	d.post(server.HTTP, "/mailbox.v1.Mailbox/Ping", token, `{}`, http.StatusOK)
	sqs := func(action, body string, want int) {
		d.post(server.SQS, "/", "", body, want, "Content-Type", "application/x-amz-json-1.0", "X-Amz-Target", "AmazonSQS."+action)
	}
	sqs("ListQueues", `{}`, http.StatusOK)
	sqs("GetQueueUrl", `{"QueueName":"absent"}`, http.StatusBadRequest)
}
