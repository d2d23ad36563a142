package envelope

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// pattern returns the input of the official BLAKE3 test vectors.
func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i % 251)
	}
	return data
}

// TestPayloadHashIsBLAKE3 checks the hash against values that the authors of
// BLAKE3 published.
func TestPayloadHashIsBLAKE3(t *testing.T) {
	for n, want := range map[int]string{
		0:     "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
		1:     "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
		1023:  "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11",
		1024:  "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
		1025:  "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
		2048:  "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a",
		2049:  "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030",
		4097:  "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995",
		8193:  "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b",
		31744: "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47",
	} {
		if got := HashBody(pattern(n)).String(); got != "b3:"+want {
			t.Errorf("%d bytes: %s, want b3:%s", n, got, want)
		}
	}
}

// TestPayloadHashAgreesWithTheDefinition compares the library with a plain
// implementation, at all lengths around the borders of chunks and trees.
func TestPayloadHashAgreesWithTheDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	lengths := []int{0, 1, 63, 64, 65, 127, 128, 129, 1 << 20}
	for chunks := range 20 {
		lengths = append(lengths, 1024*(chunks+1)-1, 1024*(chunks+1), 1024*(chunks+1)+1)
	}
	for range 50 {
		lengths = append(lengths, random.IntN(100_000))
	}
	for _, n := range lengths {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if got, want := HashBody(data), Hash(referenceBLAKE3(data)); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

func TestHashTextIsReadStrictly(t *testing.T) {
	good := HashBody([]byte("hello")).String()
	if len(good) != hashTextLen {
		t.Fatalf("%q has %d bytes", good, len(good))
	}
	if back, err := parseHash(good); err != nil || back.String() != good {
		t.Fatalf("parseHash(%s) = %v, %v", good, back, err)
	}
	var back Hash
	if text, err := json.Marshal(HashBody(nil)); err != nil || json.Unmarshal(text, &back) != nil || back != HashBody(nil) {
		t.Errorf("through JSON: %v, %v", back, err)
	}
	hexPart := strings.TrimPrefix(good, "b3:")
	for _, bad := range []string{
		"", "b3:", hexPart, "B3:" + hexPart, "b3:" + strings.ToUpper(hexPart), good + "0", good[:len(good)-1],
		" " + good, good + "\n", "b3:" + hexPart[:63] + "g", "b2:" + hexPart, "b3:" + hexPart[:62] + "é",
	} {
		if _, err := parseHash(bad); !errors.Is(err, driver.ErrEncoding) {
			t.Errorf("parseHash(%q): %v, want ErrEncoding", bad, err)
		}
		if err := back.UnmarshalText([]byte(bad)); !errors.Is(err, driver.ErrEncoding) {
			t.Errorf("UnmarshalText(%q): %v, want ErrEncoding", bad, err)
		}
	}
}

func FuzzParseHash(f *testing.F) {
	f.Add(HashBody(nil).String())
	f.Add("b3:" + strings.Repeat("0", 64))
	f.Add("b3:" + strings.Repeat("F", 64))
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHash(text)
		if err == nil && h.String() != text {
			t.Fatalf("%q reads as %s", text, h)
		}
		if err != nil && h != (Hash{}) {
			t.Fatalf("%q: a hash and an error", text)
		}
	})
}
