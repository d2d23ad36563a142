// Package wireerr maps the errors of the daemon to those of its protocols: the wire
// name of each code of package driver, and its status in HTTP, gRPC and OAP/1.
package wireerr

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// The codes that clients see, the same on every surface.
const (
	CodeSchema        = "E_SCHEMA"
	CodeCapAuth       = "E_CAP_AUTH"
	CodeCapScope      = "E_CAP_SCOPE"
	CodeNotFound      = "E_NOT_FOUND"
	CodeDuplicate     = "E_DUPLICATE"
	CodeFrameTooLarge = "E_FRAME_TOO_LARGE"
	CodeIntegrity     = "E_INTEGRITY"
	CodeSaturated     = "E_SATURATED"
	CodeUnavailable   = "E_UNAVAILABLE"
)

// The gRPC codes that are used here. They are constants of this package because only
// the gRPC surface needs a gRPC library.
const (
	grpcInvalidArgument    = 3
	grpcNotFound           = 5
	grpcAlreadyExists      = 6
	grpcPermissionDenied   = 7
	grpcResourceExhausted  = 8
	grpcFailedPrecondition = 9
	grpcUnavailable        = 14
	grpcUnauthenticated    = 16
)

// A Row holds the form of an error in each protocol.
type Row struct {
	// Code is one of the constants above.
	Code string
	// HTTP is an HTTP status. OAP/1 uses the same numbers.
	HTTP int
	// GRPC is a gRPC code.
	GRPC int
	// Retry says that trying again later can help. Such an error always has a
	// RetryAfter.
	Retry bool
}

var rows = map[string]Row{
	CodeSchema:        {CodeSchema, 400, grpcInvalidArgument, false},
	CodeCapAuth:       {CodeCapAuth, 401, grpcUnauthenticated, false},
	CodeCapScope:      {CodeCapScope, 403, grpcPermissionDenied, false},
	CodeNotFound:      {CodeNotFound, 404, grpcNotFound, false},
	CodeDuplicate:     {CodeDuplicate, 409, grpcAlreadyExists, false},
	CodeFrameTooLarge: {CodeFrameTooLarge, 413, grpcResourceExhausted, false},
	CodeIntegrity:     {CodeIntegrity, 422, grpcFailedPrecondition, false},
	CodeSaturated:     {CodeSaturated, 429, grpcResourceExhausted, true},
	CodeUnavailable:   {CodeUnavailable, 503, grpcUnavailable, true},
}

// kinds maps each code of package driver to its kind and its code on the wire.
// Several kinds share a code.
var kinds = []struct {
	code driver.Code
	kind string
	wire string
}{
	{driver.ErrInvalid, "invalid", CodeSchema},
	{driver.ErrEncoding, "encoding", CodeSchema},
	{driver.ErrUnsupported, "unsupported", CodeSchema},
	{driver.ErrUnresolved, "unresolved", CodeSchema},
	{driver.ErrNoReplyTo, "no_reply_to", CodeSchema},
	{driver.ErrReplyExpected, "reply_expected", CodeSchema},
	{driver.ErrUnauthenticated, "unauthenticated", CodeCapAuth},
	{driver.ErrForbidden, "forbidden", CodeCapScope},
	{driver.ErrNotFound, "not_found", CodeNotFound},
	{driver.ErrReceiptExpired, "receipt_expired", CodeNotFound},
	{driver.ErrSettled, "settled", CodeNotFound},
	{driver.ErrReplyExpired, "reply_expired", CodeNotFound},
	{driver.ErrReplyCancelled, "reply_cancelled", CodeNotFound},
	{driver.ErrConflict, "conflict", CodeDuplicate},
	{driver.ErrReplyAlreadySent, "reply_already_sent", CodeDuplicate},
	{driver.ErrTooLarge, "too_large", CodeFrameTooLarge},
	{driver.ErrIntegrity, "integrity", CodeIntegrity},
	{driver.ErrFull, "full", CodeSaturated},
	{driver.ErrUnavailable, "unavailable", CodeUnavailable},
	{driver.ErrClosed, "closed", CodeUnavailable},
	{driver.ErrTimeout, "timeout", CodeUnavailable},
}

