package oapapi

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// testAsker is an asker on a connection that is not read.
func testAsker(t *testing.T) asker {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	return asker{conn: newConn(New(Options{}), server), correlation: 1}
}

// begin is session.begin without its error.
func begin(s *session, t oap.Ticket, who asker) verdict {
	verdict, _, _ := s.begin(t, who)
	return verdict
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
		if got := begin(s, ticket(n, behind), who); got != fresh {
			t.Fatalf("request %d: verdict %d", n, got)
		}
		s.finish(n, oap.StatusOK, []byte("answer"))
		if got := begin(s, ticket(n-behind, 0), who); got != repeated {
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
		if got := begin(s, ticket(n, n-1), who); got != fresh {
			t.Fatalf("request %d: verdict %d", n, got)
		}
	}
	for n := uint64(1); n <= oap.MaxWindow; n++ {
		if got := begin(s, ticket(n, n-1), who); got != underway {
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
	begin(s, ticket(1, 0), who)
	begin(s, ticket(5, 0), who)
	for n := uint64(1); n <= 4; n++ {
		if got := begin(s, ticket(n, 0), who); got != stale {
			t.Errorf("request %d after 5, which has nothing behind it: verdict %d", n, got)
		}
	}
	if askers := s.finish(1, oap.StatusOK, nil); askers != nil {
		t.Error("no request asks for 1")
	}
}

// of is an owner.
func of(tenant string, token byte) owner {
	return owner{{Name: tenant}, {ID: [16]byte{token}}}
}

// made attaches the session of a producer.
func (all *sessions) made(t *testing.T, producer int, by owner) (*kept, bool) {
	t.Helper()
	s, resumed, err := all.attach(sessionKey{producer: [16]byte{byte(producer), byte(producer >> 8), byte(producer >> 16)}}, by)
	if err != nil {
		t.Fatal(err)
	}
	return s, resumed
}

func TestSessionsAreForgottenWhenTheyRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSessions()
		defer all.end()
		by := of("acme", 1)
		used, _ := all.made(t, 1, by)
		rests, _ := all.made(t, 2, by)
		begin(&rests.session, ticket(1, 0), testAsker(t))
		rests.finish(1, oap.StatusOK, make([]byte, 100_000))
		all.detach(rests)
		time.Sleep(sessionLife - 1)
		if _, resumed := all.made(t, 2, by); !resumed {
			t.Error("forgotten too early")
		}
		all.detach(rests)
		time.Sleep(sessionLife + sweepPause)
		if n := all.count.Stats().Used; n != 1 {
			t.Errorf("%d sessions are remembered with no client that asks, want 1", n)
		}
		if n := all.bytes.Stats().Used; n != 0 {
			t.Errorf("%d bytes are remembered", n)
		}
		if again, resumed := all.made(t, 1, by); !resumed || again != used {
			t.Error("a session in use was forgotten")
		}
		if _, resumed, _ := all.attach(sessionKey{capability: [32]byte{1}, producer: [16]byte{1}}, by); resumed {
			t.Error("another capability got the session")
		}
	})
}

// TestTooManySessionsPushOutThoseThatRest: a client that makes session after
// session keeps no other out.
func TestTooManySessionsPushOutThoseThatRest(t *testing.T) {
	all := newSessions()
	defer all.end()
	victim, _ := all.made(t, 1<<20, of("victim", 1))
	all.detach(victim)
	for i := range maxSessions + 10 {
		s, _ := all.made(t, i, of("hostile", 1))
		all.detach(s)
	}
	if n := all.count.Stats().Used; n > maxSessions/2+1 {
		t.Errorf("%d sessions", n)
	}
	if _, resumed := all.made(t, 1<<20, of("victim", 1)); !resumed {
		t.Error("another tenant's session was forgotten")
	}
}

