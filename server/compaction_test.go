package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/membox"
)

// randomID returns the id of a token that does not exist.
func randomID() capability.TokenID {
	var id capability.TokenID
	_, _ = rand.Read(id[6:])
	return id
}

// revokeTokens revokes n tokens that expire at until, and returns their ids.
func revokeTokens(t *testing.T, s *sharedRevocations, n int, until time.Time) (ids []capability.TokenID) {
	t.Helper()
	for range n {
		id := randomID()
		if err := s.Revoke(t.Context(), revocation.Revocation{Token: id, At: time.Now(), Until: until}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func wantAllRevoked(t *testing.T, what string, s *sharedRevocations, ids []capability.TokenID) {
	t.Helper()
	for _, id := range ids {
		if _, revoked, err := s.Revoked(t.Context(), id, ""); !revoked || err != nil {
			t.Fatalf("%s: the revocation of %v is lost (%v)", what, id, err)
		}
	}
}

// logLength returns how many messages are in the log, and its mark.
func logLength(t *testing.T, backend driver.Opener) (int, string) {
	t.Helper()
	q, err := backend.OpenQueue(t.Context(), revocationLog)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	stats, err := q.Stats(t.Context())
	config, errConfig := backend.(driver.Admin).QueueConfig(t.Context(), revocationLog)
	if err := errors.Join(err, errConfig); err != nil {
		t.Fatal(err)
	}
	return stats.Waiting(), config.Annotation
}

func TestCompactionRemovesExpiredRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		lasting := revokeTokens(t, first, 40, time.Time{})
		revokeTokens(t, first, 300, time.Now().Add(time.Hour))
		lasting = append(lasting, revokeTokens(t, second, 40, time.Now().Add(100*time.Hour))...)
		time.Sleep(25*time.Hour - time.Minute)
		if n, _ := logLength(t, backend); n != 380 {
			t.Errorf("%d messages before anything expired, want 380", n)
		}
		time.Sleep(maintainEvery + 2*time.Minute)
		if n, mark := logLength(t, backend); n != 80 || unfinished(mark) {
			t.Errorf("%d messages, %q; want the 80 that are not obsolete", n, mark)
		}
		for _, s := range []*sharedRevocations{first, second, share(t, backend)} {
			wantAllRevoked(t, "after compaction", s, lasting)
		}
		// The log still works.
		lasting = append(lasting, revokeTokens(t, second, 1, time.Time{})...)
		time.Sleep(2 * followEvery)
		wantAllRevoked(t, "after that", first, lasting)
	})
}

func TestCompactionRemovesRepeatedRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		last := time.Now()
		for range 200 {
			time.Sleep(time.Millisecond)
			last = time.Now()
			if err := first.Revoke(t.Context(), revocation.Revocation{Tenant: "acme", At: last}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(maintainEvery + 2*followEvery)
		if n, _ := logLength(t, backend); n != 1 {
			t.Errorf("%d messages about one tenant", n)
		}
		for _, s := range []*sharedRevocations{second, share(t, backend)} {
			for r := range s.All() {
				if !r.At.Equal(last.Truncate(time.Millisecond)) {
					t.Errorf("revoked at %v, want %v", r.At, last)
				}
			}
		}
	})
}

// TestDaemonsReadLogOfUnchangedLength has a log that is as long after a compaction as it
// was before.
func TestDaemonsReadLogOfUnchangedLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		revokeTokens(t, first, 100, time.Now().Add(time.Hour))
		time.Sleep(followEvery)
		synctest.Wait()
		before, _ := logLength(t, backend)
		// All daemons have the same clock, so the test removes expired messages.
		first.mu.Lock()
		err := first.compactLocked(t.Context(), time.Now().Add(48*time.Hour))
		first.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		gone, _ := logLength(t, backend)
		fresh := revokeTokens(t, first, before-gone, time.Time{})
		if n, _ := logLength(t, backend); n != before || gone >= before {
			t.Fatalf("setup: %d messages, then %d, then %d", before, gone, n)
		}
		time.Sleep(followEvery + time.Millisecond)
		synctest.Wait()
		wantAllRevoked(t, "the other daemon", second, fresh)
	})
}

// killed is a backend for a daemon that is killed at one of its operations: that one and all
// later ones fail, and that one may have been done.
type killed struct {
	*membox.Backend
	mu      sync.Mutex
	steps   int
	killAt  int  // never if it is less than 0
	doFirst bool // the operation at which it is killed is done
}

var errKilled = errors.New("killed")

