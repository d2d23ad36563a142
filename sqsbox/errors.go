package sqsbox

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/mailboxmq/mailbox/driver"
)

// queryPrefix begins error codes of the older query protocol. SQS sends them to
// clients of the newer JSON protocol too.
const queryPrefix = "AWS.SimpleQueueService."

// throttleRetryAfter is the RetryAfter hint for throttled requests.
const throttleRetryAfter = time.Second

// codes maps the error codes of SQS that have a meaning of their own.
var codes = map[string]driver.Code{
	"QueueDoesNotExist":         driver.ErrNotFound,
	"NonExistentQueue":          driver.ErrNotFound,
	"ResourceNotFoundException": driver.ErrNotFound,
	"QueueNameExists":           driver.ErrConflict,
	"QueueAlreadyExists":        driver.ErrConflict,

	"ReceiptHandleIsInvalid": driver.ErrReceiptExpired,
	"InvalidIdFormat":        driver.ErrReceiptExpired,
	"MessageNotInflight":     driver.ErrReceiptExpired,

	"InvalidMessageContents": driver.ErrInvalid,
	"BatchRequestTooLong":    driver.ErrTooLarge,
	"UnsupportedOperation":   driver.ErrUnsupported,
	"InvalidAction":          driver.ErrUnsupported,
	"UnknownOperation":       driver.ErrUnsupported,

	"UnknownOperationException": driver.ErrUnsupported,

	"OverLimit":                 driver.ErrFull,
	"RequestThrottled":          driver.ErrFull,
	"KmsThrottled":              driver.ErrFull,
	"Throttling":                driver.ErrFull,
	"ThrottlingException":       driver.ErrFull,
	"ThrottledException":        driver.ErrFull,
	"RequestThrottledException": driver.ErrFull,
	"TooManyRequestsException":  driver.ErrFull,
	"RequestLimitExceeded":      driver.ErrFull,
	"SlowDown":                  driver.ErrFull,
	"PurgeQueueInProgress":      driver.ErrFull,
	"QueueDeletedRecently":      driver.ErrUnavailable,

	"AccessDenied":          driver.ErrForbidden,
	"AccessDeniedException": driver.ErrForbidden,
	"AuthorizationError":    driver.ErrForbidden,
	"InvalidSecurity":       driver.ErrForbidden,
	"KmsAccessDenied":       driver.ErrForbidden,
	"KmsOptInRequired":      driver.ErrForbidden,
	"OptInRequired":         driver.ErrForbidden,

	"ExpiredToken":                        driver.ErrUnauthenticated,
	"ExpiredTokenException":               driver.ErrUnauthenticated,
	"IncompleteSignature":                 driver.ErrUnauthenticated,
	"InvalidClientTokenId":                driver.ErrUnauthenticated,
	"InvalidSignatureException":           driver.ErrUnauthenticated,
	"MissingAuthenticationToken":          driver.ErrUnauthenticated,
	"MissingAuthenticationTokenException": driver.ErrUnauthenticated,
	"RequestExpired":                      driver.ErrUnauthenticated,
	"SignatureDoesNotMatch":               driver.ErrUnauthenticated,
	"UnrecognizedClientException":         driver.ErrUnauthenticated,
}

// waits is how long SQS keeps refusing, for codes where that is known.
var waits = map[string]time.Duration{
	"PurgeQueueInProgress": purgeCooldown,
	"QueueDeletedRecently": time.Minute,
}

// classify translates an error code of SQS, with its message. Unknown codes are
// ErrInvalid if SQS blames the sender, and ErrUnavailable otherwise.
func classify(code, message string, sendersFault bool) (driver.Code, time.Duration) {
	code = strings.TrimPrefix(code, queryPrefix)
	meaning, known := codes[code]
	switch {
	case known && meaning == driver.ErrFull:
		return meaning, max(waits[code], throttleRetryAfter)
	case known:
		return meaning, waits[code]
	case strings.Contains(message, "shorter than"):
		return driver.ErrTooLarge, 0 // "Message must be shorter than 262144 bytes."
	case sendersFault:
		return driver.ErrInvalid, 0
	}
	return driver.ErrUnavailable, 0
}

// driverError translates an error of the SDK: the context's own error if ctx has
// ended, and otherwise a *driver.Error.
func driverError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e
	}
	failure := &driver.Error{Code: driver.ErrUnavailable, Err: err}
	if refusal, ok := errors.AsType[smithy.APIError](err); ok {
		failure.Code, failure.RetryAfter = classify(refusal.ErrorCode(), refusal.ErrorMessage(), refusal.ErrorFault() == smithy.FaultClient)
	}
	return failure
}

// refusal returns the error of one entry of a batch. SQS reports an expired receipt
// as an invalid parameter.
func refusal(entry types.BatchResultErrorEntry, aboutReceipt bool) *driver.Error {
	code, message := deref(entry.Code), deref(entry.Message)
	failure := &driver.Error{Err: errors.New(code + ": " + message)}
	failure.Code, failure.RetryAfter = classify(code, message, entry.SenderFault)
	if aboutReceipt && strings.HasPrefix(strings.TrimPrefix(code, queryPrefix), "InvalidParameterValue") {
		failure.Code = driver.ErrReceiptExpired
	}
	return failure
}

// isCode reports whether err has the code.
func isCode(err error, code driver.Code) bool { return errors.Is(err, code) }

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
