package oap

import (
	"encoding/base64"
	"time"
)

// AttributeSeal is the attribute of a delivery that carries its seal, on connections
// whose client has asked for that. Messages that are sent with it are refused.
const AttributeSeal = "mailbox.env"

// A Seal is what a daemon fixed of a message when it was sent, in the sense of
// package envelope.
type Seal struct {
	SentAt      time.Time // to the millisecond
	HashChain   [32]byte
	Signature   [64]byte // zero if there is none
	IdemKey     string
	Correlation string
}

const sealSigned = 1

// EncodeSeal returns the value of AttributeSeal.
func EncodeSeal(s *Seal) string {
	b := make([]byte, 1, 1+10+len(s.HashChain)+len(s.Signature)+4+len(s.IdemKey)+len(s.Correlation))
	b = appendSigned(b, s.SentAt.UnixMilli())
	b = append(b, s.HashChain[:]...)
	if s.Signature != [64]byte{} {
		b[0] = sealSigned
		b = append(b, s.Signature[:]...)
	}
	b = appendText(b, s.IdemKey)
	b = appendText(b, s.Correlation)
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeSeal reads what EncodeSeal wrote.
func DecodeSeal(text string) (s Seal, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return s, PayloadError("a seal is not base64")
	}
	r := reader{rest: b}
	flags := r.byte()
	if flags > sealSigned {
		r.fail("a seal has unknown fields")
	}
	s.SentAt = time.UnixMilli(r.signed()).UTC()
	copy(s.HashChain[:], r.fixed(len(s.HashChain)))
	if flags&sealSigned != 0 {
		copy(s.Signature[:], r.fixed(len(s.Signature)))
	}
	s.IdemKey, s.Correlation = r.text(), r.text()
	return s, r.end()
}
