package capability

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Token is a capability: who shows it may do what its conditions allow. It is
// a secret. No verb of package fmt, no logger and no encoder shows more of it
// than its id; only Reveal does.
//
// The zero Token is none. Tokens are immutable and may be copied.
type Token struct{ binary sealed }

// Parse reads the text form of a token, what Reveal returned. It checks the
// form and nothing else: whether a token is good only a [Verifier] can tell.
// The error has code driver.ErrUnauthenticated and reason ReasonMalformed, and
// does not repeat the text.
func Parse(text string) (Token, error) {
	if len(text) > tokenEncoding.EncodedLen(MaxTokenBytes) {
		return Token{}, malformed()
	}
	// Decoding skips line breaks, which would make more than one text of a
	// token; the length gives them away.
	binary, err := tokenEncoding.DecodeString(text)
	if err != nil || tokenEncoding.EncodedLen(len(binary)) != len(text) {
		return Token{}, malformed()
	}
	return adopt(binary)
}

// ParseBinary is Parse for the binary form of a macaroon, version 2. It keeps a
// copy of the bytes. No bytes at all are ReasonMissing.
func ParseBinary(binary []byte) (Token, error) {
	if len(binary) == 0 {
		return Token{}, refusal(ReasonMissing, &Request{}, nil, 0)
	}
	if len(binary) > MaxTokenBytes {
		return Token{}, malformed()
	}
	return adopt(append([]byte(nil), binary...))
}

// adopt makes a token of bytes that nobody else has.
func adopt(binary []byte) (Token, error) {
	binary = withoutLocation(binary)
	var m macaroon
	if !m.parse(binary) {
		return Token{}, malformed()
	}
	if _, ok := parseIdentifier(m.identifier); !ok {
		return Token{}, malformed()
	}
	return Token{seal(binary)}, nil
}

func malformed() error { return refusal(ReasonMalformed, &Request{}, nil, 0) }

// IsZero reports whether t is no token.
func (t Token) IsZero() bool { return len(t.binary.bytes()) == 0 }

// Reveal returns the token as text, to be sent to who is to have it. Keep it out
// of logs.
func (t Token) Reveal() string { return tokenEncoding.EncodeToString(t.binary.bytes()) }

// RevealBinary appends the binary form to b.
func (t Token) RevealBinary(b []byte) []byte { return append(b, t.binary.bytes()...) }

// Equal reports whether both are the same token, in constant time.
func (t Token) Equal(other Token) bool {
	return subtle.ConstantTimeCompare(t.binary.bytes(), other.binary.bytes()) == 1
}

// A Fingerprint names one token exactly: unlike a TokenID it is not that of the
// tokens narrowed from it. It is not secret, and the token cannot be had from it.
type Fingerprint [16]byte

// Fingerprint returns that of the token. It costs a hash.
func (t Token) Fingerprint() Fingerprint {
	sum := sha256.Sum256(t.binary.bytes())
	return Fingerprint(sum[:16])
}

// ID names the token and everything that was narrowed from it.
func (t Token) ID() TokenID { return t.identifier().token }

func (t Token) identifier() identifier {
	var m macaroon
	if !m.parse(t.binary.bytes()) {
		return identifier{} // the zero Token; all others were parsed before
	}
	id, _ := parseIdentifier(m.identifier)
	return id
}

// Attenuate returns a token with further conditions. It needs no key and asks
// nobody. All conditions of a token must be met, so each can only narrow what it
// allows; there is no way back to the wider token.
//
// The error is ErrInvalid for a bad caveat or the zero Token, and ErrTooLarge if
// the token would have more than MaxTokenBytes or MaxCaveats.
func (t Token) Attenuate(caveats ...Caveat) (Token, error) {
	var m macaroon
	if !m.parse(t.binary.bytes()) {
		return Token{}, invalid("token", "there is none")
	}
	c := chain(m.signature)
	return extend(m.body, m.count, &c, caveats)
}

// extend makes a token of the body of one with count caveats, its chain, and
// further caveats.
func extend(body []byte, count int, c *chain, caveats []Caveat) (Token, error) {
	size := len(body) + 2 + signatureBytes
	for _, caveat := range caveats {
		if err := caveat.check(); err != nil {
			return Token{}, err
		}
		size += 1 + lengthBytes(len(caveat.text)) + len(caveat.text) + 1
	}
	if count+len(caveats) > MaxCaveats || size > MaxTokenBytes {
		return Token{}, &driver.Error{
			Code: driver.ErrTooLarge, Op: "capability", Field: "token",
			Detail: fmt.Sprintf("%d caveats and %d bytes, at most %d and %d are allowed", count+len(caveats), size, MaxCaveats, MaxTokenBytes),
		}
	}
	binary := append(make([]byte, 0, size), body[:len(body)-1]...) // without the end of the caveats
	for _, caveat := range caveats {
		binary = appendSection(binary, []byte(caveat.text))
		c.add([]byte(caveat.text))
	}
	binary = append(binary, fieldEnd)
	return Token{seal(appendSignature(binary, (*[signatureBytes]byte)(c)))}, nil
}

