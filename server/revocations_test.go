package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
)

// shareOnce returns the revocations of a daemon that has just started.
func shareOnce(t *testing.T, opener driver.Opener) (*sharedRevocations, error) {
	key, err := keyring.KeyFrom(1, make([]byte, macaroon.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return shareRevocations(t.Context(), new(revocation.Memory), keyring.New(key), opener, slog.New(slog.DiscardHandler))
}

// share returns the revocations of a daemon on a backend, which follow the log until
// the test ends.
func share(t *testing.T, opener driver.Opener) *sharedRevocations {
	t.Helper()
	s, err := shareOnce(t, opener)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { follow(ctx, s.sync, s.log, "revocations.unreadable") })
	t.Cleanup(func() {
		cancel()
		following.Wait()
		_ = s.close()
	})
	return s
}

func isRevoked(t *testing.T, s *sharedRevocations, token capability.Token) bool {
	t.Helper()
	_, revoked, err := s.Revoked(t.Context(), token.ID(), token.Tenant())
	if err != nil {
		t.Fatal(err)
	}
	return revoked
}

func mintToken(t *testing.T, tenant string) capability.Token {
	t.Helper()
	token, err := keyring.New(keyring.NewKey()).Mint(tenant, capability.AllOperations(),
		capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestRevocationHoldsAtOtherDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(&membox.Options{Defaults: driver.Config{MaxMessages: 1, MaxDeliveries: 1}})
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		one, two, other := mintToken(t, ""), mintToken(t, ""), mintToken(t, "acme")
		time.Sleep(time.Millisecond)
		for _, r := range []struct {
			at *sharedRevocations
			of revocation.Revocation
		}{
			{first, revocation.Revocation{Token: one.ID(), At: time.Now(), Until: time.Now().Add(time.Hour), Share: 7}},
			{second, revocation.Revocation{Token: two.ID(), At: time.Now()}},
			{first, revocation.Revocation{Tenant: "acme", At: time.Now()}},
		} {
			if err := r.at.Revoke(t.Context(), r.of); err != nil {
				t.Fatal(err)
			}
		}
		if !isRevoked(t, first, one) || isRevoked(t, second, one) {
			t.Error("setup: want it revoked at the first daemon at once, and not at the others")
		}
		before := second.Generation()
		time.Sleep(followEvery + time.Millisecond)
		third := share(t, backend) // one that starts later
		for name, s := range map[string]*sharedRevocations{"first": first, "second": second, "third": third} {
			for what, token := range map[string]capability.Token{"one": one, "two": two, "the tenant's": other} {
				if !isRevoked(t, s, token) {
					t.Errorf("the %s daemon accepts %s", name, what)
				}
			}
		}
		if second.Generation() == before {
			t.Error("the generation does not change")
		}
		settled := second.Generation()
		time.Sleep(10 * followEvery)
		if second.Generation() != settled {
			t.Error("nothing was revoked, and all tokens are verified again")
		}
		for r := range third.All() {
			if r.Token == one.ID() && r.Share != 7 {
				t.Errorf("its share is %d", r.Share)
			}
		}
	})
}

// deaf is a backend that is unavailable at times.
type deaf struct {
	*membox.Backend
	mu    sync.Mutex
	cause error
}

func (d *deaf) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cause = err
}

func (d *deaf) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := d.Backend.OpenQueue(ctx, name)
	return &deafQueue{q, d}, err
}

type deafQueue struct {
	driver.Queue
	deaf *deaf
}

func (q *deafQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	q.deaf.mu.Lock()
	cause := q.deaf.cause
	q.deaf.mu.Unlock()
	if cause != nil {
		return nil, cause
	}
	return q.Queue.Send(ctx, msgs)
}

func TestUnpublishedRevocationIsPublishedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{Backend: membox.New(nil)}
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		token := mintToken(t, "")
		time.Sleep(time.Millisecond)
		backend.set(driver.ErrUnavailable)
		err := first.Revoke(t.Context(), revocation.Revocation{Token: token.ID(), At: time.Now()})
		if !errors.Is(err, driver.ErrUnavailable) || !isRevoked(t, first, token) {
			t.Errorf("%v; want it revoked here, and unknown to others", err)
		}
		time.Sleep(3 * followEvery)
		backend.set(nil)
		time.Sleep(2*followEvery + time.Millisecond)
		if !isRevoked(t, second, token) {
			t.Error("the other daemon never learned of it")
		}
	})
}

// revokeMany fills the share of a tenant.
func revokeMany(t *testing.T, s *sharedRevocations) {
	t.Helper()
	share := revocation.ShareOf("acme")
	for range revocation.MaxPerShare {
		var token capability.TokenID
		_, _ = rand.Read(token[6:])
		if err := s.Revoke(t.Context(), revocation.Revocation{Token: token, At: time.Now(), Share: share}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullTenantShareDoesNotBlockOtherRevocations fills the share of a tenant
// at two daemons before they read each other's revocations.
func TestFullTenantShareDoesNotBlockOtherRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		revokeMany(t, first)
		revokeMany(t, second)
		token := mintToken(t, "")
		time.Sleep(time.Millisecond)
		if err := first.Revoke(t.Context(), revocation.Revocation{Token: token.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(followEvery + time.Millisecond)
		if !isRevoked(t, second, token) {
			t.Error("the second daemon does not learn what the operator has revoked at the first")
		}
		if !isRevoked(t, share(t, backend), token) {
			t.Error("a daemon that starts later does not know it")
		}
	})
}

func TestNarrowedRevocationHoldsAtEveryDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		first, second := share(t, backend), share(t, backend)
		ring := keyring.New(keyring.NewKey())
		parent, err := mintOperator(ring)
		if err != nil {
			t.Fatal(err)
		}
		narrowed, err := parent.Narrow(capability.Queues(capability.Queue("orders")))
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := verify.New(ring, &verify.Options{Revocations: second})
		valid := func(token capability.Token) bool { return elsewhere.Valid(t.Context(), token) == nil }
		if !valid(parent) || !valid(narrowed) { // and both are in its cache
			t.Fatal("setup: the tokens are not valid")
		}
		if err := first.Revoke(t.Context(), revocation.Revocation{Token: narrowed.NarrowedID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(followEvery + time.Millisecond)
		if valid(narrowed) {
			t.Error("another daemon accepts a narrowed token that was revoked")
		}
		if !valid(parent) {
			t.Error("another daemon refuses the token that it was narrowed from")
		}
	})
}
