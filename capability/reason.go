package capability

import (
	"errors"

	"github.com/mailboxmq/mailbox/driver"
)

// A Reason says why a token, or what was asked with it, was refused. It is an
// error, and the one to test for:
//
//	if errors.Is(err, capability.ReasonExpired) { … }
//
// Reasons are few and fixed, so that they can label a metric.
type Reason string

// Error makes a Reason an error.
func (r Reason) Error() string { return string(r) }

// The reasons for which a token is not accepted at all. Their code is
// driver.ErrUnauthenticated.
const (
	// ReasonMissing: there was no token.
	ReasonMissing Reason = "missing"
	// ReasonMalformed: it is not a token of ours.
	ReasonMalformed Reason = "malformed"
	// ReasonNotGenuine: nobody who has the key made it, or it was changed. A key
	// that nobody knows is no other reason, because whoever guesses must not
	// learn which keys exist.
	ReasonNotGenuine Reason = "not_genuine"
	// ReasonExpired: its time is over.
	ReasonExpired Reason = "expired"
	// ReasonNotYetValid: its time has not come.
	ReasonNotYetValid Reason = "not_yet_valid"
	// ReasonRevoked: it, or all tokens of its tenant, were revoked.
	ReasonRevoked Reason = "revoked"
	// ReasonKeyRetired: the key that made it was retired.
	ReasonKeyRetired Reason = "key_retired"
)

// The reasons for which a genuine token does not cover a request. Their code is
// driver.ErrForbidden.
const (
	// ReasonUnknownCaveat: it has a condition that this version does not know,
	// and cannot know to be met.
	ReasonUnknownCaveat Reason = "unknown_caveat"
	// ReasonMalformedCaveat: it has a condition that cannot be read.
	ReasonMalformedCaveat Reason = "malformed_caveat"
	// ReasonUnscoped: it does not say for which operations, on which topics and
	// until when it is good.
	ReasonUnscoped Reason = "unscoped"
	// ReasonOperation: it is not for this operation.
	ReasonOperation Reason = "operation"
	// ReasonTopic: it is not for this topic.
	ReasonTopic Reason = "topic"
	// ReasonTenant: it is for another tenant.
	ReasonTenant Reason = "tenant"
	// ReasonAudience: it is for another service.
	ReasonAudience Reason = "audience"
	// ReasonNetwork: the client is not in the network that it is for.
	ReasonNetwork Reason = "network"
	// ReasonPeer: the client has not shown the certificate that it is for.
	ReasonPeer Reason = "peer"
	// ReasonReceipt: it is for another delivery.
	ReasonReceipt Reason = "receipt"
	// ReasonBodyTooLarge: a body is larger than it allows.
	ReasonBodyTooLarge Reason = "body_too_large"
	// ReasonUnmeasured: it has a limit, and the request does not say how much it
	// asks for. This is a mistake in the program that asks.
	ReasonUnmeasured Reason = "unmeasured"
)

// The reason for which a request has to wait. Its code is driver.ErrFull, and the
// error says when to try again.
const (
	// ReasonQuota: the token's rate is used up for now.
	ReasonQuota Reason = "quota"
)

// Code returns the code of package driver that goes with the reason:
// ErrUnauthenticated (401), ErrForbidden (403) or ErrFull (429).
func (r Reason) Code() driver.Code {
	switch r {
	case ReasonMissing, ReasonMalformed, ReasonNotGenuine, ReasonExpired, ReasonNotYetValid, ReasonRevoked, ReasonKeyRetired:
		return driver.ErrUnauthenticated
	case ReasonQuota:
		return driver.ErrFull
	}
	return driver.ErrForbidden
}

// ReasonOf returns the reason in err or in an error that it wraps, and "" if
// there is none.
func ReasonOf(err error) Reason {
	reason, _ := errors.AsType[Reason](err)
	return reason
}
