package broker

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// TestCMACMatchesRFC4493 computes the examples of the RFC, in turns, with the same memory.
func TestCMACMatchesRFC4493(t *testing.T) {
	parse := func(text string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	message := parse("6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51 30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710")
	examples := map[int]string{
		0:  "bb1d6929e95937287fa37d129b756746",
		16: "070a16b46b4d4144f79bdd9dd04a287c",
		40: "dfa66747de9ae63030ca32611497c827",
		64: "51f0bebf7e3b9d92fc49741779363cfe",
	}
	var c cmac
	c.init([16]byte(parse("2b7e151628aed2a6abf7158809cf4f3c")))
	for range 3 {
		for n, want := range examples {
			run := c.begin()
			if got := c.end(run, append(run.memory[:0], message[:n]...)); hex.EncodeToString(got[:]) != want {
				t.Errorf("MAC of %d bytes: %x, want %s", n, got, want)
			}
		}
	}
}

// TestCMACCoversLongMessages has messages longer than the memory of a run.
func TestCMACCoversLongMessages(t *testing.T) {
	var c cmac
	c.init([16]byte{1})
	message := make([]byte, 2*len(cmacRun{}.memory)+1)
	mac := func() [16]byte {
		run := c.begin()
		return c.end(run, append(run.memory[:0], message...))
	}
	seen := [][16]byte{mac()}
	for i := range message {
		message[i] ^= 1
		if got := mac(); slices.Contains(seen, got) {
			t.Fatalf("the MAC does not depend on byte %d", i)
		}
		message[i] ^= 1
	}
	if mac() != seen[0] {
		t.Error("the MAC of one message differs")
	}
}
