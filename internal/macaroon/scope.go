package macaroon

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TimeLayout is the only form of a time in a token.
const TimeLayout = "2006-01-02T15:04:05Z"

// The kinds of quota.
const (
	QuotaMessages = "msgs/s"
	QuotaBytes    = "bytes/s"
)

// QuotaWords has what each kind of quota counts, in English.
var QuotaWords = map[string]string{QuotaMessages: "messages", QuotaBytes: "bytes"}

// A Scope is what all caveats of a token together allow. Sets are intersected, and
// the least of several limits counts. Caveats that list alternatives keep one list
// each, of which one element must match.
type Scope struct {
	Operations                                                    OperationSet
	Queues                                                        [][]Pattern
	Tenants                                                       []string
	Expires                                                       int64 // Unix seconds
	NotBefore                                                     int64
	MaxBody                                                       int64
	Networks                                                      [][]netip.Prefix
	Peers                                                         [][]string
	Audiences                                                     [][]string
	Receipts, Slots                                               [][sha256.Size]byte
	Minters                                                       []Minter
	Quotas                                                        []Quota
	HasOperations, HasExpiry, HasNotBefore, HasMaxBody, HasTenant bool
}

// A Minter is a token that this one was minted with, directly or indirectly. It is
// revoked with its tenant if a tenant caveat precedes it: a minter without a tenant
// has no such caveat.
type Minter struct {
	Token    [16]byte
	OfTenant bool
	Caveats  int // how many precede it: those of the minter, and its tenant
}

// A Quota is a limit on a rate. Tokens narrowed from the same token share its
// quotas. So a quota is identified by the part of the token up to and including it,
// which these tokens have in common.
type Quota struct {
	Bucket [16]byte
	Depth  int // the length of its owner, a prefix of scope.owner
	Kind   string
	Limit  int64 // per second
}

// The names of the caveats. They are part of the format.
const (
	caveatPrefix    = "mbx:"
	CaveatOperation = "op"
	CaveatQueue     = "topic"
	CaveatTenant    = "tenant"
	CaveatExpiry    = "exp"
	CaveatNotBefore = "nbf"
	CaveatQuota     = "quota"
	CaveatMaxBody   = "max_body"
	CaveatNetwork   = "net"
	CaveatPeer      = "peer"
	CaveatAudience  = "aud"
	CaveatReceipt   = "receipt"
	CaveatSlot      = "slot"
	CaveatMintedBy  = "by"
)

// CaveatText returns the text of a caveat, as a token contains it.
func CaveatText(name, value string) string { return caveatPrefix + name + "=" + value }

