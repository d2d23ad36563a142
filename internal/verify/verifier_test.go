package verify

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func TestOnlyTheRightKeyMakesGenuineTokens(t *testing.T) {
	ring := keyring.New(fixedKey(t, 1))
	v := New(ring, nil)
	token := ordersToken(t, ring)
	wantAllowed(t, v, token, sendToOrders())
	wantRefused(t, v, capability.Token{}, sendToOrders(), capability.ReasonMissing)
	wantRefused(t, v, ordersToken(t, keyring.New(fixedKey(t, 2))), sendToOrders(), capability.ReasonNotGenuine)
	sameID, err := keyring.KeyFrom(1, make([]byte, macaroon.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, v, ordersToken(t, keyring.New(sameID)), sendToOrders(), capability.ReasonNotGenuine)
	wantRefused(t, New(keyring.New(keyring.Key{}), nil), token, sendToOrders(), capability.ReasonNotGenuine)
	// A token signed with the dummy key, which verifies tokens of unknown keys.
	dummy, err := mint(v.dummy, macaroon.Identifier{Key: 77, Token: macaroon.NewTokenID(time.Now())}, []capability.Caveat{capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour()})
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, v, dummy, sendToOrders(), capability.ReasonNotGenuine)
}

func TestReasonsAreFoundInErrors(t *testing.T) {
	if capability.ReasonOf(nil) != "" || capability.ReasonOf(errors.New("x")) != "" {
		t.Error("a reason was found where there is none")
	}
}

func TestUnscopedTokensAreRefused(t *testing.T) {
	key := keyring.NewKey()
	v := New(keyring.New(key), nil)
	op, queue, exp := capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour()
	for _, caveats := range [][]capability.Caveat{nil, {op}, {op, queue}, {op, exp}, {queue, exp}} {
		token, err := mint(key, macaroon.Identifier{Key: uint32(key.ID()), Token: macaroon.NewTokenID(time.Now())}, caveats)
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, v, token, sendToOrders(), ReasonUnscoped)
	}
}

func TestVerifiedTokensAreCachedForTTL(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, time.Second: 5 * time.Second, 60 * time.Second: 60 * time.Second, time.Hour: 120 * time.Second, -1: 5 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			ring := keyring.New(keyring.NewKey())
			v := New(ring, &Options{CacheTTL: asked})
			token := ordersToken(t, ring)
			count := func(hits, misses uint64) {
				t.Helper()
				wantAllowed(t, v, token, sendToOrders())
				if s := v.Stats(); s.Hits != hits || s.Misses != misses {
					t.Errorf("asked for %v: %d hits and %d misses, want %d and %d", asked, s.Hits, s.Misses, hits, misses)
				}
			}
			count(0, 1)
			count(1, 1)
			time.Sleep(want - 1)
			count(2, 1)
			time.Sleep(time.Nanosecond)
			count(2, 2) // using it does not make it last longer
			v.purge()
			count(2, 3)
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // entries expire
		ring := keyring.New(keyring.NewKey())
		v := New(ring, &Options{CacheEntries: 320})
		often := ordersToken(t, ring)
		for i := range 5000 {
			wantAllowed(t, v, ordersToken(t, ring), sendToOrders())
			if i%5 == 0 {
				wantAllowed(t, v, often, sendToOrders())
			}
			if s := v.Stats(); s.Entries > 320 || s.MaxEntries != 320 {
				t.Fatalf("%d entries of %d", s.Entries, s.MaxEntries)
			}
		}
		if hits := v.Stats().Hits; hits != 999 {
			t.Errorf("a frequently used token was dropped: %d hits of 999", hits)
		}
		// Refused tokens are not cached.
		entries := v.Stats().Entries
		other := keyring.New(keyring.NewKey())
		for range 400 {
			wantRefused(t, v, ordersToken(t, other), sendToOrders(), capability.ReasonNotGenuine)
		}
		if after := v.Stats().Entries; after > entries {
			t.Errorf("%d entries became %d by refusals", entries, after)
		}
	})
}

func TestRefusalBurstPurgesCacheOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, &Options{RefusalBurst: 20})
		token := ordersToken(t, ring)
		refuse := func(n int) {
			for range n {
				wantRefused(t, v, token, Request{Operation: capability.OpPurge, Queue: "orders"}, capability.ReasonOperation)
			}
		}
		refuse(19)
		time.Sleep(burstWindow)
		refuse(19)
		if s := v.Stats(); s.Purges != 0 || s.Misses != 1 || s.Refusals != 38 {
			t.Errorf("before the burst: %+v", s)
		}
		refuse(1000)
		if s := v.Stats(); s.Purges != 1 || s.Misses != 2 {
			t.Errorf("after the burst: %+v, want one purge, and the token verified again once", s)
		}
		time.Sleep(burstWindow)
		refuse(20)
		if s := v.Stats(); s.Purges != 2 {
			t.Errorf("after the next burst: %+v", s)
		}
	})
}

func TestRevokedTokensAreRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		revocations := new(revokedTokens)
		v := New(ring, &Options{Revocations: revocations})
		token, other := ordersToken(t, ring), ordersToken(t, ring)
		narrowed := mustNarrow(t, token, capability.Operations(capability.OpSend))
		for _, each := range []capability.Token{token, other, narrowed} {
			wantAllowed(t, v, each, sendToOrders())
		}
		if err := revocations.Revoke(t.Context(), revocation{Token: token.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, v, token, sendToOrders(), capability.ReasonRevoked)
		wantRefused(t, v, narrowed, sendToOrders(), capability.ReasonRevoked)
		wantAllowed(t, v, other, sendToOrders())
		time.Sleep(10 * time.Minute)
		wantRefused(t, v, token, sendToOrders(), capability.ReasonRevoked)
	})
}

func TestTenantsCanBeRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		revocations := new(revokedTokens)
		v := New(ring, &Options{Revocations: revocations})
		of := func(tenant string) capability.Token {
			return mustMint(t, ring, tenant, capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour())
		}
		acme, other, operator := of("acme"), of("other"), of("")
		time.Sleep(time.Second)
		if err := revocations.Revoke(t.Context(), revocation{Tenant: "acme", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantRefused(t, v, acme, Request{Operation: capability.OpSend, Queue: "a", Tenant: "acme"}, capability.ReasonRevoked)
		wantAllowed(t, v, other, Request{Operation: capability.OpSend, Queue: "a", Tenant: "other"})
		wantAllowed(t, v, operator, Request{Operation: capability.OpSend, Queue: "a", Tenant: "acme"})
		wantAllowed(t, v, of("acme"), Request{Operation: capability.OpSend, Queue: "a", Tenant: "acme"}) // minted since
	})
}

// remoteRevocations are those of another process: their generation never changes.
type remoteRevocations struct {
	near revokedTokens
	fail atomic.Pointer[error]
}

func (f *remoteRevocations) Generation() uint64 { return 0 }

func (f *remoteRevocations) Revoked(ctx context.Context, token capability.TokenID, tenant string) (time.Time, bool, error) {
	if err := f.fail.Load(); err != nil {
		return time.Time{}, false, *err
	}
	return f.near.Revoked(ctx, token, tenant)
}

func TestRemoteRevocationsHoldWithinCacheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		far := new(remoteRevocations)
		v := New(ring, &Options{Revocations: far})
		token := ordersToken(t, ring)
		wantAllowed(t, v, token, sendToOrders())
		if err := far.near.Revoke(t.Context(), revocation{Token: token.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultCacheTTL - 1)
		wantAllowed(t, v, token, sendToOrders()) // from the cache
		time.Sleep(time.Nanosecond)
		wantRefused(t, v, token, sendToOrders(), capability.ReasonRevoked)
	})
}

func TestRefusalBurstRechecksRemoteRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		far := new(remoteRevocations)
		v := New(ring, &Options{Revocations: far, RefusalBurst: 10})
		token := ordersToken(t, ring)
		wantAllowed(t, v, token, sendToOrders())
		if err := far.near.Revoke(t.Context(), revocation{Token: token.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			wantRefused(t, v, capability.Token{}, sendToOrders(), capability.ReasonMissing)
		}
		wantRefused(t, v, token, sendToOrders(), capability.ReasonRevoked)
	})
}

func TestUnreadableRevocationsRefuse(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	far := new(remoteRevocations)
	v := New(ring, &Options{Revocations: far})
	broken := errors.New("connection lost")
	far.fail.Store(&broken)
	token := ordersToken(t, ring)
	grant, err := v.Authorize(t.Context(), token, sendToOrders())
	if grant != nil || !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, broken) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Authorize(ctx, token, sendToOrders()); err != context.Canceled { //nolint:errorlint // the bare error is the promise
		t.Errorf("%v, want the context's own error", err)
	}
	far.fail.Store(nil)
	wantAllowed(t, v, token, sendToOrders())
}

