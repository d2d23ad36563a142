package capability

import (
	"errors"

	"github.com/mailboxmq/mailbox/driver"
)

// A Reason says why a token or a request was refused. It is an error, to be tested
// with errors.Is:
//
//	if errors.Is(err, capability.ReasonExpired) { … }
//
// There are few reasons and their texts are stable, so they can label a metric.
type Reason string

// Error makes a Reason an error.
func (r Reason) Error() string { return string(r) }

// The reasons for refusing a token. Their code is driver.ErrUnauthenticated.
const (
	// ReasonMissing: the request has no token.
	ReasonMissing Reason = "missing"
	// ReasonMalformed: the text or bytes are not a token.
	ReasonMalformed Reason = "malformed"
	// ReasonNotGenuine: the token was not signed with a known key, or was changed.
	// An unknown key has the same reason as a bad signature, so that an attacker
	// does not learn which keys exist.
	ReasonNotGenuine Reason = "not_genuine"
	// ReasonExpired: the token has expired.
	ReasonExpired Reason = "expired"
	// ReasonNotYetValid: the token is valid only later.
	ReasonNotYetValid Reason = "not_yet_valid"
	// ReasonRevoked: the token, or all tokens of its tenant, were revoked.
	ReasonRevoked Reason = "revoked"
	// ReasonKeyRetired: the key that signed the token was retired.
	ReasonKeyRetired Reason = "key_retired"
)

// The reasons for refusing a request with a genuine token. Their code is
// driver.ErrForbidden.
const (
	// ReasonUnknownCaveat: the token has a caveat that this version does not know,
	// and so cannot check.
	ReasonUnknownCaveat Reason = "unknown_caveat"
	// ReasonMalformedCaveat: the token has a caveat that cannot be parsed.
	ReasonMalformedCaveat Reason = "malformed_caveat"
	// ReasonUnscoped: the token does not name operations, queues and an expiry.
	ReasonUnscoped Reason = "unscoped"
	// ReasonOperation: the token does not allow this operation.
	ReasonOperation Reason = "operation"
	// ReasonQueue: the token does not allow this queue. Its text is "topic".
	ReasonQueue Reason = "topic"
	// ReasonTenant: the token is for another tenant.
	ReasonTenant Reason = "tenant"
	// ReasonAudience: the token is for another service.
	ReasonAudience Reason = "audience"
	// ReasonNetwork: the client is not in a network that the token allows.
	ReasonNetwork Reason = "network"
	// ReasonPeer: the client has not presented the certificate that the token
	// demands.
	ReasonPeer Reason = "peer"
	// ReasonReceipt: the token is for another delivery.
	ReasonReceipt Reason = "receipt"
	// ReasonBodyTooLarge: a body is larger than the token allows.
	ReasonBodyTooLarge Reason = "body_too_large"
	// ReasonUnmeasured: the token has a limit, and the request does not state its
	// size. This is a mistake in the calling program.
	ReasonUnmeasured Reason = "unmeasured"
)

// The reason for delaying a request. Its code is driver.ErrFull, and the error has
// a RetryAfter.
const (
	// ReasonQuota: the token's rate is used up for now.
	ReasonQuota Reason = "quota"
)

// Code returns the code of package driver for the reason:
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
