package revocation

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// numbered returns a token id that is the same in every run.
func numbered(n int) capability.TokenID {
	var id capability.TokenID
	binary.BigEndian.PutUint64(id[:], 1_700_000_000_000<<16)
	copy(id[6:], []byte{0, 0, 0, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)})
	return id
}

func TestBadRevocationsAreRefused(t *testing.T) {
	now := time.Now()
	revocations := new(Memory)
	for name, r := range map[string]Revocation{
		"nothing":            {At: now},
		"both":               {Token: numbered(1), Tenant: "acme", At: now},
		"no time":            {Token: numbered(1)},
		"the year 10000":     {Token: numbered(1), At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"an end before":      {Token: numbered(1), At: now, Until: now.Add(-time.Second)},
		"a tenant of spaces": {Tenant: "  ", At: now},
	} {
		wantCode(t, name, revocations.Revoke(t.Context(), r), driver.ErrInvalid)
	}
	if revocations.Len() != 0 || revocations.Generation() != 0 {
		t.Error("something was revoked")
	}
}

func TestRepeatedRevocationKeepsEarliestAtAndLatestUntil(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	revocations := new(Memory)
	revoke := func(r Revocation) {
		t.Helper()
		before := revocations.Generation()
		if err := revocations.Revoke(t.Context(), r); err != nil || revocations.Generation() == before {
			t.Fatalf("generation %d after %d, %v", revocations.Generation(), before, err)
		}
	}
	revoke(Revocation{Token: numbered(1), At: at, Until: at.Add(time.Hour)})
	revoke(Revocation{Token: numbered(1), At: at.Add(time.Minute), Until: at.Add(2 * time.Hour)})
	revoke(Revocation{Token: numbered(1), At: at.Add(2 * time.Minute), Until: at.Add(30 * time.Minute)})
	revoke(Revocation{Tenant: "acme", At: at, Until: at.Add(time.Hour)})
	revoke(Revocation{Tenant: "acme", At: at.Add(time.Minute)})
	revoke(Revocation{Tenant: "acme", At: at.Add(-time.Minute), Until: at.Add(time.Hour)})
	want := []Revocation{
		{Token: numbered(1), At: at, Until: at.Add(2 * time.Hour)},
		{Tenant: "acme", At: at.Add(time.Minute)},
	}
	if got := slices.Collect(revocations.All()); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

func TestRevocationsAreDroppedDayAfterUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revocations := new(Memory)
		end := time.Now().Add(time.Hour)
		if err := revocations.Revoke(t.Context(), Revocation{Token: numbered(0), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if err := revocations.Revoke(t.Context(), Revocation{Token: numbered(1 + i), At: time.Now(), Until: end}); err != nil {
				t.Fatal(err)
			}
		}
		more := func() {
			for i := range 600 {
				if err := revocations.Revoke(t.Context(), Revocation{Token: numbered(2000 + i), At: time.Now()}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(25 * time.Hour)
		more()
		if n := revocations.Len(); n != 1601 {
			t.Errorf("%d revocations at the end of the day, want all 1601", n)
		}
		time.Sleep(time.Millisecond)
		more()
		more()
		if n := revocations.Len(); n != 601 {
			t.Errorf("%d revocations after the day, want 601", n)
		}
		if _, revoked, _ := revocations.Revoked(t.Context(), numbered(0), ""); !revoked {
			t.Error("a revocation without Until was dropped")
		}
	})
}

func TestRevocationsAreBounded(t *testing.T) {
	const limit = 100
	revocations := &Memory{limit: limit}
	for i := range limit {
		if err := revocations.Revoke(t.Context(), Revocation{Token: numbered(i), At: revokedAt}); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "one too many", revocations.Revoke(t.Context(), Revocation{Token: numbered(limit), At: revokedAt}), driver.ErrFull)
	if _, revoked, _ := revocations.Revoked(t.Context(), numbered(limit), ""); revoked || revocations.Len() != limit {
		t.Error("a refused revocation was stored")
	}
	if err := revocations.Revoke(t.Context(), Revocation{Token: numbered(0), At: revokedAt}); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestRevocationWithFastClockHoldsAtOnce uses a revocation of another process.
func TestRevocationWithFastClockHoldsAtOnce(t *testing.T) {
	for name, r := range map[string]Revocation{"token": {}, "tenant": {Tenant: "acme"}} {
		t.Run(name, func(t *testing.T) {
			ring := keyring.New(keyring.NewKey())
			revoked := new(Memory)
			v := verify.New(ring, &verify.Options{Revocations: revoked})
			token, err := ring.Mint("acme", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
			request := verify.Request{Operation: capability.OpSend, Queue: "orders", Tenant: "acme", Load: verify.Load{Messages: 1}}
			wantAllowed(t, v, token, request)
			if r.At = time.Now().Add(10 * time.Minute); r.Tenant == "" {
				r.Token = token.ID()
			}
			mustRevokeIn(t, revoked, r)
			wantRefused(t, v, token, request, capability.ReasonRevoked)
			wantCode(t, "Valid", v.Valid(t.Context(), token), driver.ErrUnauthenticated)
		})
	}
}

func mustRevokeIn(t *testing.T, m *Memory, r Revocation) {
	t.Helper()
	if err := m.Revoke(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestRevocationShareIsBoundedAndFreed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revoked")
	f := openFile(t, path)
	share := ShareOf("acme")
	if share == 0 || share == ShareOf("other") || ShareOf("") != 0 {
		t.Fatalf("share %d", share)
	}
	ended := time.Now().Add(-2 * forgetAfter)
	f.memory.mu.Lock()
	for i := range MaxPerShare - 1 { // in memory, without thousands of writes
		f.memory.addLocked(Revocation{Token: numbered(i), At: ended, Until: ended, Share: share})
	}
	f.memory.mu.Unlock()
	mustRevoke(t, f, Revocation{Token: numbered(MaxPerShare), At: time.Now(), Share: share})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = openFile(t, path)
	for r := range f.All() {
		if r.Token == numbered(MaxPerShare) && r.Share != share {
			t.Errorf("after a restart the share is %x", r.Share)
		}
	}
	// The other revocations are of tokens that expired long ago, and make room.
	mustRevoke(t, f, Revocation{Token: numbered(MaxPerShare + 1), At: time.Now(), Share: share})
	full := new(Memory)
	for i := range MaxPerShare {
		if err := full.Revoke(t.Context(), Revocation{Token: numbered(i), At: time.Now(), Share: share}); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "one too many", full.Revoke(t.Context(), Revocation{Token: numbered(MaxPerShare), At: time.Now(), Share: share}), driver.ErrFull)
	if err := full.Revoke(t.Context(), Revocation{Token: numbered(1), At: time.Now(), Share: share}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := full.Revoke(t.Context(), Revocation{Token: numbered(MaxPerShare), At: time.Now()}); err != nil {
		t.Errorf("of another share: %v", err)
	}
}

func TestNarrowedRevocationSurvivesRestartAndIsForgotten(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	minted := ordersToken(t, ring)
	left, right := mustNarrow(t, minted, capability.MaxBodyBytes(1000)), mustNarrow(t, minted, capability.MaxBodyBytes(2000))
	path := filepath.Join(t.TempDir(), "revoked")
	f := openFile(t, path)
	if f.RevokesNarrowed() {
		t.Error("an empty file revokes narrowed tokens")
	}
	mustRevoke(t, f, Revocation{Token: ordersToken(t, ring).ID(), At: time.Now()})
	if f.RevokesNarrowed() {
		t.Error("a minted token counts as a narrowed one")
	}
	mustRevoke(t, f, Revocation{Token: left.NarrowedID(), At: time.Now(), Until: time.Now().Add(time.Hour)})
	mustRevoke(t, f, Revocation{Token: left.NarrowedID(), At: time.Now(), Until: time.Now().Add(time.Hour)})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = openFile(t, path)
	v := verify.New(ring, &verify.Options{Revocations: f})
	wantRefused(t, v, left, sendToOrders(), capability.ReasonRevoked)
	wantAllowed(t, v, right, sendToOrders())
	f.memory.mu.Lock()
	f.memory.forgetLocked(time.Now().Add(2 * forgetAfter))
	f.memory.mu.Unlock()
	if f.RevokesNarrowed() {
		t.Error("a dropped revocation is still counted")
	}
}
