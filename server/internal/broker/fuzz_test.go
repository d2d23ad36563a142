package broker

import "testing"

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
	seals := newSealer(f, receiptCiphered)
	genuine := map[string]bool{earlierReceipt: true, seals.seal("orders"): true}
	for text := range genuine {
		f.Add(text, "orders")
		f.Add(text, "bills")
		f.Add(text[:len(text)-1], "orders")
		f.Add(text[1:], "orders")
	}
	f.Fuzz(func(t *testing.T, text, queue string) {
		got, _, ok := seals.open(text, queue)
		if ok != (genuine[text] && queue == "orders") || ok && got != someReceipt {
			t.Errorf("%q for %q is opened: %v, as %+v", text, queue, ok, got)
		}
	})
}
