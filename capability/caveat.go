package capability

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A Caveat is a condition on the use of a token. Make one with the functions of
// this package or with ParseCaveat; the zero Caveat is invalid. Its text, as the
// token contains it, is "mbx:name=value".
type Caveat struct {
	text string
	err  error // set if the arguments were invalid
}

// Operations allows only these operations.
func Operations(operations ...Operation) Caveat {
	words := make([]string, len(operations))
	for i, o := range operations {
		words[i] = o.String()
	}
	return caveat(macaroon.CaveatOperation, strings.Join(words, macaroon.ListSeparator))
}

// AllOperations allows every operation except [OpBackup], [OpAudit], [OpAsk], [OpAnswer] and
// [OpThrottle], which a token must name.
func AllOperations() Caveat { return caveat(macaroon.CaveatOperation, macaroon.Wildcard) }

// EveryOperation names every operation, those included that AllOperations excludes. An older
// service that does not know one of the names refuses the token.
func EveryOperation() Caveat {
	return caveat(macaroon.CaveatOperation, strings.Join(macaroon.Operations[1:], macaroon.ListSeparator))
}

// Queues allows only queues that match one of the patterns. In the token it is
// "mbx:topic=".
func Queues(patterns ...Pattern) Caveat {
	texts := make([]string, len(patterns))
	for i, p := range patterns {
		if !p.pattern.Valid() {
			return Caveat{err: patternError()}
		}
		texts[i] = p.String()
	}
	return caveat(macaroon.CaveatQueue, strings.Join(texts, macaroon.ListSeparator))
}

// Tenant allows only requests for this tenant.
func Tenant(name string) Caveat { return caveat(macaroon.CaveatTenant, name) }

// ExpiresAt ends the token at t, rounded down to the second. From then on it is
// refused, without a grace period.
func ExpiresAt(t time.Time) Caveat {
	return caveat(macaroon.CaveatExpiry, t.UTC().Truncate(time.Second).Format(macaroon.TimeLayout))
}

// NotBefore starts the token at t, rounded up to the second. It is accepted two
// minutes before that, because clocks differ.
func NotBefore(t time.Time) Caveat {
	return caveat(macaroon.CaveatNotBefore, t.UTC().Add(time.Second-1).Truncate(time.Second).Format(macaroon.TimeLayout))
}

// MessagesPerSecond allows n messages per second, sent and received together, for
// this token and all tokens narrowed from it.
func MessagesPerSecond(n int64) Caveat {
	return caveat(macaroon.CaveatQuota, macaroon.QuotaMessages+":"+strconv.FormatInt(n, 10))
}

// BytesPerSecond allows n bytes of bodies per second, sent and received together,
// for this token and all tokens narrowed from it. Answers of reply slots count, and are
// not delayed themselves.
func BytesPerSecond(n int64) Caveat {
	return caveat(macaroon.CaveatQuota, macaroon.QuotaBytes+":"+strconv.FormatInt(n, 10))
}

// MaxBodyBytes allows sending bodies of at most n bytes.
func MaxBodyBytes(n int64) Caveat { return caveat(macaroon.CaveatMaxBody, strconv.FormatInt(n, 10)) }

// Networks allows only clients in one of these networks.
func Networks(networks ...netip.Prefix) Caveat {
	texts := make([]string, len(networks))
	for i, network := range networks {
		texts[i] = network.Masked().String()
	}
	return caveat(macaroon.CaveatNetwork, strings.Join(texts, macaroon.ListSeparator))
}

// Peers allows only clients whose certificate was verified to have one of these
// SPIFFE ids, such as "spiffe://example.org/worker".
func Peers(ids ...string) Caveat {
	return caveat(macaroon.CaveatPeer, strings.Join(ids, macaroon.ListSeparator))
}

// Audience allows use only at services with one of these names: letters, digits,
// dots, underscores and hyphens.
func Audience(names ...string) Caveat {
	return caveat(macaroon.CaveatAudience, strings.Join(names, macaroon.ListSeparator))
}

// ForReceipt allows only settling or extending the delivery with this receipt, for
// a receiver that delegates the work.
func ForReceipt(receipt string) Caveat {
	if receipt == "" {
		return Caveat{err: invalid("receipt", "is empty")}
	}
	return caveatOfSum(macaroon.CaveatReceipt, receipt)
}

// ForSlot allows only operations on the reply slot with this id: asking for one answer,
// or giving it.
func ForSlot(id string) Caveat {
	if id == "" {
		return Caveat{err: invalid("slot", "is empty")}
	}
	return caveatOfSum(macaroon.CaveatSlot, id)
}

// caveatOfSum makes a caveat whose value is the SHA-256 of a secret.
func caveatOfSum(name, secret string) Caveat {
	sum := sha256.Sum256([]byte(secret))
	return caveat(name, hex.EncodeToString(sum[:]))
}

// MintedBy names the token that this one was minted with; revoking that token
// revokes this one too. With a Tenant caveat before it, revoking the tenant revokes
// this token if the named one was minted by then.
func MintedBy(token TokenID) Caveat { return caveat(macaroon.CaveatMintedBy, token.String()) }

// caveat makes a caveat whose value may be invalid.
func caveat(name, value string) Caveat { return Caveat{text: macaroon.CaveatText(name, value)} }

// ParseCaveat reads what String returned. The error is ErrInvalid, for unknown
// names too.
func ParseCaveat(text string) (Caveat, error) {
	c := Caveat{text: text}
	if err := c.Check(); err != nil {
		return Caveat{}, err
	}
	return c, nil
}

// String returns the text as the token contains it. It is not secret.
func (c Caveat) String() string { return c.text }

// Check returns ErrInvalid if the caveat was made with invalid arguments, or if
// this version does not know it. A token with such a caveat is always refused.
func (c Caveat) Check() error {
	if c.err != nil {
		return c.err
	}
	var s macaroon.Scope
	switch s.Add(c.text) {
	case "":
		return nil
	case macaroon.UnknownCaveat:
		return invalid("caveat", fmt.Sprintf("%.60q is unknown; want a form like mbx:op=send", c.text))
	}
	name, _, _ := macaroon.CutCaveat(c.text)
	return invalid(name, "want "+caveatForms[name])
}

// caveatForms describes the valid values, for errors.
var caveatForms = map[string]string{
	macaroon.CaveatOperation: "one or more of " + strings.Join(macaroon.Operations[1:], ", ") + ", or all",
	macaroon.CaveatQueue:     `one or more names of queues, or prefixes that end in one of ":/.", or all`,
	macaroon.CaveatTenant:    "1…64 letters, digits, dots, underscores and hyphens",
	macaroon.CaveatExpiry:    `a time of the years 1970 to 9999, "2026-01-02T03:04:05Z"`,
	macaroon.CaveatNotBefore: `a time of the years 1970 to 9999, "2026-01-02T03:04:05Z"`,
	macaroon.CaveatQuota:     `"msgs/s:" or "bytes/s:" and a number from 1`,
	macaroon.CaveatMaxBody:   "a number from 0",
	macaroon.CaveatNetwork:   "one or more networks such as 10.0.0.0/8",
	macaroon.CaveatPeer:      "one or more SPIFFE ids such as spiffe://example.org/worker",
	macaroon.CaveatAudience:  "one or more names of letters, digits, dots, underscores and hyphens",
	macaroon.CaveatReceipt:   "64 hex digits",
	macaroon.CaveatSlot:      "64 hex digits",
	macaroon.CaveatMintedBy:  "the 26 characters of the id of a token",
}
