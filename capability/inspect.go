package capability

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/internal/macaroon"
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
	var m macaroon.Macaroon
	if !m.Parse(t.binary.Bytes()) {
		return Description{}
	}
	id, _ := macaroon.ParseIdentifier(m.Identifier)
	d := Description{ID: TokenID(id.Token), Key: KeyID(id.Key), Tenant: id.Tenant, MintedAt: TokenID(id.Token).MintedAt()}
	var s macaroon.Scope
	if id.Tenant != "" {
		s.Tenants = append(s.Tenants, id.Tenant)
	}
	readable := true
	for i := range m.Count {
		caveat := Caveat{text: string(m.Caveat(i))}
		readable = s.Add(caveat.text) == "" && readable
		if s.HasExpiry && d.Ends.IsZero() {
			d.Ends = time.Unix(s.Expires, 0).UTC() // the first expiry is the minter's: Mint demands one
		}
		d.Caveats = append(d.Caveats, caveat)
	}
	if s.HasExpiry {
		d.ExpiresAt = time.Unix(s.Expires, 0).UTC()
	}
	if readable && s.Complete() {
		for _, o := range s.Operations.List() {
			d.Operations = append(d.Operations, Operation(o))
		}
		for _, p := range s.CommonQueues() {
			d.Queues = append(d.Queues, Pattern{p})
		}
		d.Limits = limits(&s)
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
	name, value, ok := macaroon.CutCaveat(c.text)
	if !ok || c.Check() != nil {
		return "refused, because of an unknown caveat: " + strconv.Quote(c.text)
	}
	switch name {
	case macaroon.CaveatOperation:
		return "may " + value
	case macaroon.CaveatQueue:
		return "on queues " + value
	case macaroon.CaveatTenant:
		return "for tenant " + value
	case macaroon.CaveatExpiry:
		return "until " + value
	case macaroon.CaveatNotBefore:
		return "from " + value
	case macaroon.CaveatQuota:
		kind, limit, _ := macaroon.CutQuota(value)
		return "at most " + limit + " " + macaroon.QuotaWords[kind] + " per second"
	case macaroon.CaveatMaxBody:
		return "bodies of at most " + value + " bytes"
	case macaroon.CaveatNetwork:
		return "from network " + value
	case macaroon.CaveatPeer:
		return "as " + value
	case macaroon.CaveatAudience:
		return "at " + value
	case macaroon.CaveatMintedBy:
		return "until " + value + ", the token that it was minted with, is revoked"
	case macaroon.CaveatSlot:
		return "for one reply slot only"
	}
	return "for one delivery only"
}

// limits describes the caveats other than operations, queues and expiry.
func limits(s *macaroon.Scope) (words []string) {
	if len(s.Tenants) > 0 {
		tenants := slices.Compact(slices.Sorted(slices.Values(s.Tenants)))
		words = append(words, "for tenant "+strings.Join(tenants, " and "))
	}
	if s.HasNotBefore {
		words = append(words, "from "+time.Unix(s.NotBefore, 0).UTC().Format(macaroon.TimeLayout))
	}
	for _, kind := range []string{macaroon.QuotaMessages, macaroon.QuotaBytes} {
		least := int64(0)
		for _, q := range s.Quotas {
			if q.Kind == kind && (least == 0 || q.Limit < least) {
				least = q.Limit
			}
		}
		if least > 0 {
			words = append(words, fmt.Sprintf("at most %d %s per second", least, macaroon.QuotaWords[kind]))
		}
	}
	if s.HasMaxBody {
		words = append(words, fmt.Sprintf("bodies of at most %d bytes", s.MaxBody))
	}
	if len(s.Networks) > 0 {
		words = append(words, "for clients in "+macaroon.Alternatives(s.Networks))
	}
	if len(s.Peers) > 0 {
		words = append(words, "for clients with the certificate of "+macaroon.Alternatives(s.Peers))
	}
	if len(s.Audiences) > 0 {
		words = append(words, "at "+macaroon.Alternatives(s.Audiences))
	}
	if len(s.Receipts) > 0 {
		words = append(words, "for one delivery only")
	}
	if len(s.Slots) > 0 {
		words = append(words, "for one reply slot only")
	}
	return words
}
