package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/server"
)

// TestDaemonOnRedisWaitsForReplicas is RED-3 for a daemon: with the parameter replicas a send is
// confirmed when a replica has it, and not while all replicas are gone.
func TestDaemonOnRedisWaitsForReplicas(t *testing.T) {
	t.Parallel() // it mostly waits
	group := redistest.Sentinel(t)
	var sentinels []string
	for _, s := range group.Sentinels() {
		sentinels = append(sentinels, s.Addr())
	}
	option := group.ClientOption()
	r := start(t, server.Config{
		DataDir: t.TempDir(),
		Backend: "redis://" + sentinels[0] + "?master_set=" + option.Sentinel.MasterSet + "&replicas=1&addr=" + strings.Join(sentinels[1:], "&addr="),
	})
	if ready := r.get("/readyz"); !strings.Contains(ready, `"durability":"replicated"`) {
		t.Errorf("readiness says %s", ready)
	}
	r.send("orders", "first", "SGk=")
	primary, err := group.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range group.Servers() {
		if s != primary {
			s.Stop()
			defer s.Continue()
		}
	}
	status, fields := r.post(r.OperatorToken(), "/v1/send", `{"topic":"orders","idem_key":"second","payload_b64":"SGk="}`)
	if status != http.StatusServiceUnavailable {
		t.Errorf("without its replicas a send is answered with %d %v", status, fields)
	}
}
