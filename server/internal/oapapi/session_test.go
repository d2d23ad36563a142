package oapapi

import (
	"net"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// testAsker is an asker on a connection that nobody reads.
func testAsker(t *testing.T) asker {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	return asker{conn: newConn(New(Options{}), server), correlation: 1}
}

func ticket(sequence, behind uint64) oap.Ticket {
	return oap.Ticket{Sequence: sequence, Behind: behind}
}

// TestASessionCostsTheSameHoweverMuchIsSent sends 100,000 requests, of which a few
// are without an answer at a time (DUP-4).
func TestASessionCostsTheSameHoweverMuchIsSent(t *testing.T) {
	who := testAsker(t)
	s := &session{}
	for n := uint64(1); n <= 100_000; n++ {
		behind := min(n-1, 7)
		if got := s.begin(ticket(n, behind), who); got != fresh {
			t.Fatalf("request %d: verdict %d", n, got)
		}
		s.finish(n, oap.StatusOK, []byte("answer"))
		if got := s.begin(ticket(n-behind, 0), who); got != repeated {
			t.Fatalf("request %d again: verdict %d", n-behind, got)
		}
		who.conn.out.pending = who.conn.out.pending[:0]
	}
	if len(s.slots) != 16 {
		t.Errorf("%d slots for 8 requests at a time", len(s.slots))
	}
}

func TestASessionGrowsWithWhatIsUnderWay(t *testing.T) {
	who := testAsker(t)
	s := &session{}
	for n := uint64(1); n <= oap.MaxWindow; n++ {
		if got := s.begin(ticket(n, n-1), who); got != fresh {
			t.Fatalf("request %d: verdict %d", n, got)
		}
	}
	for n := uint64(1); n <= oap.MaxWindow; n++ {
		if got := s.begin(ticket(n, n-1), who); got != underway {
			t.Fatalf("request %d again: verdict %d", n, got)
		}
		if askers := s.finish(n, oap.StatusOK, nil); len(askers) != 1 {
			t.Fatalf("request %d: %d askers", n, len(askers))
		}
	}
}

// TestWhatTheClientGaveUpIsNotDone: a request that comes out of an old connection
// after the client has gone on is a leftover.
func TestWhatTheClientGaveUpIsNotDone(t *testing.T) {
	who := testAsker(t)
	s := &session{}
	s.begin(ticket(1, 0), who)
	s.begin(ticket(5, 0), who)
	for n := uint64(1); n <= 4; n++ {
		if got := s.begin(ticket(n, 0), who); got != stale {
			t.Errorf("request %d after 5, which has nothing behind it: verdict %d", n, got)
		}
	}
	if askers := s.finish(1, oap.StatusOK, nil); askers != nil {
		t.Error("nobody asks for 1")
	}
}

func TestSessionsAreForgottenWhenTheyRest(t *testing.T) {
	var all sessions
	now := time.Now()
	used, _, _ := all.attach(sessionKey{producer: [16]byte{1}}, now)
	rests, _, _ := all.attach(sessionKey{producer: [16]byte{2}}, now)
	all.detach(rests, now)
	if _, resumed, _ := all.attach(sessionKey{producer: [16]byte{2}}, now.Add(sessionLife-1)); !resumed {
		t.Error("forgotten too early")
	}
	all.detach(rests, now)
	if _, resumed, _ := all.attach(sessionKey{producer: [16]byte{2}}, now.Add(3*sessionLife)); resumed {
		t.Error("remembered too long")
	}
	if again, resumed, _ := all.attach(sessionKey{producer: [16]byte{1}}, now.Add(9*sessionLife)); !resumed || again != used {
		t.Error("a session in use was forgotten")
	}
	if _, resumed, _ := all.attach(sessionKey{capability: [32]byte{1}, producer: [16]byte{1}}, now); resumed {
		t.Error("another capability got the session")
	}
}

// TestTooManySessionsPushOutThoseThatRest: a client that makes session after
// session keeps nobody out.
func TestTooManySessionsPushOutThoseThatRest(t *testing.T) {
	var all sessions
	now := time.Now()
	for i := range maxSessions + 10 {
		s, _, full := all.attach(sessionKey{producer: [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}}, now)
		if full {
			t.Fatalf("session %d was refused", i)
		}
		all.detach(s, now)
	}
	if n := all.count(); n > maxSessions {
		t.Errorf("%d sessions", n)
	}
}

// Requests of the send lane and of the settle lane begin out of order: here 64
// (a send) begins while 34 to 63 wait behind 33 in the other lane.
func TestASessionThatGrowsForgetsNoOutcome(t *testing.T) {
	who := testAsker(t)
	s := &session{}
	s.begin(ticket(33, 0), who) // under way in one lane
	if got := s.begin(ticket(64, 31), who); got != fresh {
		t.Fatal(got)
	}
	s.finish(64, oap.StatusOK, []byte("sent"))
	if got := s.begin(ticket(66, 33), who); got != fresh { // makes it grow
		t.Fatal(got)
	}
	if got := s.begin(ticket(64, 31), who); got != repeated {
		t.Errorf("request 64 was done, and is to be done again: verdict %d", got)
	}
}
