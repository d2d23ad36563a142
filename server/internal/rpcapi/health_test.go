package rpcapi_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/capability"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// checkHealth asks as a probe of gRPC does, byte by byte.
func checkHealth(t *testing.T, d *daemon, method, service string) (answer, status string) {
	t.Helper()
	message := ""
	if service != "" {
		message = "\x0a" + string(rune(len(service))) + service
	}
	body := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://daemon/grpc.health.v1.Health/"+method, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	response, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if status = response.Trailer.Get("Grpc-Status"); status == "" {
		status = response.Header.Get("Grpc-Status")
	}
	return string(text), status
}

func TestHealthCheckNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), broker.Limits{})
		defer d.stop()
		for _, service := range []string{"", "mailbox.v1.Mailbox"} {
			if answer, status := checkHealth(t, d, "Check", service); answer != "\x00\x00\x00\x00\x02\x08\x01" || status != "0" {
				t.Errorf("%q is served: %q, status %s", service, answer, status)
			}
		}
		if _, status := checkHealth(t, d, "Check", "other"); status != "5" {
			t.Errorf("an unknown service: status %s, want not found", status)
		}
		if _, status := checkHealth(t, d, "Watch", ""); status == "0" || status == "" {
			t.Errorf("a stream without a token: status %s", status)
		}
		d.broker.SetState(broker.StateSettling)
		if answer, status := checkHealth(t, d, "Check", ""); answer != "\x00\x00\x00\x00\x02\x08\x02" || status != "0" {
			t.Errorf("while it drains: %q, status %s", answer, status)
		}
	})
}

func TestHealthChecksWithoutTokenAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), broker.Limits{})
		defer d.stop()
		began := time.Now()
		for range 2000 {
			if _, status := checkHealth(t, d, "Check", ""); status != "0" {
				t.Fatalf("status %s", status)
			}
		}
		if took := time.Since(began); took < time.Second {
			t.Errorf("2,000 checks took %v", took)
		}
	})
}

func TestCallsWithoutTokenAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), broker.Limits{})
		defer d.stop()
		client := d.rpc(capability.Token{}, connect.WithGRPC())
		began := time.Now()
		for range 2000 {
			if _, err := client.Ping(t.Context(), &mailboxv1.PingRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < time.Second {
			t.Errorf("2,000 calls took %v", took)
		}
	})
}

func TestCallsAreCountedByMethodAndCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), broker.Limits{})
		defer d.stop()
		client := d.rpc(d.mint(t, ""), connect.WithGRPC())
		if _, err := client.Ping(t.Context(), &mailboxv1.PingRequest{}); err != nil {
			t.Fatal(err)
		}
		_, _ = client.Stats(t.Context(), &mailboxv1.StatsRequest{Topic: "nowhere"})
		stream, err := client.RecvStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&mailboxv1.RecvStreamRequest{Topic: "orders", IdleMs: 10, Credit: 1})
		_ = stream.CloseRequest()
		_, _ = stream.Receive()
		_ = stream.CloseResponse()
		families, err := d.broker.Metrics().Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, family := range families {
			if strings.HasPrefix(family.GetName(), "mailbox_rpc_") {
				text.WriteString(family.String())
			}
		}
		for _, want := range []string{`"Ping"`, `"ok"`, `"Stats"`, `"not_found"`, `"RecvStream"`, "mailbox_rpc_request_latency_seconds"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the metrics have no %s: %s", want, text.String())
			}
		}
	})
}