// CutCaveat splits "mbx:name=value".
func CutCaveat(text string) (name, value string, ok bool) {
	text, ok = strings.CutPrefix(text, caveatPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(text, "=")
}

// A Fault is why a caveat cannot be checked; "" if it can.
type Fault string

// The faults of a caveat. They are reasons of package capability.
const (
	UnknownCaveat   Fault = "unknown_caveat"
	MalformedCaveat Fault = "malformed_caveat"
)

// caveatParsers has, by the name of the caveat, the function that adds its value to
// a scope. All other names are unknown.
var caveatParsers map[string]func(s *Scope, value string) bool

// The functions refer to the map, so init breaks the initialization cycle.
func init() {
	caveatParsers = map[string]func(s *Scope, value string) bool{
		CaveatOperation: (*Scope).addOperations,
		CaveatQueue:     (*Scope).addQueues,
		CaveatTenant:    (*Scope).addTenant,
		CaveatExpiry:    (*Scope).addExpiry,
		CaveatNotBefore: (*Scope).addNotBefore,
		CaveatQuota:     (*Scope).addQuota,
		CaveatMaxBody:   (*Scope).addMaxBody,
		CaveatNetwork:   (*Scope).addNetworks,
		CaveatPeer:      (*Scope).addPeers,
		CaveatAudience:  (*Scope).addAudiences,
		CaveatReceipt:   (*Scope).addReceipt,
		CaveatSlot:      (*Scope).addSlot,
		CaveatMintedBy:  (*Scope).addMinter,
	}
}

// Add narrows the scope by one caveat. It returns "", or the reason for refusing a
// token with this caveat.
func (s *Scope) Add(text string) Fault {
	name, value, ok := CutCaveat(text)
	if !ok {
		return UnknownCaveat
	}
	parse, known := caveatParsers[name]
	switch {
	case !known:
		return UnknownCaveat
	case !parse(s, value):
		return MalformedCaveat
	}
	return ""
}

func (s *Scope) addOperations(value string) bool {
	set, ok := parseOperations(value)
	if s.HasOperations {
		set &= s.Operations
	}
	s.Operations, s.HasOperations = set, true
	return ok
}

func (s *Scope) addQueues(value string) bool {
	var patterns []Pattern
	for text := range strings.SplitSeq(value, ListSeparator) {
		p, ok := ParsePattern(text)
		if !ok {
			return false
		}
		patterns = append(patterns, p)
	}
	s.Queues = append(s.Queues, patterns)
	return true
}

func (s *Scope) addTenant(value string) bool {
	s.Tenants, s.HasTenant = append(s.Tenants, value), true
	return ValidTenant(value)
}

func (s *Scope) addExpiry(value string) bool {
	at, ok := parseTime(value)
	if s.HasExpiry {
		at = min(at, s.Expires)
	}
	s.Expires, s.HasExpiry = at, true
	return ok
}

func (s *Scope) addNotBefore(value string) bool {
	at, ok := parseTime(value)
	if s.HasNotBefore {
		at = max(at, s.NotBefore)
	}
	s.NotBefore, s.HasNotBefore = at, true
	return ok
}

// parseTime returns Unix seconds. Package time parses more forms than it formats;
// only the form that it would write is accepted.
func parseTime(value string) (seconds int64, ok bool) {
	at, err := time.Parse(TimeLayout, value)
	if err != nil || at.Format(TimeLayout) != value || at.Year() < 1970 {
		return 0, false
	}
	return at.Unix(), true
}

func (s *Scope) addMaxBody(value string) bool {
	n, ok := parseCount(value)
	if s.HasMaxBody {
		n = min(n, s.MaxBody)
	}
	s.MaxBody, s.HasMaxBody = n, true
	return ok
}

// parseCount reads digits without a sign and without leading zeros.
func parseCount(value string) (int64, bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == value
}

func (s *Scope) addQuota(value string) bool {
	kind, text, ok := CutQuota(value)
	limit, okLimit := parseCount(text)
	s.Quotas = append(s.Quotas, Quota{Kind: kind, Limit: limit})
	return ok && okLimit && limit > 0
}

// CutQuota splits "msgs/s:100".
func CutQuota(value string) (kind, limit string, ok bool) {
	kind, limit, ok = strings.Cut(value, ":")
	return kind, limit, ok && QuotaWords[kind] != ""
}

func (s *Scope) addNetworks(value string) bool {
	var networks []netip.Prefix
	for text := range strings.SplitSeq(value, ListSeparator) {
		network, err := netip.ParsePrefix(text)
		// Bits outside the mask, and IPv4 written as IPv6, would give a network more
		// than one form.
		if err != nil || network.Masked().String() != text || network.Addr().Is4In6() {
			return false
		}
		networks = append(networks, network)
	}
	s.Networks = append(s.Networks, networks)
	return true
}

const maxPeerBytes = 2048

func (s *Scope) addPeers(value string) bool {
	peers := strings.Split(value, ListSeparator)
	s.Peers = append(s.Peers, peers)
	return !slices.ContainsFunc(peers, func(id string) bool {
		name, ok := strings.CutPrefix(id, "spiffe://")
		return !ok || !segmentsOfPlainNames(name)
	})
}

// segmentsOfPlainNames reports whether text consists of plain names separated by
// slashes.
func segmentsOfPlainNames(text string) bool {
	for segment := range strings.SplitSeq(text, "/") {
		if !plainName(segment, maxPeerBytes) || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

func (s *Scope) addAudiences(value string) bool {
	audiences := strings.Split(value, ListSeparator)
	s.Audiences = append(s.Audiences, audiences)
	return !slices.ContainsFunc(audiences, func(name string) bool { return !plainName(name, maxPeerBytes) })
}

func (s *Scope) addReceipt(value string) bool { return addSum(&s.Receipts, value) }

func (s *Scope) addSlot(value string) bool { return addSum(&s.Slots, value) }

// addSum adds a SHA-256 in hex digits.
func addSum(sums *[][sha256.Size]byte, value string) bool {
	var sum [sha256.Size]byte
	if len(value) != 2*len(sum) || strings.ToLower(value) != value {
		return false
	}
	_, err := hex.Decode(sum[:], []byte(value))
	*sums = append(*sums, sum)
	return err == nil
}

func (s *Scope) addMinter(value string) bool {
	id, ok := ParseTokenID(value)
	s.Minters = append(s.Minters, Minter{Token: id, OfTenant: s.HasTenant})
	return ok && id != [16]byte{}
}

// Complete reports whether the token names operations, queues and an expiry.
func (s *Scope) Complete() bool { return s.HasOperations && len(s.Queues) > 0 && s.HasExpiry }

// Alternatives joins the lists of several caveats of one kind, of which each must be
// met by one of its elements.
func Alternatives[E any](lists [][]E) string {
	texts := make([]string, len(lists))
	for i, list := range lists {
		words := make([]string, len(list))
		for j, element := range list {
			words[j] = fmt.Sprint(element)
		}
		texts[i] = strings.Join(words, ", ")
	}
	return Shortened(strings.Join(texts, ", and of these only "))
}

// maxWordsBytes bounds how much of a token an error repeats.
const maxWordsBytes = 200

// Shortened cuts text to what an error repeats of a token.
func Shortened(text string) string {
	if len(text) <= maxWordsBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxWordsBytes], "") + "…"
}
