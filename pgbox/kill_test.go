package pgbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// terminate ends the connections of an application in the middle of their work.
func terminate(t *testing.T, pool *pgxpool.Pool, application string) {
	t.Helper()
	var ended int
	err := pool.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", application).Scan(&ended)
	if err != nil {
		t.Fatal(err)
	}
}

// A tally counts what became of messages.
type tally struct {
	mu       sync.Mutex
	sent     map[string]bool // confirmed
	unknown  map[string]bool // sent, with an unknown outcome
	received map[string]int
	acked    map[string]int // confirmed
}

// TestTerminatedConnectionsLoseNothingConfirmed ends connections of several backends under load, as the kill of a client process does. Every confirmed message
// is received, none is acked twice, and nothing is received that was not sent.
func TestTerminatedConnectionsLoseNothingConfirmed(t *testing.T) {
	t.Parallel()
	const application = "mailbox under load"
	server := pgtest.Shared(t)
	control := server.Pool(t)
	losesNothing(t, server, application, volume.Count(t, 10, 200), func() { terminate(t, control, application) })
}

// TestKilledServersLoseNothingConfirmed kills the postmaster under load, and with it every process of the server that notices, and starts it again.
func TestKilledServersLoseNothingConfirmed(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=on")
	losesNothing(t, server, "mailbox on a server that is killed", volume.Count(t, 2, 100), func() {
		server.Kill()
		ok(t, server.Restart(t.Context()))
	})
}

// losesNothing runs processes on a server, in sessions of an application, and disturbs them.
func losesNothing(t *testing.T, server *pgtest.Server, application string, rounds int, disturb func()) {
	t.Helper()
	schema, control := pgtest.Schema(), server.Pool(t)
	const processes, goroutines = 3, 4
	seen := &tally{sent: make(map[string]bool), unknown: make(map[string]bool), received: make(map[string]int), acked: make(map[string]int)}
	// A message whose answers are lost again and again must not die of that.
	if err := open(t, control, &Options{Schema: schema}).ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: driver.Off}); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var senders, receivers sync.WaitGroup
	for p := range processes {
		backend := open(t, namedPool(t, server, application), &Options{Schema: schema})
		q, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for g := range goroutines {
			senders.Go(func() { seen.send(t.Context(), q, fmt.Sprint(p, "-", g), &stop) })
			receivers.Go(func() { seen.receive(t, q, &stop) })
		}
	}
	for range rounds {
		seen.awaitSend()
		<-time.After(50 * time.Millisecond)
		disturb()
	}
	seen.awaitSend()
	stop.Store(true)
	senders.Wait()
	receivers.Wait()
	q, err := open(t, control, &Options{Schema: schema}).OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	seen.drain(t, q)
	seen.check(t)
}

// namedPool returns a pool whose sessions can be told from others.
func namedPool(t *testing.T, server *pgtest.Server, application string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	config.ConnConfig.RuntimeParams["application_name"] = application
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *tally) send(ctx context.Context, q driver.Queue, name string, stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		body := fmt.Sprint(name, "-", n)
		_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte(body)}})
		s.mu.Lock()
		if err == nil {
			s.sent[body] = true
		} else {
			s.unknown[body] = true
		}
		s.mu.Unlock()
	}
}

// awaitSend waits until another send is confirmed. On a slow machine new connections take a
// while, and would be ended before they are used.
func (s *tally) awaitSend() {
	confirmed := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sent)
	}
	for before := confirmed(); confirmed() == before; {
		<-time.After(5 * time.Millisecond)
	}
}

func (s *tally) receive(t *testing.T, q driver.Queue, stop *atomic.Bool) {
	for !stop.Load() {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Second, Wait: 100 * time.Millisecond})
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
			return
		}
		s.settle(t, q, got)
	}
}

// settle acks messages, and notes which acks were confirmed.
func (s *tally) settle(t *testing.T, q driver.Queue, got []driver.Delivery) {
	if len(got) == 0 {
		return
	}
	receipts := make([]driver.Receipt, len(got))
	for i, d := range got {
		receipts[i] = d.Receipt
	}
	err := q.Ack(t.Context(), receipts)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range got {
		s.received[string(d.Body)]++
		if driver.At(err, i) == nil {
			s.acked[string(d.Body)]++
		}
	}
}

// drain receives what is left.
func (s *tally) drain(t *testing.T, q driver.Queue) {
	for {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s.settle(t, q, got)
		stats, err := q.Stats(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case stats.Dead > 0:
			t.Fatalf("%d messages died", stats.Dead)
		case stats.Waiting() == 0:
			return
		case len(got) == 0:
			<-time.After(20 * time.Millisecond) // leases of lost answers end
		}
	}
}

func (s *tally) check(t *testing.T) {
	t.Logf("%d sends confirmed, %d with an unknown outcome, %d messages received", len(s.sent), len(s.unknown), len(s.received))
	for body := range s.sent {
		if s.received[body] == 0 {
			t.Errorf("message %s was confirmed and never received", body)
		}
	}
	for body := range s.received {
		if !s.sent[body] && !s.unknown[body] {
			t.Errorf("message %s was received and never sent", body)
		}
		if s.acked[body] > 1 {
			t.Errorf("message %s was acked %d times", body, s.acked[body])
		}
	}
	if len(s.sent) == 0 {
		t.Error("no send was confirmed")
	}
}