// An Error is an error in its wire form. A client can rebuild the driver.Error from
// it. It tells nothing about the backend: causes inside the backend are only logged.
type Error struct {
	// Code is the coarse class of the error, Kind the exact one.
	Code string
	Kind string
	// Reason is why a token was refused.
	Reason     string
	Op         string
	Queue      string
	MessageID  string
	Field      string
	Detail     string
	RetryAfter time.Duration
}

// fields maps fields of package driver to their names in requests, where the rule
// of fieldName does not apply.
var fields = map[string]string{
	"Body": "payload", "DedupKey": "idem_key", "UniqueKey": "unique_key", "Replace": "replace", "Delay": "delay_ms", "DeliverAt": "deliver_at", "TTL": "ttl_ms", "PriorityAging": "priority_aging_ms", "Group": "group", "ReplyTo": "reply_to",
	"CorrelationID": "correlation_id", "Attributes": "attrs", "Visibility": "visibility_ms", "Wait": "wait_ms",
	"Every": "every_ms", "Created": "created_at",
	"Max": "max_messages", "MaxBytes": "max_bytes", "Limit": "limit", "States": "states", "OlderThan": "older_than_ms", "Cursor": "cursor", "Within": "within_ms",
	"Reason": "reason", "Cause": "reason", "ID": "msg_id", "name": "topic", "MaxDeliveries": "max_attempts",
	"DedupWindow": "dedup_window_ms", "RetainReady": "retain_ready_ms", "RetainDead": "retain_dead_ms", "MaxHold": "max_hold_ms",
}

// fieldName returns the name that a field of package driver has in requests. The
// settings of a queue have the same words with underscores between them.
func fieldName(field string) string {
	if name, ok := fields[field]; ok {
		return name
	}
	if strings.ContainsAny(field, `/\`) { // a file path of the backend, not part of the request
		return ""
	}
	if strings.Contains(field, "-") { // a header
		return field
	}
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// defaultRetryAfter is sent with errors that can be retried and have no RetryAfter.
const defaultRetryAfter = time.Second

// Of returns the wire form of err. An error that is not a driver.Error or a code
// becomes CodeUnavailable without a detail: the outcome is unknown.
func Of(err error) Error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		e = &driver.Error{Code: driver.ErrUnavailable}
		switch code, isCode := errors.AsType[driver.Code](err); {
		case isCode:
			e.Code, e.Detail = code, strings.TrimPrefix(strings.TrimPrefix(err.Error(), string(code)), ": ")
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			e.Detail = "the request was cancelled or timed out"
		}
	}
	field := fieldName(e.Field)
	w := Error{
		Code: CodeUnavailable, Kind: "unavailable", Reason: string(capability.ReasonOf(err)), Op: e.Op, Queue: e.Queue,
		MessageID: e.MessageID, Field: field, Detail: strings.Replace(e.Detail, "("+e.Field+" ", "("+field+" ", 1), RetryAfter: e.RetryAfter,
	}
	for _, k := range kinds {
		if k.code == e.Code {
			w.Code, w.Kind = k.wire, k.kind
		}
	}
	if w.Row().Retry && w.RetryAfter <= 0 {
		w.RetryAfter = defaultRetryAfter
	}
	return w
}

// Row returns the form of the error in each protocol.
func (e Error) Row() Row {
	if row, ok := rows[e.Code]; ok {
		return row
	}
	return rows[CodeUnavailable]
}

// RetrySeconds returns the value of the Retry-After header: whole seconds, rounded
// up; 0 means no header.
func (e Error) RetrySeconds() int {
	if !e.Row().Retry {
		return 0
	}
	return int((e.RetryAfter + time.Second - 1) / time.Second)
}

// Message returns a text for people.
func (e Error) Message() string { return e.driverError().Error() }

// Driver rebuilds the driver.Error, for clients.
func (e Error) Driver() error {
	d := e.driverError()
	if e.Reason != "" {
		d.Err = capability.Reason(e.Reason)
	}
	return d
}

func (e Error) driverError() *driver.Error {
	d := &driver.Error{
		Code: driver.ErrUnavailable, Op: e.Op, Queue: e.Queue, MessageID: e.MessageID,
		Field: e.Field, Detail: e.Detail, RetryAfter: e.RetryAfter,
	}
	for _, k := range kinds {
		if k.kind == e.Kind {
			d.Code = k.code
		}
	}
	return d
}
