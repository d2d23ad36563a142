package macaroon

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// Limits of a token.
const (
	// MaxBytes bounds the binary form of a token.
	MaxBytes = 4 << 10
	// MaxCaveats bounds the number of its caveats.
	MaxCaveats = 64
)

// The fields of the binary form, version 2, of libmacaroons. The form also has
// locations and third-party caveats, which are refused: the signature
// does not cover locations, so a token could be changed there unnoticed.
const (
	Version         = 2
	FieldEnd        = 0
	FieldLocation   = 1
	fieldIdentifier = 2
	FieldSignature  = 6

	SignatureBytes = sha256.Size
)

// A Macaroon is a parsed token. Its slices are parts of the token.
type Macaroon struct {
	Body       []byte // the token without its signature
	Identifier []byte
	caveats    [MaxCaveats]span // in body
	Count      int              // of caveats
	Signature  []byte
}

// A span is a range of bytes in a token; 16 bits are enough for MaxBytes.
type span struct{ start, end uint16 }

// Caveat returns a caveat.
func (m *Macaroon) Caveat(i int) []byte { return m.Body[m.caveats[i].start:m.caveats[i].end] }

// Through returns the token up to and including a caveat.
func (m *Macaroon) Through(i int) []byte { return m.Body[:m.caveats[i].end] }

// Parse parses a token. It is strict: a token has one encoding, so each of its
// bits is either covered by the signature or has one legal value.
func (m *Macaroon) Parse(token []byte) bool {
	if len(token) > MaxBytes || len(token) < 2+SignatureBytes {
		return false
	}
	cut := len(token) - SignatureBytes
	if token[cut-2] != FieldSignature || token[cut-1] != SignatureBytes || !m.ParseBody(token[:cut-2]) {
		return false
	}
	m.Signature = token[cut:]
	return true
}

// WithoutLocation removes an empty location from a token. Some libraries write one
// where there is none. It carries no information, and without it the token has its
// one encoding again.
func WithoutLocation(token []byte) []byte {
	if len(token) < 3 || token[0] != Version || token[1] != FieldLocation || token[2] != 0 {
		return token
	}
	return append(token[:1], token[3:]...)
}

// ParseBody parses a token without its signature.
func (m *Macaroon) ParseBody(body []byte) bool {
	m.Body = body
	if len(body) == 0 || len(body) > MaxBytes || body[0] != Version {
		return false
	}
	section, at, ok := parseSection(body, 1)
	if !ok {
		return false
	}
	m.Identifier = body[section.start:section.end]
	for m.Count = 0; ; m.Count++ {
		if at >= len(body) {
			return false
		}
		if body[at] == FieldEnd {
			return at+1 == len(body)
		}
		if m.Count == MaxCaveats {
			return false
		}
		if m.caveats[m.Count], at, ok = parseSection(body, at); !ok {
			return false
		}
	}
}

// parseSection reads one identifier field and the end of its section.
func parseSection(b []byte, at int) (content span, next int, ok bool) {
	if at >= len(b) || b[at] != fieldIdentifier {
		return span{}, at, false
	}
	at++
	length, n := binary.Uvarint(b[at:])
	// The shortest form of the length is its only one.
	if n <= 0 || length > MaxBytes || n != lengthBytes(int(length)) {
		return span{}, at, false
	}
	at += n
	end := at + int(length)
	if end >= len(b) || b[end] != FieldEnd {
		return span{}, at, false
	}
	return span{uint16(at), uint16(end)}, end + 1, true
}

// lengthBytes returns the size of the varint of a length up to MaxBytes.
func lengthBytes(length int) int {
	if length < 0x80 {
		return 1
	}
	return 2
}

// AppendSection appends an identifier or a caveat to b.
func AppendSection(b, content []byte) []byte {
	b = append(b, fieldIdentifier)
	b = binary.AppendUvarint(b, uint64(len(content)))
	b = append(b, content...)
	return append(b, FieldEnd)
}

// AppendSignature appends the signature, the last field of a token, to b.
func AppendSignature(b []byte, signature *[SignatureBytes]byte) []byte {
	b = append(b, FieldSignature, SignatureBytes)
	return append(b, signature[:]...)
}

// What is wrong with a text that is not a token.
const (
	NoToken  = "there is no token; mint one with mailbox cap mint"
	NotToken = "not a token; copy all of it, as mailbox cap mint printed it"
)

// Encoding is base64 for URLs without padding, the usual text form of macaroons, and
// strict: a token has one text.
var Encoding = base64.RawURLEncoding.Strict()

// A Chain is the signature of a token during its computation: each caveat hashes
// the previous signature into a new one. The last signature is enough to add
// caveats, and not to remove any.
type Chain [SignatureBytes]byte

// Start sets the chain to the signature of a token without caveats.
func (c *Chain) Start(rootKey, identifier []byte) {
	// libmacaroons accepts keys of any length and hashes them to 32 bytes like this.
	c.step([]byte("macaroons-key-generator"), rootKey)
	c.step(c[:], identifier)
}

// Add extends the chain by one caveat.
func (c *Chain) Add(caveat []byte) { c.step(c[:], caveat) }

func (c *Chain) step(key, message []byte) {
	mac := hmac.New(sha256.New, key)
	mac.Write(message)
	mac.Sum(c[:0])
}

// Of computes the chain of a whole token.
func (c *Chain) Of(rootKey []byte, m *Macaroon) {
	c.Start(rootKey, m.Identifier)
	for i := range m.Count {
		c.Add(m.Caveat(i))
	}
}

// Equals compares in constant time.
func (c *Chain) Equals(signature []byte) bool { return hmac.Equal(c[:], signature) }
