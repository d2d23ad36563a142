package server_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

func TestMetricsHaveOneNamespaceAndQueueLabel(t *testing.T) {
	r := start(t, server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ListenOAP: "127.0.0.1:0"})
	r.send("orders", "k", "SGk=")
	r.receive("orders")
	figures := r.get("/metrics")
	series := regexp.MustCompile(`(?m)^([a-zA-Z0-9_:]+)(\{[^}]*\})? `)
	for _, found := range series.FindAllStringSubmatch(figures, -1) {
		name, labels := found[1], found[2]
		if !strings.HasPrefix(name, "mailbox_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is outside of the namespace mailbox_", name)
		}
		if strings.Contains(labels, "topic=") {
			t.Errorf("%s has the label topic: %s", name, labels)
		}
	}
}

func TestMetricsNameEveryBoundOfProcess(t *testing.T) {
	r := start(t, server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ListenOAP: "127.0.0.1:0", MaxConnections: 90, DiskReserve: 1 << 20})
	r.send("orders", "k", "SGk=")
	figures := r.get("/metrics")
	for _, want := range []string{
		`mailbox_connections{listener="http"} 1`, `mailbox_connections_limit{listener="http"} 90`,
		"mailbox_oap_connections 0", "mailbox_oap_connections_limit 90", "mailbox_oap_sessions 0", "mailbox_oap_sessions_limit ",
		"mailbox_revocations 0", "mailbox_revocations_limit 262144",
		"mailbox_disk_bytes ", "mailbox_disk_free_bytes ", "mailbox_disk_reserve_bytes 1.048576e+06",
	} {
		if !strings.Contains(figures, "\n"+want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	for _, share := range []string{
		"quota_meters", "in_flight", "queues", "waiting_receives", "operations", "request_memory",
		"sessions", "session_memory", "http_connections", "oap_connections",
	} {
		for _, name := range []string{"used", "limit", "owners", "refusals_total"} {
			if want := "mailbox_share_" + name + `{share="` + share + `"}`; !strings.Contains(figures, want) {
				t.Errorf("the metrics have no %s", want)
			}
		}
	}
	if t.Failed() {
		t.Log(figures)
	}
}