func TestSessionsInUseLeaveOtherTenantsRoom(t *testing.T) {
	all := newSessions()
	defer all.end()
	hostile := 0
	for ; hostile < maxSessions; hostile++ {
		if _, _, err := all.attach(sessionKey{producer: [16]byte{byte(hostile), byte(hostile >> 8), byte(hostile >> 16)}}, of("hostile", 1)); err != nil {
			if !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), "sessions share of") {
				t.Errorf("refused with %v", err)
			}
			break
		}
	}
	if hostile == maxSessions {
		t.Error("one token has all sessions")
	}
	for i := range 100 {
		all.made(t, 1<<20+i, of("victim", 1))
	}
}

// TestRememberedAnswersAreBoundedInBytes fills many sessions with large answers, as
// batches of acks with long errors do.
func TestRememberedAnswersAreBoundedInBytes(t *testing.T) {
	all := newSessions()
	defer all.end()
	who := testAsker(t)
	answer := make([]byte, 70<<10)
	fill := func(s *kept) {
		for n := uint64(1); n <= oap.MaxWindow; n++ {
			if got := begin(&s.session, ticket(n, n-1), who); got == full {
				break
			}
			s.finish(n, oap.StatusOK, answer)
			who.conn.out.pending = who.conn.out.pending[:0]
		}
	}
	for i := range 50 {
		s, _ := all.made(t, i, of("hostile", 1))
		fill(s)
		if s.memory.used > maxSessionBytes {
			t.Fatalf("one session remembers %d bytes", s.memory.used)
		}
		all.detach(s)
	}
	if n := all.bytes.Stats().Used; n > maxSessionsBytes {
		t.Errorf("all sessions remember %d bytes", n)
	}
	victim, _ := all.made(t, 1000, of("victim", 1))
	begin(&victim.session, ticket(1, 0), who)
	victim.finish(1, oap.StatusOK, answer)
	if got := begin(&victim.session, ticket(1, 0), who); got != repeated {
		t.Errorf("another tenant's outcome is not remembered: verdict %d", got)
	}
}

// TestForgottenOutcomeIsUnknownAndNeverRepeated holds DUP-4 where memory ends: the
// newest outcomes are remembered, older ones are unknown, none is done again.
func TestForgottenOutcomeIsUnknownAndNeverRepeated(t *testing.T) {
	who := testAsker(t)
	s := &session{}
	answer := make([]byte, maxSessionBytes/4)
	for n := uint64(1); n <= 8; n++ {
		if got := begin(s, ticket(n, n-1), who); got != fresh {
			t.Fatalf("request %d: verdict %d", n, got)
		}
		s.finish(n, oap.StatusOK, answer)
	}
	verdicts := make(map[verdict]int)
	for n := uint64(1); n <= 8; n++ {
		verdicts[begin(s, ticket(n, n-1), who)]++
	}
	if verdicts[unknown] != 5 || verdicts[repeated] != 3 {
		t.Errorf("of 8 requests %d are unknown and %d answered again: %v", verdicts[unknown], verdicts[repeated], verdicts)
	}
	if got := begin(s, ticket(8, 7), who); got != repeated {
		t.Errorf("the newest outcome: verdict %d", got)
	}
	begin(s, ticket(9, 0), who) // the client has all answers
	if s.memory.used > 20*slotBytes {
		t.Errorf("%d bytes are kept of answers that the client has", s.memory.used)
	}
}

// Requests of the send lane and of the settle lane begin out of order: here 64
// (a send) begins while 34 to 63 wait behind 33 in the other lane.
func TestASessionThatGrowsForgetsNoOutcome(t *testing.T) {
	who := testAsker(t)
	s := &session{}
	begin(s, ticket(33, 0), who) // under way in one lane
	if got := begin(s, ticket(64, 31), who); got != fresh {
		t.Fatal(got)
	}
	s.finish(64, oap.StatusOK, []byte("sent"))
	if got := begin(s, ticket(66, 33), who); got != fresh { // makes it grow
		t.Fatal(got)
	}
	if got := begin(s, ticket(64, 31), who); got != repeated {
		t.Errorf("request 64 was done, and would be done again: verdict %d", got)
	}
}