func (m *killed) step(do func() error) error {
	m.mu.Lock()
	at := m.steps
	m.steps++
	m.mu.Unlock()
	if m.killAt >= 0 && at >= m.killAt {
		if at == m.killAt && m.doFirst {
			_ = do()
		}
		return errKilled
	}
	return do()
}

func (m *killed) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return m.step(func() error { return m.Backend.ConfigureQueue(ctx, name, config) })
}

func (m *killed) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := m.Backend.OpenQueue(ctx, name)
	return &killedQueue{q, m}, err
}

type killedQueue struct {
	driver.Queue
	killed *killed
}

func (q *killedQueue) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	err = q.killed.step(func() (err error) { sent, err = q.Queue.Send(ctx, msgs); return err })
	return sent, err
}

func (q *killedQueue) Receive(ctx context.Context, r driver.ReceiveRequest) (got []driver.Delivery, err error) {
	err = q.killed.step(func() (err error) { got, err = q.Queue.Receive(ctx, r); return err })
	return got, err
}

func (q *killedQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return q.killed.step(func() error { return q.Queue.Ack(ctx, receipts) })
}

func (q *killedQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return q.killed.step(func() error { return q.Queue.Nack(ctx, nacks) })
}

// fillLog fills the log with every case that a compaction handles, and returns
// the tokens that must stay revoked.
func fillLog(t *testing.T, backend driver.Opener) (lasting []capability.TokenID) {
	t.Helper()
	s, err := shareOnce(t, backend)
	if err != nil {
		t.Fatal(err)
	}
	revokeTokens(t, s, 100, time.Now().Add(time.Hour))
	lasting = revokeTokens(t, s, 12, time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range lasting[6:9] { // logged twice
		for range 2 {
			if err := s.appendLocked(t.Context(), revocation.Revocation{Token: id, At: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range lasting[:6] { // neither of two messages covers the other
		for _, r := range []revocation.Revocation{
			{Token: id, At: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)},
			{Token: id, At: time.Now(), Until: time.Time{}},
		} {
			if err := s.appendLocked(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	return lasting
}

// TestKilledCompactionLosesNothing kills a daemon at each operation of
// its compaction; another one finishes it.
func TestKilledCompactionLosesNothing(t *testing.T) {
	moments := 0
	for _, doFirst := range []bool{false, true} {
		for killAt := 0; ; killAt++ {
			died := false
			synctest.Test(t, func(t *testing.T) {
				backend := membox.New(nil)
				defer backend.Close()
				lasting := fillLog(t, backend)
				time.Sleep(26 * time.Hour)
				victim := &killed{Backend: backend, killAt: killAt, doFirst: doFirst}
				if s, err := shareOnce(t, victim); err == nil {
					_ = s.sync(t.Context()) // the kill may happen here
				} else if !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				died = victim.steps > killAt
				what := fmt.Sprintf("killed at %d, done %t", killAt, doFirst)
				survivor := share(t, backend)
				wantAllRevoked(t, what+", at once", survivor, lasting)
				time.Sleep(4 * compactionTime)
				wantAllRevoked(t, what+", the survivor", survivor, lasting)
				wantAllRevoked(t, what+", a new one", share(t, backend), lasting)
				if n, mark := logLength(t, backend); n != len(lasting) || unfinished(mark) {
					t.Errorf("%s: %d messages are left, %q", what, n, mark)
				}
			})
			moments++
			if !died {
				break
			}
		}
	}
	if moments < 12 {
		t.Errorf("%d moments: the compaction performs too few operations", moments)
	}
	t.Logf("%d moments", moments)
}

// TestConcurrentCompactionsAgree lets four daemons compact one log.
func TestConcurrentCompactionsAgree(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			backend := membox.New(nil)
			defer backend.Close()
			lasting := fillLog(t, backend)
			time.Sleep(26 * time.Hour)
			var running sync.WaitGroup
			for range 4 {
				running.Go(func() {
					s, err := shareOnce(t, backend)
					if err == nil {
						err = s.sync(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			running.Wait()
			time.Sleep(2 * compactionTime)
			wantAllRevoked(t, "four compactions", share(t, backend), lasting)
		})
	}
}

func TestLostLogIsPublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		revoked := append(revokeTokens(t, first, 3, time.Time{}), revokeTokens(t, second, 3, time.Time{})...)
		time.Sleep(2 * followEvery) // all daemons have published
		if err := backend.DeleteQueue(t.Context(), revocationLog); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * followEvery)
		for _, s := range []*sharedRevocations{first, second, share(t, backend)} {
			wantAllRevoked(t, "after the loss", s, revoked)
		}
	})
}
