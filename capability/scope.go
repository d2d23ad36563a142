package capability

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// timeLayout is the one form of a time in a token.
	timeLayout = "2006-01-02T15:04:05Z"
	// notBeforeGrace is how much earlier than it says a token is accepted.
	notBeforeGrace = 2 * time.Minute
)

// The kinds of quota.
const (
	quotaMessages = "msgs/s"
	quotaBytes    = "bytes/s"
)

var quotaWords = map[string]string{quotaMessages: "messages", quotaBytes: "bytes"}

// A scope is what the caveats of a token add up to. All of them hold: sets are
// intersected, limits are the least, and what comes in alternatives is kept as
// one list for each caveat, of which one must match.
type scope struct {
	operations operationSet
	topics     [][]Pattern
	tenants    []string
	expires    int64 // Unix seconds
	notBefore  int64
	maxBody    int64
	networks   [][]netip.Prefix
	peers      [][]string
	audiences  [][]string
	receipts   [][sha256.Size]byte
	makers     []maker
	quotas     []quota
	// owner is whose share of the meter the quotas count against; nil without quotas.
	owner share.Path

	hasOperations, hasExpiry, hasNotBefore, hasMaxBody, hasTenant bool
}

// A maker is a token that the token was minted with, directly or not. It ends with
// its tenant if a tenant caveat stands before it: minters of no tenant have none.
type maker struct {
	token    TokenID
	ofTenant bool
	caveats  int // how many stand before it: those of the maker, and its tenant
}

// A quota is one limit on a rate. Tokens that were narrowed from the same one
// share its quotas, so they are told apart by the part of the token that ends
// with them, which all of these have in common.
type quota struct {
	bucket bucketID
	depth  int // how much of scope.owner is its owner
	kind   string
	limit  int64 // per second
}

type bucketID [16]byte

// conditions reads values into a scope. What is not here is unknown.
var conditions map[string]func(s *scope, value string) bool

// The map refers to functions that refer to it, which Go wants broken up.
func init() {
	conditions = map[string]func(s *scope, value string) bool{
		caveatOperation: (*scope).addOperations,
		caveatTopic:     (*scope).addTopics,
		caveatTenant:    (*scope).addTenant,
		caveatExpiry:    (*scope).addExpiry,
		caveatNotBefore: (*scope).addNotBefore,
		caveatQuota:     (*scope).addQuota,
		caveatMaxBody:   (*scope).addMaxBody,
		caveatNetwork:   (*scope).addNetworks,
		caveatPeer:      (*scope).addPeers,
		caveatAudience:  (*scope).addAudiences,
		caveatReceipt:   (*scope).addReceipt,
		caveatMaker:     (*scope).addMaker,
	}
}

// add narrows the scope by one caveat. It returns "" or why the token is
// refused because of it.
func (s *scope) add(text string) Reason {
	name, value, ok := cutCaveat(text)
	if !ok {
		return ReasonUnknownCaveat
	}
	condition, known := conditions[name]
	switch {
	case !known:
		return ReasonUnknownCaveat
	case !condition(s, value):
		return ReasonMalformedCaveat
	}
	return ""
}

func (s *scope) addOperations(value string) bool {
	set, ok := parseOperations(value)
	if s.hasOperations {
		set &= s.operations
	}
	s.operations, s.hasOperations = set, true
	return ok
}

func (s *scope) addTopics(value string) bool {
	var patterns []Pattern
	for text := range strings.SplitSeq(value, listSeparator) {
		p, ok := parsePattern(text)
		if !ok {
			return false
		}
		patterns = append(patterns, p)
	}
	s.topics = append(s.topics, patterns)
	return true
}

func (s *scope) addTenant(value string) bool {
	s.tenants, s.hasTenant = append(s.tenants, value), true
	return checkTenant(value) == nil
}

func (s *scope) addExpiry(value string) bool {
	at, ok := parseTime(value)
	if s.hasExpiry {
		at = min(at, s.expires)
	}
	s.expires, s.hasExpiry = at, true
	return ok
}

func (s *scope) addNotBefore(value string) bool {
	at, ok := parseTime(value)
	if s.hasNotBefore {
		at = max(at, s.notBefore)
	}
	s.notBefore, s.hasNotBefore = at, true
	return ok
}

// parseTime returns Unix seconds. Package time reads more forms than it writes;
// only what would be written in the same way is read.
func parseTime(value string) (seconds int64, ok bool) {
	at, err := time.Parse(timeLayout, value)
	if err != nil || at.Format(timeLayout) != value || at.Year() < 1970 {
		return 0, false
	}
	return at.Unix(), true
}

func (s *scope) addMaxBody(value string) bool {
	n, ok := parseCount(value)
	if s.hasMaxBody {
		n = min(n, s.maxBody)
	}
	s.maxBody, s.hasMaxBody = n, true
	return ok
}

// parseCount reads digits without sign and leading zeros.
func parseCount(value string) (int64, bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == value
}

func (s *scope) addQuota(value string) bool {
	kind, text, ok := cutQuota(value)
	limit, okLimit := parseCount(text)
	s.quotas = append(s.quotas, quota{kind: kind, limit: limit})
	return ok && okLimit && limit > 0
}

