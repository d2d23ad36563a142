package envelope

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
)

// A Signature is a detached Ed25519 signature over a hash chain. The zero
// Signature is none. Its text is "ed25519:" and 128 hex digits.
type Signature [ed25519.SignatureSize]byte

const (
	signaturePrefix  = "ed25519:"
	signatureTextLen = len(signaturePrefix) + 2*ed25519.SignatureSize
	// signatureTag keeps a signature of an envelope from being one of anything
	// else that the same key signs.
	signatureTag = "mailbox envelope signature v1\n"
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

// Sign signs the envelope's hash chain; Seal it first. It returns ErrInvalid if
// the key has the wrong size or nothing was sealed.
func (e *Envelope) Sign(key ed25519.PrivateKey) error {
	if len(key) != ed25519.PrivateKeySize {
		return sealError("key", fmt.Sprintf("has %d bytes, an Ed25519 private key has %d", len(key), ed25519.PrivateKeySize))
	}
	if e.HashChain.IsZero() {
		return sealError("hash_chain", "is not set: seal the envelope before it is signed")
	}
	e.Signature = Signature(ed25519.Sign(key, signed(&e.HashChain)))
	return nil
}

// verifySignature checks the signature against a chain that was computed from
// the fields, never against the one that came with them.
func (e *Envelope) verifySignature(chain *Hash, trusted []ed25519.PublicKey) error {
	if e.Signature.IsZero() {
		return e.integrityError("sig", "there is no signature, and one is required")
	}
	for _, key := range trusted {
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(chain), e.Signature[:]) {
			return nil
		}
	}
	return e.integrityError("sig", "the signature is by none of the trusted keys, or for another envelope")
}

// signed returns the bytes that are signed for a hash chain.
func signed(chain *Hash) []byte {
	return append([]byte(signatureTag), chain[:]...)
}

func sealError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "seal envelope", Field: field, Detail: detail}
}
