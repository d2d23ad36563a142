package verify

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

func send(messages int, size int64) Request {
	r := sendToOrders()
	r.Load = Load{Messages: messages, Bytes: int64(messages) * size, LargestBody: size}
	return r
}

// sendsIn sends as fast as RetryAfter allows for the duration d, and returns how many
// requests were allowed.
func sendsIn(t *testing.T, v *Verifier, token capability.Token, r Request, d time.Duration) (allowed int) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		_, err := v.Authorize(t.Context(), token, r)
		switch {
		case err == nil:
			allowed++
		case !errors.Is(err, capability.ReasonQuota) || !errors.Is(err, driver.ErrFull) || driver.RetryAfter(err) <= 0:
			t.Fatalf("refused for another reason: %v", err)
		default:
			<-time.After(driver.RetryAfter(err))
		}
	}
	return allowed
}

func TestQuotasLimitTheRate(t *testing.T) {
	for name, test := range map[string]struct {
		caveat  capability.Caveat
		request Request
		most    int // requests in ten seconds: ten times the rate, a burst, and one
	}{
		"messages one by one": {capability.MessagesPerSecond(10), send(1, 10), 111},
		"messages in batches": {capability.MessagesPerSecond(10), send(5, 10), 23},
		"large batches":       {capability.MessagesPerSecond(10), send(100, 10), 2},
		"bytes":               {capability.BytesPerSecond(1000), send(1, 100), 111},
		"large messages":      {capability.BytesPerSecond(1000), send(1, 5000), 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			ring := keyring.New(keyring.NewKey())
			v := New(ring, nil)
			got := sendsIn(t, v, ordersToken(t, ring, test.caveat), test.request, 10*time.Second)
			if got > test.most || got < test.most*8/10 {
				t.Errorf("%s: %d requests in ten seconds, want about %d and no more", name, got, test.most)
			}
		})
	}
}

func TestStricterQuotaWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, nil)
		token := ordersToken(t, ring, capability.MessagesPerSecond(100), capability.MessagesPerSecond(10), capability.BytesPerSecond(1<<40))
		if got := sendsIn(t, v, token, send(1, 10), 10*time.Second); got > 111 || got < 100 {
			t.Errorf("%d messages in ten seconds, want 111", got)
		}
	})
}

// TestNarrowingDoesNotMultiplyQuota narrows a token of ten messages per second into
// many, which together still have ten messages per second.
func TestNarrowingDoesNotMultiplyQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, nil)
		parent := ordersToken(t, ring, capability.MessagesPerSecond(10))
		var tokens []capability.Token
		for i := range 20 {
			tokens = append(tokens, mustNarrow(t, parent, capability.MaxBodyBytes(int64(1000+i))))
		}
		total := 0
		for range 10 {
			for _, token := range tokens {
				for {
					if _, err := v.Authorize(t.Context(), token, send(1, 1)); err != nil {
						break
					}
					total++
				}
			}
			time.Sleep(time.Second)
		}
		if total > 111 || total < 90 {
			t.Errorf("%d messages in ten seconds, want about 100", total)
		}
		// A narrowed token with a quota of its own is subject to both quotas.
		slow := mustNarrow(t, parent, capability.MessagesPerSecond(1))
		if got := sendsIn(t, v, slow, send(1, 1), 10*time.Second); got > 12 || got < 9 {
			t.Errorf("%d messages of the narrowed token, want about 11", got)
		}
		// Another token has its own quota.
		wantAllowed(t, v, ordersToken(t, ring, capability.MessagesPerSecond(10)), send(1, 1))
	})
}

func TestReceivedMessagesAreChargedAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, nil)
		token := ordersToken(t, ring, capability.MessagesPerSecond(10))
		receive := Request{Operation: capability.OpRecv, Queue: "orders"}
		grant := wantAllowed(t, v, token, receive)
		wantAllowed(t, v, token, receive) // an empty receive is not charged
		grant.Charge(30, 1000)            // three seconds' worth
		wantRefused(t, v, token, receive, capability.ReasonQuota)
		wantRefused(t, v, token, send(1, 1), capability.ReasonQuota)
		// Deliveries can always be settled.
		for _, o := range []capability.Operation{capability.OpAck, capability.OpNack, capability.OpExtend} {
			wantAllowed(t, v, token, Request{Operation: o, Queue: "orders"})
		}
		time.Sleep(2 * time.Second)
		wantRefused(t, v, token, receive, capability.ReasonQuota)
		time.Sleep(time.Millisecond)
		wantAllowed(t, v, token, receive)
		grant.Charge(-1, -1)
		wantAllowed(t, v, token, receive)
		wantAllowed(t, v, ordersToken(t, ring), receive).Charge(1000, 1000) // no quota
	})
}