// String names the token without giving it away: "[capability key/id]".
func (t Token) String() string {
	if t.IsZero() {
		return "[no capability]"
	}
	return t.identifier().String()
}

func (id identifier) String() string {
	return "[capability " + id.key.String() + "/" + id.token.String() + "]"
}

// GoString returns what String returns.
func (t Token) GoString() string { return t.String() }

// Format prints what String returns, for every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue is what String returns.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns what String returns: a token leaves only by Reveal.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is Parse, so that a token can stand in a file of settings.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// A Description is what can be said of a token without a key. Nothing in it is
// secret, and nothing in it is proven: anybody can write a token that describes
// itself so.
type Description struct {
	ID  TokenID
	Key KeyID
	// Tenant is empty if the token is of no tenant in particular.
	Tenant   string
	MintedAt time.Time
	// ExpiresAt is the earliest end that the token names; zero if it names none
	// and so is good for nothing.
	ExpiresAt time.Time
	// Ends is when everything that was narrowed from the same token has expired
	// at the latest, this one included; zero as ExpiresAt.
	Ends    time.Time
	Caveats []Caveat
	// Operations and Queues are what all caveats together leave; both are empty for a
	// token that allows nothing. Limits are the further conditions in words.
	Operations []Operation
	Queues     []Pattern
	Limits     []string
}

// Inspect describes the token. It needs no key.
func (t Token) Inspect() Description {
	var m macaroon
	if !m.parse(t.binary.bytes()) {
		return Description{}
	}
	id, _ := parseIdentifier(m.identifier)
	d := Description{ID: id.token, Key: id.key, Tenant: id.tenant, MintedAt: id.token.MintedAt()}
	var s scope
	if id.tenant != "" {
		s.tenants = append(s.tenants, id.tenant)
	}
	readable := true
	for i := range m.count {
		caveat := Caveat{text: string(m.caveat(i))}
		readable = s.add(caveat.text) == "" && readable // what is unknown says so itself
		if s.hasExpiry && d.Ends.IsZero() {
			d.Ends = time.Unix(s.expires, 0).UTC() // minted tokens have one, so it is not of who narrowed it
		}
		d.Caveats = append(d.Caveats, caveat)
	}
	if s.hasExpiry {
		d.ExpiresAt = time.Unix(s.expires, 0).UTC()
	}
	if readable && s.complete() {
		d.Operations, d.Queues, d.Limits = s.operationList(), s.queues(), s.limits()
	}
	return d
}

// Words says what the token allows, one line for each condition.
func (d Description) Words() []string {
	words := []string{"minted " + d.MintedAt.Format(time.RFC3339) + " with key " + d.Key.String()}
	if d.Tenant != "" {
		words = append(words, "for tenant "+d.Tenant)
	}
	for _, caveat := range d.Caveats {
		words = append(words, caveat.Words())
	}
	return words
}

// Words says in English what the condition demands. What it does not know it
// quotes.
func (c Caveat) Words() string {
	name, value, ok := cutCaveat(c.text)
	if !ok || c.Check() != nil {
		return "refused, because of an unknown condition: " + strconv.Quote(c.text)
	}
	switch name {
	case caveatOperation:
		return "may " + value
	case caveatTopic:
		return "on topics " + value
	case caveatTenant:
		return "for tenant " + value
	case caveatExpiry:
		return "until " + value
	case caveatNotBefore:
		return "from " + value
	case caveatQuota:
		kind, limit, _ := cutQuota(value)
		return "at most " + limit + " " + quotaWords[kind] + " per second"
	case caveatMaxBody:
		return "bodies of at most " + value + " bytes"
	case caveatNetwork:
		return "from network " + value
	case caveatPeer:
		return "as " + value
	case caveatAudience:
		return "at " + value
	case caveatMaker:
		return "while " + value + ", which it was minted with, is not revoked"
	}
	return "for one delivery only"
}

// Tenant is the one that the token was minted for; empty if it is of none in
// particular. Like all that a token says of itself it is proven only when a
// Verifier has accepted the token.
func (t Token) Tenant() string { return t.identifier().tenant }