// cutQuota splits "msgs/s:100".
func cutQuota(value string) (kind, limit string, ok bool) {
	kind, limit, ok = strings.Cut(value, ":")
	return kind, limit, ok && quotaWords[kind] != ""
}

func (s *scope) addNetworks(value string) bool {
	var networks []netip.Prefix
	for text := range strings.SplitSeq(value, listSeparator) {
		network, err := netip.ParsePrefix(text)
		// Bits behind the mask, and IPv4 written as IPv6, would be other ways to
		// write the same network.
		if err != nil || network.Masked().String() != text || network.Addr().Is4In6() {
			return false
		}
		networks = append(networks, network)
	}
	s.networks = append(s.networks, networks)
	return true
}

const maxPeerBytes = 2048

func (s *scope) addPeers(value string) bool {
	peers := strings.Split(value, listSeparator)
	s.peers = append(s.peers, peers)
	return !slices.ContainsFunc(peers, func(id string) bool {
		name, ok := strings.CutPrefix(id, "spiffe://")
		return !ok || !segmentsOfPlainNames(name)
	})
}

// segmentsOfPlainNames reports whether text is names with slashes between them.
func segmentsOfPlainNames(text string) bool {
	for segment := range strings.SplitSeq(text, "/") {
		if !plainName(segment, maxPeerBytes) || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

func (s *scope) addAudiences(value string) bool {
	audiences := strings.Split(value, listSeparator)
	s.audiences = append(s.audiences, audiences)
	return !slices.ContainsFunc(audiences, func(name string) bool { return !plainName(name, maxPeerBytes) })
}

func (s *scope) addReceipt(value string) bool {
	var sum [sha256.Size]byte
	if len(value) != 2*len(sum) || strings.ToLower(value) != value {
		return false
	}
	_, err := hex.Decode(sum[:], []byte(value))
	s.receipts = append(s.receipts, sum)
	return err == nil
}

func (s *scope) addMaker(value string) bool {
	id, err := ParseTokenID(value)
	s.makers = append(s.makers, maker{token: id, ofTenant: s.hasTenant})
	return err == nil && !id.IsZero()
}

// complete reports whether the scope says for what, where and until when.
func (s *scope) complete() bool { return s.hasOperations && len(s.topics) > 0 && s.hasExpiry }

// checkTime returns "" or why the token is not good at this moment, in Unix
// nanoseconds. Expiry is strict: at its second it is over.
func (s *scope) checkTime(now int64) Reason {
	switch {
	case now >= nanoseconds(s.expires):
		return ReasonExpired
	case s.hasNotBefore && now < nanoseconds(s.notBefore)-int64(notBeforeGrace):
		return ReasonNotYetValid
	}
	return ""
}

// nanoseconds converts seconds without overflow: a token may name the year 9999.
func nanoseconds(seconds int64) int64 {
	if seconds > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return seconds * int64(time.Second)
}

// check returns "" or why the request is not covered. audience are the names of
// the service that asks.
func (s *scope) check(r *Request, audience []string) Reason {
	switch {
	case !s.operations.has(r.Operation):
		return ReasonOperation
	case slices.ContainsFunc(s.tenants, func(name string) bool { return name != r.Tenant }):
		return ReasonTenant
	case !s.allowsTopic(r.Topic):
		return ReasonTopic
	case !oneOfEach(s.audiences, func(name string) bool { return slices.Contains(audience, name) }):
		return ReasonAudience
	case !s.allowsClient(r.Client):
		return ReasonNetwork
	case !oneOfEach(s.peers, func(id string) bool { return id == r.Peer }):
		return ReasonPeer
	case len(s.receipts) > 0 && !(settling.has(r.Operation) && s.allowsReceipt(r.Receipt)):
		return ReasonReceipt
	case r.Operation == OpSend && (s.hasMaxBody || len(s.quotas) > 0) && !r.Load.known():
		return ReasonUnmeasured
	case r.Operation == OpSend && s.hasMaxBody && r.Load.LargestBody > s.maxBody:
		return ReasonBodyTooLarge
	}
	return ""
}

// oneOfEach reports whether each of the lists has an element that holds.
func oneOfEach[E any](lists [][]E, holds func(E) bool) bool {
	for _, list := range lists {
		if !slices.ContainsFunc(list, holds) {
			return false
		}
	}
	return true
}

func (s *scope) allowsTopic(topic string) bool {
	return oneOfEach(s.topics, func(p Pattern) bool { return p.matches(topic) })
}

func (s *scope) allowsClient(client netip.Addr) bool {
	client = client.Unmap() // an IPv4 client of an IPv6 socket
	return oneOfEach(s.networks, func(network netip.Prefix) bool { return network.Contains(client) })
}

func (s *scope) allowsReceipt(receipt string) bool {
	sum := sha256.Sum256([]byte(receipt))
	for _, want := range s.receipts {
		if subtle.ConstantTimeCompare(want[:], sum[:]) != 1 {
			return false
		}
	}
	return true
}
