package broker

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// FuzzSeal decodes arbitrary seals. One that is decoded encodes to the same text.
func FuzzSeal(f *testing.F) {
	plain := storedSeal{sentAt: 1, key: "key", queue: "orders"}
	full := storedSeal{sentAt: 1 << 40, corr: "0190a5a0-0000-7000-8000-000000000000", key: "key", queue: "orders"}
	full.chain[0], full.signature[63] = 1, 1
	text := storedSeal{corr: "a text of its own"}
	for _, s := range []storedSeal{plain, full, text} {
		f.Add(s.text(), "orders")
	}
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, here string) {
		s, err := decodeSealText(text, here)
		if err != nil {
			return
		}
		again, err := decodeSealText(s.text(), here)
		if err != nil || again != s {
			t.Errorf("%q is read as %+v, and what that is written as, as %+v, %v", text, s, again, err)
		}
	})
}

// FuzzReceipt opens receipts that the daemon did not seal: only sealed ones are opened,
// for their queue.
func FuzzReceipt(f *testing.F) {
	seals := &sealer{ring: capability.NewKeyRing(capability.NewKey())}
	id, key := seals.current()
	receipt := driver.Receipt{Handle: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Place: 1, Nonce: 2}
	genuine := string(seals.append(nil, id, key, "orders", receipt, receiptOwner{at: time.UnixMicro(3)}))
	f.Add(genuine, "orders")
	f.Add(genuine, "bills")
	f.Add(genuine[:len(genuine)-1], "orders")
	f.Add(genuine[1:], "orders")
	f.Fuzz(func(t *testing.T, text, queue string) {
		got, _, ok := seals.open(text, queue)
		if ok != (text == genuine && queue == "orders") || ok && got != receipt {
			t.Errorf("%q for %q is opened: %v, as %+v", text, queue, ok, got)
		}
	})
}
