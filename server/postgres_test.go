package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

// TestDaemonOnPostgreSQLKeepsMessagesAndDeadLetters kills the server, and restarts it: what the
// daemon has confirmed is there, and readiness has said so before.
func TestDaemonOnPostgreSQLKeepsMessagesAndDeadLetters(t *testing.T) {
	postgres := pgtest.Start(t, "fsync=on")
	r := start(t, server.Config{DataDir: t.TempDir(), Backend: postgres.URL()})
	ready := r.get("/readyz")
	for _, want := range []string{`"dlq_profile":"durable"`, `"durability":"disk"`} {
		if !strings.Contains(ready, want) {
			t.Errorf("readiness lacks %s: %s", want, ready)
		}
	}
	dead := r.send("orders", "dead", "SGk=")
	r.receive("orders")
	if status, fields := r.post(r.OperatorToken(), "/v1/bury/"+dead, `{"reason":"fatal"}`); status != http.StatusOK {
		t.Fatal(fields)
	}
	waiting := r.send("orders", "waiting", "SGk=")
	if status, fields := r.post(r.OperatorToken(), "/v1/backup", `{}`); status == http.StatusOK || !strings.Contains(fmt.Sprint(fields), "pg_dump") {
		t.Errorf("a backup: %d %v, want a refusal that names pg_dump", status, fields)
	}
	const schedule = `{"topic":"orders","name":"daily"}`
	if status, fields := r.post(r.OperatorToken(), "/v1/schedules/put", `{"topic":"orders","name":"daily","every_ms":86400000}`); status != http.StatusOK {
		t.Errorf("a schedule: %d %v", status, fields)
	}
	postgres.Kill()
	if err := postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, stats := r.post(r.OperatorToken(), "/v1/stats", `{"topic":"orders"}`); status != http.StatusOK || stats["dead"] != 1.0 || stats["ready"] != 1.0 {
		t.Errorf("after the restart: %d %v", status, stats)
	}
	if status, fields := r.post(r.OperatorToken(), "/v1/schedules/get", schedule); status != http.StatusOK || !strings.Contains(fmt.Sprint(fields), "daily") {
		t.Errorf("the schedule after the restart: %d %v", status, fields)
	}
	wantReceived(t, r, waiting)
}

// TestDaemonsOnOnePostgreSQLShareQueues sends to one daemon and receives from another, in one
// schema, and not in another one.
func TestDaemonsOnOnePostgreSQLShareQueues(t *testing.T) {
	postgres := pgtest.Start(t, "fsync=off")
	dir := t.TempDir()
	daemon := func(name, schema string) *running {
		return start(t, server.Config{
			Profile: server.Macronode, DataDir: dir, Backend: postgres.URL() + "&schema=" + schema,
			RevocationFile: filepath.Join(dir, "revocations."+name),
		})
	}
	first, second, other := daemon("first", "shared"), daemon("second", "shared"), daemon("other", "other")
	id := first.send("orders", "k", "SGk=")
	if status, fields := other.post(other.OperatorToken(), "/v1/stats", `{"topic":"orders"}`); status != http.StatusNotFound {
		t.Errorf("the daemon in another schema answers %d %v", status, fields)
	}
	wantReceived(t, second, id)
}

