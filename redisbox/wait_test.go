package redisbox

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

func TestWithoutReplicasNothingIsConfirmed(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t, redistest.Replicas(1))
	ctx := t.Context()
	primary, err := group.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, connect(t, group.ClientOption()), &Options{Replicas: 1, ReplicaTimeout: time.Minute})
	q := openQueue(t, b)
	if got := q.Traits().Durability; got != driver.DurabilityReplicated {
		t.Errorf("got durability %q", got)
	}
	send(t, q, "a", "b")
	d := receive(t, q, 1, hold)[0]
	b.server.ReplicaTimeout = 100 * time.Millisecond // too short for the replicas
	for _, server := range group.Servers() {
		if server != primary {
			server.Stop()
			defer server.Continue()
		}
	}
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("c")}})
	wantCode(t, err, driver.ErrUnavailable)
	wantCode(t, q.Ack(ctx, []driver.Receipt{d.Receipt}), driver.ErrUnavailable)
	receive(t, q, 1, hold) // receiving goes on
}

// TestDurableCallsWaitOnTheirOwnConnection: WAIT waits for the writes of the connection it
// is sent on, and says nothing about others.
func TestDurableCallsWaitOnTheirOwnConnection(t *testing.T) {
	group := redistest.Sentinel(t, redistest.Replicas(1))
	primary, err := group.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, connect(t, primary.ClientOption()), &Options{Replicas: 1, ReplicaTimeout: time.Minute})
	q := openQueue(t, b)
	if _, err := primary.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil { // so that it is loaded again here too
		t.Fatal(err)
	}
	var lines []string
	stop, err := primary.Monitor(t.Context(), func(line string) { lines = append(lines, line) })
	if err != nil {
		t.Fatal(err)
	}
	send(t, q, "a", "b", "c")
	got := receive(t, q, 3, hold)
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[1].Receipt}}); err != nil {
		t.Fatal(err)
	}
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[2].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Redrive(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	checkWaits(t, lines)
}

// checkWaits checks that there is a WAIT for each of six calls, directly behind a script
// on the same connection.
func checkWaits(t *testing.T, lines []string) {
	t.Helper()
	latest, waits := make(map[string]string), 0
	for _, line := range lines {
		who, command := heardCommand(line)
		if who == "lua" || len(command) == 0 {
			continue
		}
		if command[0] == "WAIT" {
			waits++
			if command[1] != "1" || (latest[who] != "EVALSHA" && latest[who] != "EVAL") {
				t.Errorf("%s waits for %s replicas after %q", who, command[1], latest[who])
			}
		}
		latest[who] = command[0]
	}
	if waits < 6 { // the receive waits for no replica
		t.Errorf("%d waits for send, ack, nack, dead letter, redrive and purge", waits)
	}
}
