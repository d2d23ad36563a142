package envelope

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
)

// A Signature is a detached Ed25519 signature of an envelope. The zero Signature means
// "not signed". Its text is "ed25519:" and 128 hex digits.
type Signature [ed25519.SignatureSize]byte

const (
	signaturePrefix  = "ed25519:"
	signatureTextLen = len(signaturePrefix) + 2*ed25519.SignatureSize
	// signatureTag1 and signatureTag2 separate signatures of envelopes from signatures
	// of other data by the same key, and the versions from each other.
	signatureTag1 = "mailbox envelope signature v1\n"
	signatureTag2 = "mailbox envelope signature v2\n"
)

// The versions of signatures. See the package documentation for what they cover.
const (
	// signatureV1 covers only the hash chain. Any sender can send a message with
	// such a signature again, with another reply address.
	signatureV1 = 1
	// SignatureV2 covers reply address, group and correlation id too.
	SignatureV2 = 2
)

// IsZero reports whether there is no signature.
func (s Signature) IsZero() bool { return s == Signature{} }

// String returns "ed25519:" and 128 hex digits.
func (s Signature) String() string { return string(s.append(make([]byte, 0, signatureTextLen))) }

func (s *Signature) append(b []byte) []byte {
	return hex.AppendEncode(append(b, signaturePrefix...), s[:])
}

// ParseSignature reads "ed25519:" and 128 lower-case hex digits. The error is
// ErrEncoding and does not repeat the text.
func ParseSignature(text string) (Signature, error) {
	var s Signature
	if !parseHex(s[:], text, signaturePrefix) || s.IsZero() {
		return Signature{}, decodeError("sig", `want "ed25519:" and 128 lower-case hex digits`)
	}
	return s, nil
}

// Sign signs the envelope in version 2: the hash chain, ReplyTo, Group and
// CorrelationID, which must be those that the message is sent with. Seal it first.
//
// It returns ErrInvalid if the key has the wrong size, nothing was sealed, or there is
// no DedupKey: with the key a queue refuses the same message a second time.
func (e *Envelope) Sign(key ed25519.PrivateKey) error {
	if len(key) != ed25519.PrivateKeySize {
		return sealError("key", fmt.Sprintf("has %d bytes, an Ed25519 private key has %d", len(key), ed25519.PrivateKeySize))
	}
	if e.HashChain.IsZero() {
		return sealError("hash_chain", "is not set; seal the envelope before signing it")
	}
	if e.DedupKey == "" {
		return sealError("idem_key", "is missing; without it others could send a signed message again")
	}
	e.Signature = Signature(ed25519.Sign(key, e.signed2(&e.HashChain)))
	return nil
}

// verifySignature checks the signature against a chain that was computed from the
// fields, never against the received one, and returns its version.
func (e *Envelope) verifySignature(chain *Hash, trusted []ed25519.PublicKey) (version int, err error) {
	if e.Signature.IsZero() {
		return 0, e.integrityError("sig", "there is no signature, and one is required")
	}
	for version, signed := range [...][]byte{SignatureV2: e.signed2(chain), signatureV1: signed1(chain)} {
		for _, key := range trusted {
			if version > 0 && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed, e.Signature[:]) {
				return version, nil
			}
		}
	}
	return 0, e.integrityError("sig", "the signature is not by a trusted key, or is for another message")
}

// signed1 returns the bytes that are signed in version 1.
func signed1(chain *Hash) []byte {
	return append([]byte(signatureTag1), chain[:]...)
}

// signed2 returns the bytes that are signed in version 2.
func (e *Envelope) signed2(chain *Hash) []byte {
	b := append([]byte(signatureTag2), chain[:]...)
	b = appendText(b, e.ReplyTo)
	b = appendText(b, e.Group)
	return appendText(b, e.CorrelationID)
}

func sealError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "seal envelope", Field: field, Detail: detail}
}
