package verify

import (
	"crypto/sha256"
	"crypto/subtle"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/share"
)

// notBeforeGrace is how long before its nbf caveat a token is accepted.
const notBeforeGrace = 2 * time.Minute

const (
	// settleOperations are the operations on one delivery.
	settleOperations macaroon.OperationSet = 1<<capability.OpAck | 1<<capability.OpNack | 1<<capability.OpExtend
	// slotOperations are the operations on reply slots, which belong to no queue.
	slotOperations macaroon.OperationSet = 1<<capability.OpAsk | 1<<capability.OpAnswer
	// meteredOperations are the operations that a quota counts: those that carry
	// messages. A quota never delays settling, so that a delivery can always be settled.
	meteredOperations macaroon.OperationSet = 1<<capability.OpSend | 1<<capability.OpRecv | 1<<capability.OpPeek | 1<<capability.OpDLQ
)

// A scope is what all caveats of a token together allow.
type scope struct {
	macaroon.Scope
	// owner is the share of the meter that the quotas count against; nil without quotas.
	owner share.Path
}

// checkTime returns "", or why the token is not valid at now, in Unix nanoseconds.
// Expiry is strict: in the second of its expiry a token is already refused.
func (s *scope) checkTime(now int64) capability.Reason {
	switch {
	case now >= nanoseconds(s.Expires):
		return capability.ReasonExpired
	case s.HasNotBefore && now < nanoseconds(s.NotBefore)-int64(notBeforeGrace):
		return capability.ReasonNotYetValid
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
func (s *scope) check(r *Request, audience []string) capability.Reason {
	switch {
	case !s.Operations.Has(uint8(r.Operation)):
		return capability.ReasonOperation
	case slices.ContainsFunc(s.Tenants, func(name string) bool { return name != r.Tenant }):
		return capability.ReasonTenant
	case !slotOperations.Has(uint8(r.Operation)) && !s.allowsRequested(r):
		return capability.ReasonQueue
	case !oneOfEach(s.Audiences, func(name string) bool { return slices.Contains(audience, name) }):
		return ReasonAudience
	case !s.allowsClient(r.Client):
		return ReasonNetwork
	case !oneOfEach(s.Peers, func(id string) bool { return id == r.Peer }):
		return ReasonPeer
	case len(s.Receipts) > 0 && !(settleOperations.Has(uint8(r.Operation)) && allSums(s.Receipts, r.Receipt)):
		return ReasonReceipt
	case len(s.Slots) > 0 && !(slotOperations.Has(uint8(r.Operation)) && allSums(s.Slots, r.Slot)):
		return ReasonSlot
	case r.Operation == capability.OpSend && (s.HasMaxBody || len(s.Quotas) > 0) && !r.Load.known():
		return ReasonUnmeasured
	case (r.Operation == capability.OpSend || r.Operation == capability.OpAnswer) && s.HasMaxBody && r.Load.LargestBody > s.MaxBody:
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

// allowsRequested reports whether the token allows the queue of a request, or all queues under it.
func (s *scope) allowsRequested(r *Request) bool {
	if !r.Under {
		return s.allowsQueue(r.Queue)
	}
	wanted := macaroon.Pattern{Kind: macaroon.MatchPrefix, Text: r.Queue}
	return oneOfEach(s.Queues, func(p macaroon.Pattern) bool { return p.Covers(wanted) })
}

func (s *scope) allowsQueue(queue string) bool {
	return oneOfEach(s.Queues, func(p macaroon.Pattern) bool { return p.Matches(queue) })
}

func (s *scope) allowsClient(client netip.Addr) bool {
	client = client.Unmap() // an IPv4 client on an IPv6 socket
	return oneOfEach(s.Networks, func(network netip.Prefix) bool { return network.Contains(client) })
}

// allSums reports whether each of the sums is that of a text.
func allSums(sums [][sha256.Size]byte, text string) bool {
	sum := sha256.Sum256([]byte(text))
	for _, want := range sums {
		if subtle.ConstantTimeCompare(want[:], sum[:]) != 1 {
			return false
		}
	}
	return true
}