// TestAckOfEarlierLeaseIsHonoured: a token that was revoked, or whose key was
// retired, still acks deliveries received with it before, and allows nothing else.
func TestAckOfEarlierLeaseIsHonoured(t *testing.T) {
	for name, void := range map[string]func(*keyring.Ring, *revokedTokens, capability.Token) error{
		"revoked": func(_ *keyring.Ring, r *revokedTokens, token capability.Token) error {
			return r.Revoke(context.Background(), revocation{Token: token.ID(), At: time.Now()})
		},
		"key retired": func(ring *keyring.Ring, _ *revokedTokens, _ capability.Token) error {
			old := ring.Current().ID()
			return errors.Join(ring.Rotate(keyring.NewKey()), ring.Retire(old, time.Now()))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			reason := capability.Reason(strings.ReplaceAll(name, " ", "_"))
			ring := keyring.New(keyring.NewKey())
			revocations := new(revokedTokens)
			v := New(ring, &Options{Revocations: revocations})
			token := ordersToken(t, ring)
			ack := Request{Operation: capability.OpAck, Queue: "orders", Lease: Lease{Token: token.ID(), TakenAt: time.Now()}}
			time.Sleep(time.Minute)
			if err := void(ring, revocations, token); err != nil {
				t.Fatal(err)
			}
			voidAt := time.Now()
			for range 2 { // verified, and from the cache
				wantAllowed(t, v, token, ack)
				for _, edit := range []func(*Request){
					func(r *Request) { r.Lease = Lease{} },
					func(r *Request) { r.Lease.TakenAt = time.Time{} },
					func(r *Request) { r.Lease.TakenAt = voidAt },
					func(r *Request) { r.Lease.Token = ordersToken(t, ring).ID() },
					func(r *Request) { r.Operation = capability.OpNack },
					func(r *Request) { r.Operation = capability.OpExtend },
					func(r *Request) { r.Operation = capability.OpRecv },
					func(r *Request) { r.Operation, r.Load = capability.OpSend, LoadOf(nil) },
				} {
					r := ack
					edit(&r)
					wantRefused(t, v, token, r, reason)
				}
				other := ack
				other.Queue = "bills"
				wantRefused(t, v, token, other, capability.ReasonQueue) // the scope still applies
			}
			time.Sleep(time.Hour)
			wantRefused(t, v, token, ack, capability.ReasonExpired)
		})
	}
}

func TestKeysRotateAndRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := fixedKey(t, 1), fixedKey(t, 2), fixedKey(t, 3)
		ring := keyring.New(first)
		v := New(ring, nil)
		old := ordersToken(t, ring)
		wantAllowed(t, v, old, sendToOrders())
		if err := ring.Rotate(second); err != nil {
			t.Fatal(err)
		}
		if grant := wantAllowed(t, v, ordersToken(t, ring), sendToOrders()); grant.key() != 2 {
			t.Errorf("minted with key %s", grant.key())
		}
		wantAllowed(t, v, old, sendToOrders())
		if err := ring.Retire(1, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		wantAllowed(t, v, old, sendToOrders()) // not yet
		time.Sleep(time.Minute)
		wantRefused(t, v, old, sendToOrders(), capability.ReasonKeyRetired)
		if err := ring.Remove(1); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, v, old, sendToOrders(), capability.ReasonNotGenuine)

		wantCode(t, "rotate in nothing", ring.Rotate(keyring.Key{}), driver.ErrInvalid)
		wantCode(t, "rotate in what is there", ring.Rotate(second), driver.ErrConflict)
		wantCode(t, "retire the current key", ring.Retire(2, time.Now()), driver.ErrConflict)
		wantCode(t, "remove the current key", ring.Remove(2), driver.ErrConflict)
		wantCode(t, "retire an unknown key", ring.Retire(9, time.Now()), driver.ErrNotFound)
		wantCode(t, "remove an unknown key", ring.Remove(9), driver.ErrNotFound)
		both := keyring.New(third, keyring.Key{}, second, third)
		if keys := both.Keys(); len(keys) != 2 || keys[0].ID() != 3 || both.String() != "[key ring 00000003 00000002]" {
			t.Errorf("ring of two keys: %v", both)
		}
		for i := range 63 {
			if err := ring.Rotate(fixedKey(t, capability.KeyID(100+i))); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, "one key too many", ring.Rotate(fixedKey(t, 99)), driver.ErrFull)
		_, err := keyring.KeyFrom(1, []byte("short"))
		wantCode(t, "a short key", err, driver.ErrInvalid)
	})
}

