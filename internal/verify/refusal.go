package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// The reasons of caveats that few tokens have, beside those of package capability.
const (
	// ReasonUnknownCaveat: the token has a caveat that this version does not know,
	// and so cannot check.
	ReasonUnknownCaveat capability.Reason = "unknown_caveat"
	// ReasonMalformedCaveat: the token has a caveat that cannot be parsed.
	ReasonMalformedCaveat capability.Reason = "malformed_caveat"
	// ReasonUnscoped: the token does not name operations, queues and an expiry.
	ReasonUnscoped capability.Reason = "unscoped"
	// ReasonAudience: the token is for another service.
	ReasonAudience capability.Reason = "audience"
	// ReasonNetwork: the client is not in a network that the token allows.
	ReasonNetwork capability.Reason = "network"
	// ReasonPeer: the client has not presented the certificate that the token
	// demands.
	ReasonPeer capability.Reason = "peer"
	// ReasonReceipt: the token is for another delivery.
	ReasonReceipt capability.Reason = "receipt"
	// ReasonSlot: the token is for another reply slot.
	ReasonSlot capability.Reason = "slot"
	// ReasonBodyTooLarge: a body is larger than the token allows.
	ReasonBodyTooLarge capability.Reason = "body_too_large"
	// ReasonUnmeasured: the token has a limit, and the request does not state its
	// size. This is a mistake in the calling program.
	ReasonUnmeasured capability.Reason = "unmeasured"
)

// refusal makes the error of a reason. Its detail says what is wrong and what to do,
// and repeats only the request and the token, which the bearer has. s is nil if the
// token is not known to be genuine; then the detail repeats nothing of the token.
func refusal(reason capability.Reason, request *Request, s *scope, retryAfter time.Duration) error {
	return &driver.Error{
		Code: reason.Code(), Op: "authorize", Queue: request.Queue, Detail: explain(reason, request, s), RetryAfter: retryAfter, Err: reason,
	}
}

func explain(reason capability.Reason, request *Request, s *scope) string {
	if s == nil {
		s = &scope{}
	}
	at := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(macaroon.TimeLayout) }
	switch reason {
	case capability.ReasonMissing:
		return macaroon.NoToken
	case capability.ReasonMalformed:
		return macaroon.NotToken
	case capability.ReasonNotGenuine:
		return "token was not made with the keys of this daemon, or was changed; use a token of this daemon"
	case capability.ReasonExpired:
		return "token expired at " + at(s.Expires) + "; ask for a new one"
	case capability.ReasonNotYetValid:
		return "token is not valid before " + at(s.NotBefore)
	case capability.ReasonRevoked:
		return "token was revoked; ask for a new one"
	case capability.ReasonKeyRetired:
		return "the key that signed the token was retired; ask for a new token"
	case capability.ReasonOperation, capability.ReasonQueue:
		return s.notAllowed(request)
	case capability.ReasonQuota:
		return "the token's quota is used up: " + s.quotaWords()
	}
	return s.explainCaveat(reason, request)
}

// notAllowed says that the token does not allow the operation on the queue, and what
// it allows.
func (s *scope) notAllowed(request *Request) string {
	where := fmt.Sprintf("on queue %q", request.Queue)
	switch {
	case request.Under:
		where = fmt.Sprintf("on all queues under %q", request.Queue)
	case request.Queue == "":
		where = "on the daemon as a whole"
	}
	what := "anything"
	if macaroon.OperationSet(1 << request.Operation).Has(uint8(request.Operation)) {
		what = strconv.Quote(request.Operation.String())
	}
	return fmt.Sprintf("token does not allow %s %s; it allows %s", what, where, s.words())
}

// explainCaveat says which caveat is not met.
func (s *scope) explainCaveat(reason capability.Reason, request *Request) string {
	switch reason {
	case ReasonUnknownCaveat:
		return "token has a caveat that this version does not know"
	case ReasonMalformedCaveat:
		return "token has a caveat that cannot be parsed"
	case ReasonUnscoped:
		return "token must name operations, queues and an expiry; mint one that names all three"
	case capability.ReasonTenant:
		return "token is for another tenant"
	case ReasonAudience:
		return "token is for the service " + macaroon.Alternatives(s.Audiences)
	case ReasonNetwork:
		return fmt.Sprintf("token is for clients in %s, and this one is %v", macaroon.Alternatives(s.Networks), request.Client.Unmap())
	case ReasonPeer:
		return "token is for clients with the certificate of " + macaroon.Alternatives(s.Peers)
	case ReasonReceipt:
		return "token is for settling another delivery"
	case ReasonSlot:
		return "token is for another reply slot"
	case ReasonBodyTooLarge:
		return fmt.Sprintf("token allows bodies of at most %d bytes, and one has %d", s.MaxBody, request.Load.LargestBody)
	case ReasonUnmeasured:
		return "token has a limit on sizes, and the request does not state its size"
	}
	return "token does not allow this"
}

// words returns in English which operations the token allows on which queues.
func (s *scope) words() string {
	var names []string
	for _, o := range s.Operations.List() {
		names = append(names, macaroon.Operations[o])
	}
	operations := strings.Join(names, ", ")
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) == len(macaroon.Operations)-1:
		operations = "everything"
	case s.Operations == macaroon.AllOperations:
		operations = "everything but " + strings.Join(macaroon.Operations[capability.OpBackup:], ", ")
	}
	narrower := slices.DeleteFunc(slices.Clone(s.Queues), func(patterns []macaroon.Pattern) bool {
		return slices.Contains(patterns, macaroon.Pattern{Kind: macaroon.MatchAny})
	})
	if len(narrower) == 0 {
		return operations + " on all queues"
	}
	return operations + " on " + macaroon.Alternatives(narrower)
}

// quotaWords returns the quotas in English.
func (s *scope) quotaWords() string {
	limits := make([]string, len(s.Quotas))
	for i, q := range s.Quotas {
		limits[i] = strconv.FormatInt(q.Limit, 10) + " " + macaroon.QuotaWords[q.Kind] + " per second"
		if q.Limit == 1 {
			limits[i] = "1 " + strings.TrimSuffix(macaroon.QuotaWords[q.Kind], "s") + " per second"
		}
	}
	return macaroon.Shortened(strings.Join(limits, ", "))
}
