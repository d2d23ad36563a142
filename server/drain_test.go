package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// probe fetches a page over a new connection, as a load balancer does.
func (r *running) probe(path string) (int, string) {
	r.t.Helper()
	r.client.CloseIdleConnections()
	response, err := r.client.Get(r.base + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var fields json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&fields); err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(fields)
}

// awaitUnready waits until readiness fails.
func (r *running) awaitUnready() string {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		status, body := r.probe("/readyz")
		if status == http.StatusServiceUnavailable {
			return body
		}
		if time.Now().After(deadline) {
			r.t.Fatal("readiness does not fail")
		}
	}
}

func TestReadinessFailsBeforeListenersClose(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, DrainDelay: time.Hour})
	r.stop()
	if body := r.awaitUnready(); !strings.Contains(body, "not_draining") || strings.Contains(body, `"degraded":true`) {
		t.Errorf("readiness says %s", body)
	}
	if status, body := r.probe("/healthz"); status != 200 {
		t.Errorf("health is %d %s", status, body)
	}
	r.send("orders", "k", "SGk=") // over new connections: probe has closed the idle one
	if status, fields := r.post(r.OperatorToken(), "/v1/recv", `{"topic":"orders"}`); status != 200 || len(fields["messages"].([]any)) != 1 {
		t.Errorf("receive: %d %v", status, fields)
	}
	if health, err := r.client.Post(r.base+"/grpc.health.v1.Health/Check", "application/proto", http.NoBody); err != nil {
		t.Error(err)
	} else {
		var answer [2]byte
		if _, err := health.Body.Read(answer[:]); answer[1] != 2 { // NOT_SERVING
			t.Errorf("gRPC health is %v, %v", answer, err)
		}
		_ = health.Body.Close()
	}
	began := time.Now()
	r.DrainNow()
	r.DrainNow()
	r.halt()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("DrainNow left %v of the delay", took)
	}
}

func TestDrainDelayEndsWithoutSecondSignal(t *testing.T) {
	const delay = 300 * time.Millisecond
	r := start(t, server.Config{Profile: server.Micronode, DrainDelay: delay})
	began := time.Now()
	r.halt()
	if took := time.Since(began); took < delay {
		t.Errorf("stopped after %v", took)
	}
}
