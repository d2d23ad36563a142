package sqsapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// faultOf translates an error to one of AWS. r may be nil if the caller is not known.
func faultOf(err error, r *request) *sqswire.Error {
	if own, ok := errors.AsType[*sqswire.Error](err); ok {
		return own
	}
	if reason := capability.ReasonOf(err); reason != "" {
		return refusalOf(err, reason, r)
	}
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return sqswire.InternalFailure.Default()
	}
	switch e.Code {
	case driver.ErrNotFound:
		return sqswire.QueueDoesNotExist.Default()
	case driver.ErrFull:
		return sqswire.RequestThrottled.Withf("The queue or the service is full, try again later: %s", e.Detail)
	case driver.ErrTooLarge:
		return sqswire.InvalidParameterValue.Withf("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", maxMessageBytes)
	case driver.ErrInvalid:
		return sqswire.InvalidParameterValue.Withf("Value for parameter %s is invalid. Reason: %s.", e.Field, e.Detail)
	case driver.ErrUnsupported:
		return sqswire.UnsupportedOperation.Withf("The backend of this service cannot do that: %s", e.Detail)
	case driver.ErrReceiptExpired:
		return sqswire.ReceiptHandleIsInvalid.Default()
	case driver.ErrUnavailable, driver.ErrClosed:
		return sqswire.ServiceUnavailable.Default()
	}
	return sqswire.InternalFailure.Default()
}

// refusalOf translates the refusal of a token.
func refusalOf(err error, reason capability.Reason, r *request) *sqswire.Error {
	queue, detail := "", string(reason)
	if e, ok := errors.AsType[*driver.Error](err); ok {
		queue, detail = e.Queue, e.Detail
	}
	switch reason {
	case capability.ReasonExpired:
		return sqswire.ExpiredToken.Withf("%s: %s", sqswire.ExpiredToken.Default().Message, detail)
	case capability.ReasonQuota:
		return sqswire.Throttling.Withf("Rate exceeded: %s", detail)
	case capability.ReasonMissing, capability.ReasonMalformed, capability.ReasonNotGenuine, capability.ReasonRevoked, capability.ReasonKeyRetired:
		return sqswire.UnrecognizedClient.Withf("%s The %s.", sqswire.UnrecognizedClient.Default().Message, strings.TrimPrefix(detail, "the "))
	}
	if !errors.Is(err, driver.ErrForbidden) || r == nil {
		return sqswire.AccessDenied.Default()
	}
	resource := "*"
	if queue != "" {
		resource = r.arn(queue)
	}
	return sqswire.AccessDenied.Withf("User: arn:aws:iam::%s:user/%s is not authorized to perform: sqs:%s on resource: %s because the %s",
		r.account, r.caller.TokenID(), strings.ToLower(string(r.action)), resource, detail)
}

// outOfRange returns the error for a number that is out of range.
func outOfRange(parameter string, value int, reason string) *sqswire.Error {
	return sqswire.InvalidParameterValue.Withf("Value %d for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

// unnamedValue returns the error for a value that AWS does not repeat.
func unnamedValue(parameter, reason string) *sqswire.Error {
	return sqswire.InvalidParameterValue.Withf("Value for parameter %s is invalid. Reason: %s", parameter, reason)
}

// missing returns the error for a missing parameter.
func missing(parameter string) *sqswire.Error {
	return sqswire.MissingParameter.Withf("The request must contain the parameter %s.", parameter)
}

// invalidValue returns the error for a text that is not allowed.
func invalidValue(parameter, value, reason string) *sqswire.Error {
	return sqswire.InvalidParameterValue.Withf("%s", fmt.Sprintf("Value %s for parameter %s is invalid. Reason: %s", value, parameter, reason))
}
