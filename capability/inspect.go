package capability

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Description is what can be read from a token without a key. Nothing in it is
// secret, and nothing in it is proven: a forged token can claim the same.
type Description struct {
	ID  TokenID
	Key KeyID
	// Tenant is empty if the token is bound to no tenant.
	Tenant   string
	MintedAt time.Time
	// ExpiresAt is the earliest expiry among the caveats; zero if there is none,
	// and then the token is always refused.
	ExpiresAt time.Time
	// Ends is when the last of the tokens narrowed from the same minted token
	// has expired, this one included; zero if ExpiresAt is.
	Ends    time.Time
	Caveats []Caveat
	// Operations and Queues are those that all caveats together allow; both are empty
	// for a token that allows nothing. Limits describes the other caveats in English.
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
		readable = s.add(caveat.text) == "" && readable
		if s.hasExpiry && d.Ends.IsZero() {
			d.Ends = time.Unix(s.expires, 0).UTC() // the first expiry is the minter's: Mint demands one
		}
		d.Caveats = append(d.Caveats, caveat)
	}
	if s.hasExpiry {
		d.ExpiresAt = time.Unix(s.expires, 0).UTC()
	}
	if readable && s.complete() {
		d.Operations, d.Queues, d.Limits = s.operationList(), s.commonQueues(), s.limits()
	}
	return d
}

// Words describes in English what the token allows, one line for each caveat.
func (d Description) Words() []string {
	words := []string{"minted " + d.MintedAt.Format(time.RFC3339) + " with key " + d.Key.String()}
	if d.Tenant != "" {
		words = append(words, "for tenant "+d.Tenant)
	}
	for _, caveat := range d.Caveats {
		words = append(words, caveat.words())
	}
	return words
}

// words describes the caveat in English. It quotes unknown caveats.
func (c Caveat) words() string {
	name, value, ok := cutCaveat(c.text)
	if !ok || c.Check() != nil {
		return "refused, because of an unknown caveat: " + strconv.Quote(c.text)
	}
	switch name {
	case caveatOperation:
		return "may " + value
	case caveatQueue:
		return "on queues " + value
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
	case caveatMintedBy:
		return "until " + value + ", the token that it was minted with, is revoked"
	}
	return "for one delivery only"
}

// operationList returns the allowed operations.
func (s *scope) operationList() (list []Operation) {
	for o := OpSend; o.valid(); o++ {
		if s.operations.has(o) {
			list = append(list, o)
		}
	}
	return list
}

// commonQueues returns the patterns that all queue caveats allow.
func (s *scope) commonQueues() []Pattern {
	left := []Pattern{AnyQueue()}
	for _, patterns := range s.queues {
		var both []Pattern
		for _, a := range left {
			for _, b := range patterns {
				if p := a.meet(b); p.valid() && !slices.Contains(both, p) {
					both = append(both, p)
				}
			}
		}
		left = both
	}
	return left
}

// meet returns the pattern of the queues that both patterns match, and the zero
// Pattern if there are none.
func (p Pattern) meet(other Pattern) Pattern {
	covers := func(wide, narrow Pattern) bool {
		switch {
		case wide.kind == patternAny:
			return true
		case narrow.kind == patternExact:
			return wide.matches(narrow.text)
		}
		return wide.kind == patternPrefix && narrow.kind == patternPrefix && strings.HasPrefix(narrow.text, wide.text)
	}
	switch {
	case covers(other, p):
		return p
	case covers(p, other):
		return other
	}
	return Pattern{}
}

// limits describes the caveats other than operations, queues and expiry.
func (s *scope) limits() (words []string) {
	if len(s.tenants) > 0 {
		tenants := slices.Compact(slices.Sorted(slices.Values(s.tenants)))
		words = append(words, "for tenant "+strings.Join(tenants, " and "))
	}
	if s.hasNotBefore {
		words = append(words, "from "+time.Unix(s.notBefore, 0).UTC().Format(timeLayout))
	}
	for _, kind := range []string{quotaMessages, quotaBytes} {
		least := int64(0)
		for _, q := range s.quotas {
			if q.kind == kind && (least == 0 || q.limit < least) {
				least = q.limit
			}
		}
		if least > 0 {
			words = append(words, fmt.Sprintf("at most %d %s per second", least, quotaWords[kind]))
		}
	}
	if s.hasMaxBody {
		words = append(words, fmt.Sprintf("bodies of at most %d bytes", s.maxBody))
	}
	if len(s.networks) > 0 {
		words = append(words, "for clients in "+alternatives(s.networks))
	}
	if len(s.peers) > 0 {
		words = append(words, "for clients with the certificate of "+alternatives(s.peers))
	}
	if len(s.audiences) > 0 {
		words = append(words, "at "+alternatives(s.audiences))
	}
	if len(s.receipts) > 0 {
		words = append(words, "for one delivery only")
	}
	return words
}
