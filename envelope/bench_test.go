package envelope

import (
	"fmt"
	"testing"
)

func BenchmarkHashPayload(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := pattern(size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				HashBody(body)
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	e := sealed(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Seal(payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSealPlain seals what most messages are: 256 bytes without attributes.
func BenchmarkSealPlain(b *testing.B) {
	e := Envelope{Queue: "user:42:inbox", SentAt: sentAt}
	body := pattern(256)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Seal(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	e := sealed(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Verify(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifySigned(b *testing.B) {
	e := sealed(b)
	if err := e.Sign(key('a')); err != nil {
		b.Fatal(err)
	}
	trusted := public(key('a'))
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Verify(payload, trusted); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := sealed(b)
	buffer := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.AppendJSON(buffer); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(encoded(b))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