// TestSettingClockBackRevivesNoToken sets the wall clock back by hours: expired
// tokens stay refused, and the cache does not last longer.
func TestSettingClockBackRevivesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		far := new(remoteRevocations)
		v := New(ring, &Options{Revocations: far})
		short := ordersToken(t, ring, capability.ExpiresAt(time.Now().Add(time.Minute)))
		long := ordersToken(t, ring)
		later := ordersToken(t, ring, capability.NotBefore(time.Now().Add(2*time.Minute)))
		wantAllowed(t, v, later, sendToOrders())
		time.Sleep(time.Minute)
		wantRefused(t, v, short, sendToOrders(), capability.ReasonExpired)
		wantAllowed(t, v, long, sendToOrders())

		v.clock.turned.Store(-int64(10 * time.Hour))
		if behind := v.Stats().ClockBehind; behind != 10*time.Hour {
			t.Errorf("the clock is %v behind, want 10h", behind)
		}
		wantRefused(t, v, short, sendToOrders(), capability.ReasonExpired)
		wantAllowed(t, v, later, sendToOrders()) // valid tokens stay valid
		if err := far.near.Revoke(t.Context(), revocation{Token: long.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultCacheTTL)
		wantRefused(t, v, long, sendToOrders(), capability.ReasonRevoked)
		fresh := ordersToken(t, ring, capability.ExpiresAt(time.Now().Add(time.Minute)))
		wantAllowed(t, v, fresh, sendToOrders())
		time.Sleep(time.Minute) // time advances although the clock is behind
		wantRefused(t, v, fresh, sendToOrders(), capability.ReasonExpired)

		// A clock that is ahead counts at once.
		v.clock.turned.Store(int64(2 * time.Hour))
		wantRefused(t, v, ordersToken(t, ring), sendToOrders(), capability.ReasonExpired)
	})
}

// TestRevocationUnderLoad rotates and revokes during many requests: once Revoke has
// returned, every later request is refused, new tokens work at
// once, and acks of earlier leases are honoured (G-10).
func TestRevocationUnderLoad(t *testing.T) {
	const callers, rounds = 8, 30
	ring := keyring.New(keyring.NewKey())
	revocations := new(revokedTokens)
	v := New(ring, &Options{Revocations: revocations})
	type issue struct {
		token   capability.Token
		taken   time.Time
		revoked atomic.Bool
	}
	var current atomic.Pointer[issue]
	issued := func() *issue { // revocations have milliseconds, and the lease must be older
		return &issue{token: ordersToken(t, ring), taken: time.Now().Add(-time.Second)}
	}
	current.Store(issued())
	var stop atomic.Bool
	var allowed, refused, acked atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for !stop.Load() {
				now := current.Load()
				revokedBefore := now.revoked.Load()
				_, err := v.Authorize(t.Context(), now.token, sendToOrders())
				switch {
				case err == nil && revokedBefore:
					t.Error("a revoked token was accepted")
				case err == nil:
					allowed.Add(1)
				case !now.revoked.Load() && current.Load() == now && capability.ReasonOf(err) != capability.ReasonRevoked:
					t.Errorf("a valid token was refused: %v", err)
				default:
					refused.Add(1)
				}
				ack := Request{Operation: capability.OpAck, Queue: "orders", Lease: Lease{Token: now.token.ID(), TakenAt: now.taken}}
				if _, err := v.Authorize(t.Context(), now.token, ack); err != nil {
					t.Errorf("an ack of an earlier lease was refused: %v", err)
				}
				acked.Add(1)
			}
		})
	}
	for round := range rounds {
		old := current.Load()
		for seen := allowed.Load(); allowed.Load() == seen && !t.Failed(); {
			runtime.Gosched()
		}
		if round%3 == 0 {
			if err := ring.Rotate(keyring.NewKey()); err != nil {
				t.Fatal(err)
			}
		}
		if err := revocations.Revoke(t.Context(), revocation{Token: old.token.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		old.revoked.Store(true)
		for seen := refused.Load(); refused.Load() == seen && !t.Failed(); {
			runtime.Gosched()
		}
		current.Store(issued())
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d allowed, %d refused, %d acks of %d tokens", allowed.Load(), refused.Load(), acked.Load(), rounds+1)
}

func TestRingAdoptsKeysOfAnother(t *testing.T) {
	ring, other := keyring.New(keyring.NewKey()), keyring.New(keyring.NewKey())
	token := ordersToken(t, ring)
	v := New(ring, nil)
	wantAllowed(t, v, token, sendToOrders())
	ring.Adopt(keyring.New(keyring.Key{}))
	wantAllowed(t, v, token, sendToOrders())
	ring.Adopt(other)
	wantRefused(t, v, token, sendToOrders(), capability.ReasonNotGenuine)
	wantAllowed(t, v, ordersToken(t, other), sendToOrders())
}
