package capability

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// refusal makes the error of a reason. Its detail says what is wrong and what to do,
// and repeats only the request and the token, which the bearer has. s is nil if the
// token is not known to be genuine; then the detail repeats nothing of the token.
func refusal(reason Reason, request *Request, s *scope, retryAfter time.Duration) error {
	return &driver.Error{
		Code: reason.Code(), Op: "authorize", Queue: request.Queue, Detail: explain(reason, request, s), RetryAfter: retryAfter, Err: reason,
	}
}

func explain(reason Reason, request *Request, s *scope) string {
	if s == nil {
		s = &scope{}
	}
	at := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(timeLayout) }
	switch reason {
	case ReasonMissing:
		return "there is no token; mint one with mailbox cap mint"
	case ReasonMalformed:
		return "not a token; copy all of it, as mailbox cap mint printed it"
	case ReasonNotGenuine:
		return "token was not made with the keys of this daemon, or was changed; use a token of this daemon"
	case ReasonExpired:
		return "token expired at " + at(s.expires) + "; ask for a new one"
	case ReasonNotYetValid:
		return "token is not valid before " + at(s.notBefore)
	case ReasonRevoked:
		return "token was revoked; ask for a new one"
	case ReasonKeyRetired:
		return "the key that signed the token was retired; ask for a new token"
	case ReasonOperation, ReasonQueue:
		return s.notAllowed(request)
	case ReasonQuota:
		return "the token's quota is used up: " + s.quotaWords()
	}
	return s.explainCaveat(reason, request)
}

// notAllowed says that the token does not allow the operation on the queue, and what
// it allows.
func (s *scope) notAllowed(request *Request) string {
	where := fmt.Sprintf("on queue %q", request.Queue)
	if request.Queue == "" {
		where = "on the daemon as a whole"
	}
	what := "anything"
	if request.Operation.valid() {
		what = strconv.Quote(request.Operation.String())
	}
	return fmt.Sprintf("token does not allow %s %s; it allows %s", what, where, s.words())
}

// explainCaveat says which caveat is not met.
func (s *scope) explainCaveat(reason Reason, request *Request) string {
	switch reason {
	case ReasonUnknownCaveat:
		return "token has a caveat that this version does not know"
	case ReasonMalformedCaveat:
		return "token has a caveat that cannot be parsed"
	case ReasonUnscoped:
		return "token must name operations, queues and an expiry; mint one that names all three"
	case ReasonTenant:
		return "token is for another tenant"
	case ReasonAudience:
		return "token is for the service " + alternatives(s.audiences)
	case ReasonNetwork:
		return fmt.Sprintf("token is for clients in %s, and this one is %v", alternatives(s.networks), request.Client.Unmap())
	case ReasonPeer:
		return "token is for clients with the certificate of " + alternatives(s.peers)
	case ReasonReceipt:
		return "token is for settling another delivery"
	case ReasonBodyTooLarge:
		return fmt.Sprintf("token allows bodies of at most %d bytes, and one has %d", s.maxBody, request.Load.LargestBody)
	case ReasonUnmeasured:
		return "token has a limit on sizes, and the request does not state its size"
	}
	return "token does not allow this"
}

// words returns in English which operations the token allows on which queues.
func (s *scope) words() string {
	var names []string
	for o := OpSend; o.valid(); o++ {
		if s.operations.has(o) {
			names = append(names, o.String())
		}
	}
	operations := strings.Join(names, ", ")
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) == len(operationNames)-1:
		operations = "everything"
	case s.operations == allOperations:
		operations = "everything but " + OpBackup.String() + " and " + OpAudit.String()
	}
	narrower := slices.DeleteFunc(slices.Clone(s.queues), func(patterns []Pattern) bool { return slices.Contains(patterns, AnyQueue()) })
	if len(narrower) == 0 {
		return operations + " on all queues"
	}
	return operations + " on " + alternatives(narrower)
}

// quotaWords returns the quotas in English.
func (s *scope) quotaWords() string {
	limits := make([]string, len(s.quotas))
	for i, q := range s.quotas {
		limits[i] = strconv.FormatInt(q.limit, 10) + " " + quotaWords[q.kind] + " per second"
		if q.limit == 1 {
			limits[i] = "1 " + strings.TrimSuffix(quotaWords[q.kind], "s") + " per second"
		}
	}
	return shortened(strings.Join(limits, ", "))
}

// alternatives joins the lists of several caveats of one kind, of which each must be
// met by one of its elements.
func alternatives[E any](lists [][]E) string {
	texts := make([]string, len(lists))
	for i, list := range lists {
		words := make([]string, len(list))
		for j, element := range list {
			words[j] = fmt.Sprint(element)
		}
		texts[i] = strings.Join(words, ", ")
	}
	return shortened(strings.Join(texts, ", and of these only "))
}

// maxWordsBytes bounds how much of a token an error repeats.
const maxWordsBytes = 200

func shortened(text string) string {
	if len(text) <= maxWordsBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxWordsBytes], "") + "…"
}
