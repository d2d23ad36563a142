package broker

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// receiptVersions are all that daemons have sealed.
var receiptVersions = []byte{receiptHashed, receiptCiphered}

var (
	someReceipt = driver.Receipt{Handle: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Place: 1, Nonce: 2}
	someOwner   = receiptOwner{token: capability.TokenID{9}, at: time.UnixMicro(3)}
)

// newSealer returns a sealer with the key that sealed earlierReceipt.
func newSealer(t testing.TB, version byte) *sealer {
	t.Helper()
	key, err := keyring.KeyFrom(0x01020304, bytes.Repeat([]byte{7}, macaroon.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return &sealer{ring: keyring.New(key), version: version}
}

func (s *sealer) seal(queue string) string {
	id, key := s.current()
	return string(s.append(nil, id, key, queue, someReceipt, someOwner))
}

// earlierReceipt was sealed by a version that knew no other form, for the queue orders.
const earlierReceipt = "AQECAwQJAAAAAAAAAAAAAAAAAAAAAAAAAAAAAwAAAAAAAAABAAAAAAAAAAJuI2Qsjb6M9CzOJIUw_GXc01ARZ3NDEKTSV4RRFFQ69G5FAV"

func TestReceiptOfEarlierVersionOpens(t *testing.T) {
	for _, version := range receiptVersions {
		seals := newSealer(t, version)
		got, by, ok := seals.open(earlierReceipt, "orders")
		if !ok || got != someReceipt || by != someOwner {
			t.Errorf("a daemon that seals version %d opens it: %v, as %+v of %+v", version, ok, got, by)
		}
	}
	if got := newSealer(t, receiptHashed).seal("orders"); got != earlierReceipt {
		t.Errorf("sealed as %s, which earlier versions do not open; want %s", got, earlierReceipt)
	}
}

func TestReceiptWithAnyBitChangedIsRefused(t *testing.T) {
	for _, version := range receiptVersions {
		seals := newSealer(t, version)
		text := seals.seal("orders")
		if _, _, ok := seals.open(text, "orders"); !ok {
			t.Fatalf("version %d: the genuine receipt is refused", version)
		}
		head, handle, _ := readReceipt(text)
		all := append(head[:], handle...)
		refuse := func(what string) {
			t.Helper()
			changed := base64.RawURLEncoding.EncodeToString(all[:receiptHeadSize]) + string(all[receiptHeadSize:])
			if _, _, ok := seals.open(changed, "orders"); ok {
				t.Errorf("version %d: a receipt with %s is opened", version, what)
			}
		}
		for bit := range 8 * len(all) {
			all[bit/8] ^= 1 << (bit % 8)
			refuse(fmt.Sprintf("bit %d changed", bit))
			all[bit/8] ^= 1 << (bit % 8)
		}
		for _, other := range receiptVersions {
			if all[0] = other; other != version {
				refuse(fmt.Sprintf("version %d", other))
			}
		}
		for _, queue := range []string{"", "order", "orders2", "Orders"} {
			if _, _, ok := seals.open(text, queue); ok {
				t.Errorf("version %d: the receipt is opened for %q", version, queue)
			}
		}
		// The end of the name and the beginning of the handle cannot change places.
		if _, _, ok := seals.open(text[:receiptTextSize]+"s"+handle, "order"); ok {
			t.Errorf("version %d: a letter moves from the queue to the handle", version)
		}
	}
}

// BenchmarkReceipt seals and opens a receipt of each version.
func BenchmarkReceipt(b *testing.B) {
	for _, version := range receiptVersions {
		seals := newSealer(b, version)
		id, key := seals.current()
		text := []byte(seals.seal("orders"))
		sealed := string(text)
		b.Run(fmt.Sprintf("seal/version=%d", version), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				text = seals.append(text[:0], id, key, "orders", someReceipt, someOwner)
			}
		})
		b.Run(fmt.Sprintf("open/version=%d", version), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := seals.open(sealed, "orders"); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
