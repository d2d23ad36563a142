package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// TestScheduleRunsAgainAfterDrain stops a daemon on disk while it runs a schedule. That it leaves no
// goroutine is checked when the tests of the package have ended.
func TestScheduleRunsAgainAfterDrain(t *testing.T) {
	config := server.Config{DataDir: t.TempDir()}
	post := func(r *running, path, body string) map[string]any {
		t.Helper()
		status, fields := r.post(r.OperatorToken(), path, body)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %v", path, status, fields)
		}
		return fields
	}
	through := func(r *running) string {
		return fmt.Sprint(post(r, "/v1/schedules/get", `{"topic":"jobs","name":"often"}`)["through"])
	}
	awaitRun := func(r *running) {
		for before := through(r); through(r) == before; {
			<-time.After(20 * time.Millisecond)
		}
	}
	first := start(t, config)
	post(first, "/v1/queues/configure", `{"topic":"jobs","config":{}}`)
	post(first, "/v1/schedules/put", `{"topic":"jobs","name":"often","every_ms":1000}`)
	awaitRun(first)
	first.halt()
	second := start(t, config)
	awaitRun(second)
}