func TestQuotaIsNeverExceededByParallelRequests(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	token := ordersToken(t, ring, capability.MessagesPerSecond(100))
	start := time.Now()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if _, err := v.Authorize(t.Context(), token, send(1, 1)); err == nil {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	most := int64(100*(time.Since(start).Seconds()+1)) + 1
	if n := allowed.Load(); n > most || n < 100 {
		t.Errorf("%d messages, want 100 to %d", n, most)
	}
}

func TestMeterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		const tokens = 160
		v := New(ring, &Options{QuotaTokens: tokens})
		count := func() int { return v.Stats().Quotas }
		full := 0
		for range 10 * tokens {
			_, err := v.Authorize(t.Context(), ordersToken(t, ring, capability.MessagesPerSecond(1)), send(3, 1))
			if err != nil && capability.ReasonOf(err) != capability.ReasonQuota {
				t.Fatal(err)
			}
			if err != nil {
				full++
			}
		}
		if n := count(); n > tokens || full == 0 {
			t.Fatalf("%d tokens are metered, %d were refused", n, full)
		}
		// Other tokens are allowed when those are idle, and the meter never drops
		// a quota that is used up.
		busy := ordersToken(t, ring, capability.MessagesPerSecond(1))
		time.Sleep(10 * time.Second)
		wantAllowed(t, v, busy, send(100, 1))
		for range 10 * tokens {
			_, _ = v.Authorize(t.Context(), ordersToken(t, ring, capability.MessagesPerSecond(1)), send(1, 1))
			time.Sleep(20 * time.Millisecond)
		}
		wantRefused(t, v, busy, send(1, 1), capability.ReasonQuota)
		if n := count(); n > tokens {
			t.Errorf("%d tokens are metered", n)
		}
	})
}

func TestOneTokenCannotFillTheMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, &Options{QuotaTokens: 1000})
		parent := mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(1000*time.Hour)))
		refused := 0
		for i := range 1000 {
			_, err := v.Authorize(t.Context(), mustNarrow(t, parent, capability.MessagesPerSecond(int64(1+i))), send(5000, 1))
			if err != nil {
				refused++
			}
		}
		if refused < 200 {
			t.Errorf("one token has %d quotas in use, of %d", 1000-refused, v.Stats().MaxQuotas)
		}
		wantAllowed(t, v, ordersToken(t, ring, capability.MessagesPerSecond(1)), send(1, 1))
		time.Sleep(2 * time.Hour) // the token is not locked out permanently
		wantAllowed(t, v, mustNarrow(t, parent, capability.MessagesPerSecond(5000)), send(1, 1))
	})
}

// TestNarrowedTokenCannotUseShareOfSiblings narrows a narrowed token
// in as many ways as possible, with quotas that stay used up, at every depth.
func TestNarrowedTokenCannotUseShareOfSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, &Options{QuotaTokens: 640})
		root := mustMint(t, ring, "acme", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(1000*time.Hour)))
		hostile := mustNarrow(t, root, capability.MaxBodyBytes(1000))
		use := func(token capability.Token) error {
			request := send(5000, 1)
			request.Tenant = "acme"
			_, err := v.Authorize(t.Context(), token, request)
			return err
		}
		for i := range 2000 {
			narrowed := hostile
			for range i % 3 {
				narrowed = mustNarrow(t, narrowed, capability.MaxBodyBytes(int64(100+i)))
			}
			_ = use(mustNarrow(t, narrowed, capability.MessagesPerSecond(int64(1+i))))
		}
		for i := range 5 {
			sibling := mustNarrow(t, root, capability.MaxBodyBytes(int64(2000+i)), capability.MessagesPerSecond(1))
			if err := use(sibling); err != nil {
				t.Errorf("sibling %d: %v", i, err)
			}
			if err := use(sibling); capability.ReasonOf(err) != capability.ReasonQuota {
				t.Errorf("sibling %d is not metered: %v", i, err)
			}
		}
		other := mustMint(t, ring, "other", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(1000*time.Hour)), capability.MessagesPerSecond(1))
		request := send(1, 1)
		request.Tenant = "other"
		if _, err := v.Authorize(t.Context(), other, request); err != nil {
			t.Errorf("another tenant: %v", err)
		}
	})
}
