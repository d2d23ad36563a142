package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Limits of a token.
const (
	// MaxTokenBytes bounds the binary form of a token.
	MaxTokenBytes = 4 << 10
	// maxCaveats bounds the number of its caveats.
	maxCaveats = 64
)

// The fields of the binary form, version 2, of libmacaroons. The form also has
// locations and third-party caveats, which this package refuses: the signature
// does not cover locations, so a token could be changed there unnoticed.
const (
	macaroonVersion = 2
	fieldEnd        = 0
	fieldLocation   = 1
	fieldIdentifier = 2
	fieldSignature  = 6

	signatureBytes = sha256.Size
)

// A macaroon is a parsed token. Its slices are parts of the token.
type macaroon struct {
	body       []byte // the token without its signature
	identifier []byte
	caveats    [maxCaveats]span // in body
	count      int              // of caveats
	signature  []byte
}

// A span is a range of bytes in a token; 16 bits are enough for MaxTokenBytes.
type span struct{ start, end uint16 }

func (m *macaroon) caveat(i int) []byte { return m.body[m.caveats[i].start:m.caveats[i].end] }

// parse parses a token. It is strict: a token has one encoding, so each of its
// bits is either covered by the signature or has one legal value.
func (m *macaroon) parse(token []byte) bool {
	if len(token) > MaxTokenBytes || len(token) < 2+signatureBytes {
		return false
	}
	cut := len(token) - signatureBytes
	if token[cut-2] != fieldSignature || token[cut-1] != signatureBytes || !m.parseBody(token[:cut-2]) {
		return false
	}
	m.signature = token[cut:]
	return true
}

// withoutLocation removes an empty location from a token. Some libraries write one
// where there is none. It carries no information, and without it the token has its
// one encoding again.
func withoutLocation(token []byte) []byte {
	if len(token) < 3 || token[0] != macaroonVersion || token[1] != fieldLocation || token[2] != 0 {
		return token
	}
	return append(token[:1], token[3:]...)
}

// parseBody parses a token without its signature.
func (m *macaroon) parseBody(body []byte) bool {
	m.body = body
	if len(body) == 0 || len(body) > MaxTokenBytes || body[0] != macaroonVersion {
		return false
	}
	section, at, ok := parseSection(body, 1)
	if !ok {
		return false
	}
	m.identifier = body[section.start:section.end]
	for m.count = 0; ; m.count++ {
		if at >= len(body) {
			return false
		}
		if body[at] == fieldEnd {
			return at+1 == len(body)
		}
		if m.count == maxCaveats {
			return false
		}
		if m.caveats[m.count], at, ok = parseSection(body, at); !ok {
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
	if n <= 0 || length > MaxTokenBytes || n != lengthBytes(int(length)) {
		return span{}, at, false
	}
	at += n
	end := at + int(length)
	if end >= len(b) || b[end] != fieldEnd {
		return span{}, at, false
	}
	return span{uint16(at), uint16(end)}, end + 1, true
}

// lengthBytes returns the size of the varint of a length up to MaxTokenBytes.
func lengthBytes(length int) int {
	if length < 0x80 {
		return 1
	}
	return 2
}

func appendSection(b, content []byte) []byte {
	b = append(b, fieldIdentifier)
	b = binary.AppendUvarint(b, uint64(len(content)))
	b = append(b, content...)
	return append(b, fieldEnd)
}

func appendSignature(b []byte, signature *[signatureBytes]byte) []byte {
	b = append(b, fieldSignature, signatureBytes)
	return append(b, signature[:]...)
}

// A chain is the signature of a token during its computation: each caveat hashes
// the previous signature into a new one. The last signature is enough to add
// caveats, and not to remove any.
type chain [signatureBytes]byte

// start sets the chain to the signature of a token without caveats.
func (c *chain) start(rootKey, identifier []byte) {
	// libmacaroons accepts keys of any length and hashes them to 32 bytes like this.
	c.step([]byte("macaroons-key-generator"), rootKey)
	c.step(c[:], identifier)
}

// add extends the chain by one caveat.
func (c *chain) add(caveat []byte) { c.step(c[:], caveat) }

func (c *chain) step(key, message []byte) {
	mac := hmac.New(sha256.New, key)
	mac.Write(message)
	mac.Sum(c[:0])
}

// of computes the chain of a whole token.
func (c *chain) of(rootKey []byte, m *macaroon) {
	c.start(rootKey, m.identifier)
	for i := range m.count {
		c.add(m.caveat(i))
	}
}

// equals compares in constant time.
func (c *chain) equals(signature []byte) bool { return hmac.Equal(c[:], signature) }