// TestDaemonsOnOnePostgreSQLShareThrottles throttles a group through one daemon, and receives from another.
func TestDaemonsOnOnePostgreSQLShareThrottles(t *testing.T) {
	postgres := pgtest.Start(t, "fsync=off")
	dir := t.TempDir()
	daemon := func(name string) *running {
		return start(t, server.Config{
			Profile: server.Macronode, DataDir: dir, Backend: postgres.URL(), RevocationFile: filepath.Join(dir, "revocations."+name),
		})
	}
	first, second := daemon("first"), daemon("second")
	expect := func(r *running, path, body string) map[string]any {
		t.Helper()
		status, fields := r.post(r.OperatorToken(), path, body)
		if status/100 != 2 {
			t.Fatalf("%s %s answers %d %v", path, body, status, fields)
		}
		return fields
	}
	expect(first, "/v1/queues/configure", `{"topic":"orders","config":{"fair_groups":true,"group_limits":"in-flight=1"}}`)
	expect(first, "/v1/send", `{"topic":"orders","idem_key":"k","payload_b64":"SGk=","group":"g"}`)
	expect(first, "/v1/throttle", `{"topic":"orders","group":"g","wait_ms":3600000}`)
	if fields := expect(second, "/v1/stats", `{"topic":"orders"}`); fields["throttled"] != 1.0 {
		t.Errorf("stats are %v, want 1 throttled", fields)
	}
	expect(second, "/v1/throttle", `{"topic":"orders","group":"g","wait_ms":0}`)
	if fields := expect(first, "/v1/stats", `{"topic":"orders"}`); fields["throttled"] != nil {
		t.Errorf("stats are %v, want none throttled", fields)
	}
}

// TestDaemonsOnOnePostgreSQLShareSlots creates a slot through one daemon and answers it through another, while a
// client waits at the first.
func TestDaemonsOnOnePostgreSQLShareSlots(t *testing.T) {
	postgres := pgtest.Start(t, "fsync=off")
	dir := t.TempDir()
	store := func(name string) driver.ReplyStore {
		r := start(t, server.Config{
			Profile: server.Macronode, DataDir: dir, Backend: postgres.URL(), RevocationFile: filepath.Join(dir, "revocations."+name),
		})
		box := remotebox.New([]string{r.Address(server.OAP)}, r.OperatorToken().Reveal(), nil)
		t.Cleanup(func() { _ = box.Close() })
		return box.Replies()
	}
	asking, answering := store("first"), store("second")
	if err := asking.Create(t.Context(), "question", time.Hour); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		slot, err := asking.Wait(t.Context(), "question", 10*time.Minute)
		if err == nil && (slot.State != driver.SlotResolved || string(slot.Answer.Body) != "answer") {
			err = fmt.Errorf("got %+v", slot)
		}
		done <- err
	}()
	if err := answering.Resolve(t.Context(), "question", driver.Answer{Body: []byte("answer")}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func wantReceived(t *testing.T, r *running, id string) {
	t.Helper()
	messages := r.receive("orders")
	if len(messages) != 1 || messages[0].(map[string]any)["msg_id"] != id {
		t.Errorf("received %v, want %s", messages, id)
	}
}

func TestDaemonOnPostgreSQLSaysWhatIsWrong(t *testing.T) {
	for _, backend := range []string{
		"postgres://127.0.0.1:5432", "postgres:///shop", "postgresql://shop:secret@127.0.0.1:5432/%zz",
	} {
		err := server.Config{DataDir: t.TempDir(), Backend: backend}.Validate()
		if err == nil || !strings.Contains(err.Error(), "want postgres://USER:PASSWORD@HOST:PORT/DATABASE") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", backend, err)
		}
	}
}

// TestReadinessFollowsTheStandbyOfPostgreSQL is PG-5: the daemon says that messages are on two machines
// as long as they are, and is degraded when they are not.
func TestReadinessFollowsTheStandbyOfPostgreSQL(t *testing.T) {
	pair := pgtest.StartPair(t, true)
	r := start(t, server.Config{DataDir: t.TempDir(), Backend: pair.URL()})
	if ready := r.get("/readyz"); !strings.Contains(ready, `"durability":"replicated"`) || strings.Contains(ready, `"replication"`) {
		t.Errorf("with a synchronous standby: %s", ready)
	}
	pair.Configure(t, pair.Primary, "synchronous_standby_names", "")
	for ready := ""; !strings.Contains(ready, `"durability":"disk"`); <-time.After(50 * time.Millisecond) {
		ready = r.get("/readyz")
		if strings.Contains(ready, `"durability":"disk"`) && (!strings.Contains(ready, `"degraded":true`) || !strings.Contains(ready, "can lose confirmed messages")) {
			t.Errorf("without a synchronous standby: %s", ready)
		}
	}
}

