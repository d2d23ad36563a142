package revocation

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
)

func TestRevocationsOfRetiredKeysAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		old := ring.Current().ID()
		path := filepath.Join(t.TempDir(), "revoked")
		f := openFile(t, path)
		for i := range 100 {
			mustRevoke(t, f, Revocation{Token: numbered(i), At: time.Now()})
		}
		mustRevoke(t, f, Revocation{Tenant: "acme", At: time.Now()})
		forget := func(what string, want int) {
			t.Helper()
			if err := f.ForgetBefore(ring.AcceptsSince(time.Now())); err != nil || f.Len() != want {
				t.Errorf("%s: %d revocations, %v, want %d", what, f.Len(), err, want)
			}
		}
		time.Sleep(30 * 24 * time.Hour)
		forget("nothing was rotated", 101)
		if err := ring.Rotate(keyring.NewKey()); err != nil {
			t.Fatal(err)
		}
		mustRevoke(t, f, Revocation{Token: numbered(1000), At: time.Now()})
		forget("the old key is accepted", 102)
		if err := ring.Retire(old, time.Now()); err != nil {
			t.Fatal(err)
		}
		forget("the old key was retired just now", 102)
		time.Sleep(25 * time.Hour)
		forget("the old key was retired a day ago", 1)
		if _, revoked, _ := f.Revoked(t.Context(), numbered(1000), ""); !revoked {
			t.Error("a token revoked later is valid again")
		}
		if info, err := os.Stat(path); err != nil || info.Size() != 2*recordBytes {
			t.Errorf("the file has %d bytes, %v", info.Size(), err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "closed", f.ForgetBefore(time.Now()), driver.ErrClosed)
		if n := openFile(t, path).Len(); n != 1 {
			t.Errorf("%d revocations after a restart", n)
		}
	})
}

// TestTokenMintedByRevokedTokenStaysRevoked retires the key of the revoked token,
// but not the later key of the token minted with it.
func TestTokenMintedByRevokedTokenStaysRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, revoked := keyring.New(keyring.NewKey()), new(Memory)
		v := verify.New(ring, &verify.Options{Revocations: revoked})
		old := ring.Current().ID()
		maker := ordersToken(t, ring)
		time.Sleep(48 * time.Hour)
		if err := ring.Rotate(keyring.NewKey()); err != nil {
			t.Fatal(err)
		}
		child, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(1000*time.Hour)), capability.MintedBy(maker.ID()))
		if err != nil {
			t.Fatal(err)
		}
		wantAllowed(t, v, child, sendToOrders())
		mustRevokeIn(t, revoked, Revocation{Token: maker.ID(), At: time.Now()})
		if err := ring.Retire(old, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(72 * time.Hour)
		revoked.ForgetBefore(ring.AcceptsSince(time.Now()))
		wantRefused(t, v, child, sendToOrders(), capability.ReasonRevoked)
	})
}

// TestDroppingRevocationsSurvivesEveryCrash cuts the power before each operation on the disk
// while revocations are dropped.
func TestDroppingRevocationsSurvivesEveryCrash(t *testing.T) {
	lasting := []capability.TokenID{numbered(500), numbered(501)}
	run := func(d *crashDisk) {
		f, err := openRevocations(d, "revoked")
		if err != nil {
			return
		}
		_ = f.ForgetBefore(revokedAt.Add(48 * time.Hour))
	}
	content := appendHead(nil)
	for i := range 200 {
		content = appendRecord(content, &Revocation{Token: numbered(i), At: revokedAt})
	}
	for _, id := range lasting {
		content = appendRecord(content, &Revocation{Token: id, At: revokedAt.Add(48 * time.Hour)})
	}
	whole := newCrashDisk()
	whole.put("revoked", content)
	run(whole)
	if n := len(whole.names["revoked"].content); n != 3*recordBytes {
		t.Fatalf("the file has %d bytes", n)
	}
	for at := range whole.steps + 1 {
		d := newCrashDisk()
		d.put("revoked", content)
		d.powerAt = at
		run(d)
		for _, survived := range d.survivals() {
			wantRevoked(t, "power cut", at, survived, lasting)
		}
	}
}
