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
	// timeLayout is the only form of a time in a token.
	timeLayout = "2006-01-02T15:04:05Z"
	// notBeforeGrace is how long before its nbf caveat a token is accepted.
	notBeforeGrace = 2 * time.Minute
)

// The kinds of quota.
const (
	quotaMessages = "msgs/s"
	quotaBytes    = "bytes/s"
)

var quotaWords = map[string]string{quotaMessages: "messages", quotaBytes: "bytes"}

// A scope is what all caveats of a token together allow. Sets are intersected, and
// the least of several limits counts. Caveats that list alternatives keep one list
// each, of which one element must match.
type scope struct {
	operations operationSet
	queues     [][]Pattern
	tenants    []string
	expires    int64 // Unix seconds
	notBefore  int64
	maxBody    int64
	networks   [][]netip.Prefix
	peers      [][]string
	audiences  [][]string
	receipts   [][sha256.Size]byte
	minters    []minter
	quotas     []quota
	// owner is the share of the meter that the quotas count against; nil without quotas.
	owner share.Path

	hasOperations, hasExpiry, hasNotBefore, hasMaxBody, hasTenant bool
}

// A minter is a token that this one was minted with, directly or indirectly. It is
// revoked with its tenant if a tenant caveat precedes it: a minter without a tenant
// has no such caveat.
type minter struct {
	token    TokenID
	ofTenant bool
	caveats  int // how many precede it: those of the minter, and its tenant
}

// A quota is a limit on a rate. Tokens narrowed from the same token share its
// quotas. So a quota is identified by the part of the token up to and including it,
// which these tokens have in common.
type quota struct {
	bucket bucketID
	depth  int // the length of its owner, a prefix of scope.owner
	kind   string
	limit  int64 // per second
}

type bucketID [16]byte

// caveatParsers has, by the name of the caveat, the function that adds its value to
// a scope. All other names are unknown.
var caveatParsers map[string]func(s *scope, value string) bool

// The functions refer to the map, so init breaks the initialization cycle.
func init() {
	caveatParsers = map[string]func(s *scope, value string) bool{
		caveatOperation: (*scope).addOperations,
		caveatQueue:     (*scope).addQueues,
		caveatTenant:    (*scope).addTenant,
		caveatExpiry:    (*scope).addExpiry,
		caveatNotBefore: (*scope).addNotBefore,
		caveatQuota:     (*scope).addQuota,
		caveatMaxBody:   (*scope).addMaxBody,
		caveatNetwork:   (*scope).addNetworks,
		caveatPeer:      (*scope).addPeers,
		caveatAudience:  (*scope).addAudiences,
		caveatReceipt:   (*scope).addReceipt,
		caveatMintedBy:  (*scope).addMinter,
	}
}

// add narrows the scope by one caveat. It returns "", or the reason for refusing a
// token with this caveat.
func (s *scope) add(text string) Reason {
	name, value, ok := cutCaveat(text)
	if !ok {
		return ReasonUnknownCaveat
	}
	parse, known := caveatParsers[name]
	switch {
	case !known:
		return ReasonUnknownCaveat
	case !parse(s, value):
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

func (s *scope) addQueues(value string) bool {
	var patterns []Pattern
	for text := range strings.SplitSeq(value, listSeparator) {
		p, ok := parsePattern(text)
		if !ok {
			return false
		}
		patterns = append(patterns, p)
	}
	s.queues = append(s.queues, patterns)
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

// parseTime returns Unix seconds. Package time parses more forms than it formats;
// only the form that it would write is accepted.
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

// parseCount reads digits without a sign and without leading zeros.
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
		// Bits outside the mask, and IPv4 written as IPv6, would give a network more
		// than one form.
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

func (s *scope) addMinter(value string) bool {
	id, err := ParseTokenID(value)
	s.minters = append(s.minters, minter{token: id, ofTenant: s.hasTenant})
	return err == nil && !id.IsZero()
}

// complete reports whether the token names operations, queues and an expiry.
func (s *scope) complete() bool { return s.hasOperations && len(s.queues) > 0 && s.hasExpiry }

// checkTime returns "", or why the token is not valid at now, in Unix nanoseconds.
// Expiry is strict: in the second of its expiry a token is already refused.
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

// check returns "", or why the token does not allow the request. audience are the
// names of this service.
func (s *scope) check(r *Request, audience []string) Reason {
	switch {
	case !s.operations.has(r.Operation):
		return ReasonOperation
	case slices.ContainsFunc(s.tenants, func(name string) bool { return name != r.Tenant }):
		return ReasonTenant
	case !s.allowsQueue(r.Queue):
		return ReasonQueue
	case !oneOfEach(s.audiences, func(name string) bool { return slices.Contains(audience, name) }):
		return ReasonAudience
	case !s.allowsClient(r.Client):
		return ReasonNetwork
	case !oneOfEach(s.peers, func(id string) bool { return id == r.Peer }):
		return ReasonPeer
	case len(s.receipts) > 0 && !(settleOperations.has(r.Operation) && s.allowsReceipt(r.Receipt)):
		return ReasonReceipt
	case r.Operation == OpSend && (s.hasMaxBody || len(s.quotas) > 0) && !r.Load.known():
		return ReasonUnmeasured
	case r.Operation == OpSend && s.hasMaxBody && r.Load.LargestBody > s.maxBody:
		return ReasonBodyTooLarge
	}
	return ""
}

// oneOfEach reports whether holds is true for an element of each list.
func oneOfEach[E any](lists [][]E, holds func(E) bool) bool {
	for _, list := range lists {
		if !slices.ContainsFunc(list, holds) {
			return false
		}
	}
	return true
}

func (s *scope) allowsQueue(queue string) bool {
	return oneOfEach(s.queues, func(p Pattern) bool { return p.matches(queue) })
}

func (s *scope) allowsClient(client netip.Addr) bool {
	client = client.Unmap() // an IPv4 client on an IPv6 socket
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