// TestFailoverWithoutSynchronousStandbyLosesAndReadinessSaysSo is the counterpart of
// TestFailoverLosesNothingConfirmed: the standby is asynchronous, and has stopped to follow. The message that is
// confirmed then is lost by each failover, and readiness has said that it can be (PG-5).
func TestFailoverWithoutSynchronousStandbyLosesAndReadinessSaysSo(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, false)
	r := start(t, server.Config{DataDir: t.TempDir(), Backend: pair.URL()})
	call := func(path, body string) map[string]any { // the connections of a failed server break first
		for {
			if status, fields := r.post(r.OperatorToken(), path, body); status == http.StatusOK {
				return fields
			} else if status != http.StatusServiceUnavailable {
				t.Fatalf("%s: %d %v", path, status, fields)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	lost := 0
	for n := range volume.Count(t, 1, 100) {
		send := func(key string) string {
			return call("/v1/send", fmt.Sprintf(`{"topic":"orders-%d","idem_key":%q,"payload_b64":"SGk="}`, n, key))["msg_id"].(string)
		}
		kept := send("kept")
		pair.AwaitReplay(t)
		pair.Configure(t, pair.Standby, "primary_conninfo", "")
		pair.AwaitAlone(t)
		for ready := ""; !strings.Contains(ready, "can lose confirmed messages"); <-time.After(20 * time.Millisecond) {
			if ready = r.get("/readyz"); strings.Contains(ready, "replicated") {
				t.Fatalf("with an asynchronous standby: %s", ready)
			}
		}
		send("lost")
		pair.Crash()
		pair.Promote(t)
		got := call("/v1/recv", fmt.Sprintf(`{"topic":"orders-%d","visibility_ms":60000,"max_messages":10}`, n))["messages"].([]any)
		if len(got) != 1 || got[0].(map[string]any)["msg_id"] != kept {
			t.Fatalf("failover %d: received %v, want only %s, which the standby had", n, got, kept)
		}
		lost++
	}
	t.Logf("%d failovers lost a confirmed message each", lost)
}

// TestDaemonTracesDuplicateOfTransaction commits a message whose dedup key was used, in a transaction of a process that is gone: a receive of the
// daemon drops it, and its trace says why.
func TestDaemonTracesDuplicateOfTransaction(t *testing.T) {
	t.Parallel()
	postgres := pgtest.Start(t, "fsync=off")
	r := start(t, server.Config{DataDir: t.TempDir(), Backend: postgres.URL()})
	r.send("orders", "k", "SGk=")
	pool := postgres.Pool(t)
	backend, err := pgbox.Open(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	keyed := []driver.Outgoing{{Body: []byte("body"), DedupKey: "key"}}
	first, err := orders.Send(t.Context(), keyed)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := orders.Send(pgbox.InTx(t.Context(), tx), keyed)
	if err := errors.Join(err, backend.Close(), tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	life := fmt.Sprintf(`{"topic":"orders","msg_id":%q}`, second[0].ID)
	want := "the dedup key was used for message " + first[0].ID
	for until := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		r.receive("orders")
		_, fields := r.post(r.OperatorToken(), "/v1/life", life)
		if text := fmt.Sprint(fields); strings.Contains(text, "kind:removed") && strings.Contains(text, want) {
			break
		} else if time.Now().After(until) {
			t.Fatalf("the trace is %v, want a removal with the note %q", fields, want)
		}
	}
	if text := r.get("/metrics"); !strings.Contains(text, `mailbox_deduplicated_total{queue="orders"} 1`) {
		t.Error("the duplicate is not counted")
	}
}
