package sqswire

import "fmt"

// A Code is a kind of error, by its name in the JSON protocol, and the sentinel
// to test for with errors.Is. The table kinds has its other properties.
type Code string

// Error makes a Code an error.
func (c Code) Error() string { return string(c) }

// Default returns an error of this kind with the usual message of AWS.
func (c Code) Default() *Error {
	e := &Error{Code: c, Message: kinds[c].message}
	if c == QueueDoesNotExist {
		e.QueryMessage = "The specified queue does not exist for this wsdl version."
	}
	return e
}

// Withf returns an error of this kind with a message of its own.
func (c Code) Withf(format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Query returns the code in the Query protocol, in the header x-amzn-query-error and
// in the entries of batches.
func (c Code) Query() string {
	if kind, ok := kinds[c]; ok && kind.query != "" {
		return kind.query
	}
	return string(c)
}

// Status returns the HTTP status of answers with this code.
func (c Code) Status() int {
	if kind, ok := kinds[c]; ok {
		return kind.status
	}
	return 400
}

// Receiver reports whether the service, not the sender, is to blame.
func (c Code) Receiver() bool { return c.Status() >= 500 }

// shape returns the code with its namespace: that of SQS, or that of the framework
// which all services of AWS are built on.
func (c Code) shape() string {
	if kind, ok := kinds[c]; ok && !kind.shared {
		return "com.amazonaws.sqs#" + string(c)
	}
	return "com.amazon.coral.service#" + string(c)
}

// An Error is the answer to a request that failed.
type Error struct {
	Code    Code
	Message string
	// QueryMessage is set where the Query protocol words it differently.
	QueryMessage string
	// EntryMessage is set where the failure of one entry of a batch is worded
	// differently.
	EntryMessage string
}

// Error returns code and message.
func (e *Error) Error() string { return "sqs: " + string(e.Code) + ": " + e.Message }

func (e *Error) queryMessage() string {
	if e.QueryMessage != "" {
		return e.QueryMessage
	}
	return e.Message
}

func (e *Error) fault() string {
	if e.Code.Receiver() {
		return "Receiver"
	}
	return "Sender"
}

// Is reports whether target is this error's code.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// Entry returns the error as the failure of one entry of a batch.
func (e *Error) Entry(id string) BatchResultErrorEntry {
	message := e.Message
	if e.EntryMessage != "" {
		message = e.EntryMessage
	}
	return BatchResultErrorEntry{ID: id, SenderFault: !e.Code.Receiver(), Code: e.Code.Query(), Message: message}
}

// The codes of SQS.
const (
	QueueDoesNotExist            Code = "QueueDoesNotExist"
	QueueNameExists              Code = "QueueNameExists"
	QueueDeletedRecently         Code = "QueueDeletedRecently"
	PurgeQueueInProgress         Code = "PurgeQueueInProgress"
	EmptyBatchRequest            Code = "EmptyBatchRequest"
	TooManyEntriesInBatchRequest Code = "TooManyEntriesInBatchRequest"
	BatchEntryIDsNotDistinct     Code = "BatchEntryIdsNotDistinct"
	InvalidBatchEntryID          Code = "InvalidBatchEntryId"
	BatchRequestTooLong          Code = "BatchRequestTooLong"
	MissingParameter             Code = "MissingRequiredParameterException"
	InvalidParameterValue        Code = "InvalidParameterValueException"
	InvalidAttributeName         Code = "InvalidAttributeName"
	InvalidAttributeValue        Code = "InvalidAttributeValue"
	ReceiptHandleIsInvalid       Code = "ReceiptHandleIsInvalid"
	InvalidIDFormat              Code = "InvalidIdFormat"
	MessageNotInflight           Code = "MessageNotInflight"
	InvalidMessageContents       Code = "InvalidMessageContents"
	OverLimit                    Code = "OverLimit"
	ResourceNotFound             Code = "ResourceNotFoundException"
	UnsupportedOperation         Code = "UnsupportedOperation"
	InvalidAddress               Code = "InvalidAddress"
	InvalidSecurity              Code = "InvalidSecurity"
	RequestThrottled             Code = "RequestThrottled"
)

// The codes that all services of AWS share.
const (
	UnknownOperation           Code = "UnknownOperationException"
	Serialization              Code = "SerializationException"
	MalformedInput             Code = "MalformedInput"
	RequestTooLarge            Code = "RequestEntityTooLarge"
	AccessDenied               Code = "AccessDeniedException"
	MissingAuthenticationToken Code = "MissingAuthenticationTokenException"
	IncompleteSignature        Code = "IncompleteSignatureException"
	InvalidSignature           Code = "InvalidSignatureException"
	UnrecognizedClient         Code = "UnrecognizedClientException"
	ExpiredToken               Code = "ExpiredTokenException"
	RequestExpired             Code = "RequestExpired"
	InternalFailure            Code = "InternalFailure"
	ServiceUnavailable         Code = "ServiceUnavailable"
	Throttling                 Code = "ThrottlingException"
)

// A kind has the properties of a code.
type kind struct {
	// query is the code in the Query protocol, if it differs.
	query  string
	status int
	// shared: the code is not specific to SQS.
	shared  bool
	message string
}

const (
	prefix = "AWS.SimpleQueueService."
	shared = true
)

// kinds is the table of all errors.
var kinds = map[Code]kind{
	QueueDoesNotExist:            {prefix + "NonExistentQueue", 400, !shared, "The specified queue does not exist."},
	QueueNameExists:              {"QueueAlreadyExists", 400, !shared, "A queue already exists with the same name and a different value for attribute(s)."},
	QueueDeletedRecently:         {prefix + "QueueDeletedRecently", 400, !shared, "You must wait 60 seconds after deleting a queue before you can create another with the same name."},
	PurgeQueueInProgress:         {prefix + "PurgeQueueInProgress", 403, !shared, "Only one PurgeQueue operation is allowed every 60 seconds."},
	EmptyBatchRequest:            {prefix + "EmptyBatchRequest", 400, !shared, "There should be at least one entry in the request."},
	TooManyEntriesInBatchRequest: {prefix + "TooManyEntriesInBatchRequest", 400, !shared, "Maximum number of entries per request are 10."},
	BatchEntryIDsNotDistinct:     {prefix + "BatchEntryIdsNotDistinct", 400, !shared, "Two or more batch entries in the request have the same Id."},
	InvalidBatchEntryID:          {prefix + "InvalidBatchEntryId", 400, !shared, "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long."},
	BatchRequestTooLong:          {prefix + "BatchRequestTooLong", 400, !shared, "Batch requests cannot be longer than 1048576 bytes."},
	MissingParameter:             {"MissingParameter", 400, shared, "A required parameter is missing."},
	InvalidParameterValue:        {"InvalidParameterValue", 400, shared, "A parameter has a value that is not allowed."},
	InvalidAttributeName:         {"", 400, !shared, "Unknown Attribute."},
	InvalidAttributeValue:        {"", 400, !shared, "Invalid value for an attribute."},
	ReceiptHandleIsInvalid:       {"", 404, !shared, "The input receipt handle is invalid."},
	InvalidIDFormat:              {"", 400, !shared, "The receipt handle is not valid for the current version."},
	MessageNotInflight:           {prefix + "MessageNotInflight", 400, !shared, "The message referred to is not in flight."},
	InvalidMessageContents:       {"", 400, !shared, "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"},
	OverLimit:                    {"", 403, !shared, "Too many messages in flight."},
	ResourceNotFound:             {"", 404, !shared, "The resource that you specified for the SourceArn parameter doesn't exist."},
	UnsupportedOperation:         {prefix + "UnsupportedOperation", 400, !shared, "The operation is not supported for this queue."},
	InvalidAddress:               {"", 404, !shared, "The address is not valid for this endpoint."},
	InvalidSecurity:              {"", 403, !shared, "The request has to be made over HTTPS and signed with Signature Version 4."},
	RequestThrottled:             {"", 403, !shared, "Request is throttled."},

	UnknownOperation:           {"InvalidAction", 400, shared, "The action or operation requested is invalid. Verify that the action is typed correctly."},
	Serialization:              {"MalformedInput", 400, shared, "The request could not be read."},
	MalformedInput:             {"", 400, shared, "The request could not be read."},
	RequestTooLarge:            {"", 413, shared, "The request is too large."},
	AccessDenied:               {"AccessDenied", 403, shared, "Access to the resource is denied."},
	MissingAuthenticationToken: {"MissingAuthenticationToken", 403, shared, "Request is missing Authentication Token"},
	IncompleteSignature:        {"IncompleteSignature", 400, shared, "The request signature does not conform to AWS standards."},
	InvalidSignature:           {"SignatureDoesNotMatch", 403, shared, "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details."},
	UnrecognizedClient:         {"InvalidClientTokenId", 403, shared, "The security token included in the request is invalid."},
	ExpiredToken:               {"ExpiredToken", 403, shared, "The security token included in the request is expired"},
	RequestExpired:             {"", 400, shared, "Request has expired."},
	InternalFailure:            {"", 500, shared, "The request processing has failed because of an unknown error, exception or failure."},
	ServiceUnavailable:         {"", 503, shared, "The request has failed due to a temporary failure of the server."},
	Throttling:                 {"Throttling", 400, shared, "Rate exceeded"},
}
