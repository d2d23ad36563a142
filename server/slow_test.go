package server_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// slowRequests are requests without a token, on every HTTP listener, that
// announce a body and send one byte of it.
var slowRequests = []struct{ name, listener, head string }{
	{"health", server.HTTP, "GET /healthz HTTP/1.1"},
	{"readiness", server.HTTP, "GET /readyz HTTP/1.1"},
	{"unclean path", server.HTTP, "GET //healthz HTTP/1.1"},
	{"unknown path", server.HTTP, "GET /nowhere HTTP/1.1"},
	{"send", server.HTTP, "POST /v1/send HTTP/1.1"},
	{"call", server.HTTP, "POST /mailbox.v1.Mailbox/Send HTTP/1.1\r\nContent-Type: application/json"},
	{"gRPC health", server.HTTP, "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nContent-Type: application/proto"},
	{"metrics", server.Metrics, "GET /metrics HTTP/1.1"},
	{"metrics, unknown path", server.Metrics, "GET /nowhere HTTP/1.1"},
	{"SQS without signature", server.SQS, "POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.SendMessage"},
	{"SQS health", server.SQS, "GET /health HTTP/1.1"},
}

func (r *running) beginSlowly(listener, head string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Address(listener))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "%s\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx", head); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestSlowBodyWithoutTokenIsCutOff(t *testing.T) {
	t.Parallel()
	r := start(t, server.Config{
		Profile: server.Micronode, ListenMetrics: "127.0.0.1:0", ListenSQS: "127.0.0.1:0", ReadTimeout: 500 * time.Millisecond,
		SQS: server.SQSConfig{Compatibility: "elasticmq"},
	})
	conns := make([]net.Conn, len(slowRequests))
	for i, slow := range slowRequests {
		conns[i] = r.beginSlowly(slow.listener, slow.head)
	}
	late := time.Now().Add(time.Minute)
	for i, c := range conns {
		_ = c.SetReadDeadline(late)
		answer, err := io.ReadAll(c)
		if err != nil || len(answer) == 0 {
			t.Errorf("%s: %q, and the connection ended with %v", slowRequests[i].name, answer, err)
		}
	}
}

func TestDrainDoesNotWaitForSlowBodies(t *testing.T) {
	t.Parallel()
	r := start(t, server.Config{
		Profile: server.Micronode, ListenMetrics: "127.0.0.1:0", ListenSQS: "127.0.0.1:0", ReadTimeout: 5 * time.Minute, DrainTimeout: 5 * time.Minute,
		SQS: server.SQSConfig{Compatibility: "elasticmq"},
	})
	var last net.Conn
	for _, slow := range slowRequests {
		last = r.beginSlowly(slow.listener, slow.head)
	}
	_ = last.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := last.Read(make([]byte, 1)); err != nil { // the others arrived before
		t.Fatal(err)
	}
	began := time.Now()
	r.halt()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the drain took %v", took)
	}
}
