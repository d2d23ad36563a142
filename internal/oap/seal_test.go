package oap

import (
	"testing"
	"time"
)

func TestSealsRoundTrip(t *testing.T) {
	for _, want := range []Seal{
		{SentAt: time.UnixMilli(1).UTC()},
		{SentAt: time.UnixMilli(1_700_000_000_123).UTC(), HashChain: [32]byte{1, 31: 2}, Signature: [64]byte{3, 63: 4}, IdemKey: "k", Correlation: "c"},
	} {
		text := EncodeSeal(&want)
		if got, err := DecodeSeal(text); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		for cut := range len(text) {
			if _, err := DecodeSeal(text[:cut]); err == nil {
				t.Errorf("%d of %d characters are a seal", cut, len(text))
			}
		}
		if _, err := DecodeSeal(text + "AAAA"); err == nil {
			t.Error("more than a seal is one")
		}
	}
}

func FuzzSeal(f *testing.F) {
	f.Add(EncodeSeal(&Seal{SentAt: time.UnixMilli(1).UTC(), IdemKey: "k", Correlation: "c"}))
	f.Add(EncodeSeal(&Seal{SentAt: time.UnixMilli(-1).UTC(), Signature: [64]byte{1}}))
	f.Add("AA")
	f.Fuzz(func(t *testing.T, text string) {
		seal, err := DecodeSeal(text)
		if err != nil {
			return
		}
		again, err := DecodeSeal(EncodeSeal(&seal))
		if err != nil || again != seal {
			t.Errorf("%q is %+v, and then %+v, %v", text, seal, again, err)
		}
	})
}
