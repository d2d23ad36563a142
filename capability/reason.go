package capability

import (
	"errors"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
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

// The usual reasons for refusing a request with a genuine token. Their code is
// driver.ErrForbidden. The documentation of access has those of rare caveats too.
const (
	// ReasonOperation: the token does not allow this operation.
	ReasonOperation Reason = "operation"
	// ReasonQueue: the token does not allow this queue. Its text is "topic".
	ReasonQueue Reason = "topic"
	// ReasonTenant: the token is for another tenant.
	ReasonTenant Reason = "tenant"
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

// refused is the error for a token that cannot be parsed.
func refused(reason Reason) error {
	detail := macaroon.NotToken
	if reason == ReasonMissing {
		detail = macaroon.NoToken
	}
	return &driver.Error{Code: reason.Code(), Op: "authorize", Detail: detail, Err: reason}
}
