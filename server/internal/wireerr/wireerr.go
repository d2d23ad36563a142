// Package wireerr is the one table between the errors of the daemon and those of
// its protocols: what a code of package driver is called on the wire, and which
// status of HTTP, gRPC and OAP/1 goes with it.
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

// The codes of gRPC that are used here. They are written out because only the
// surface that speaks gRPC needs a library for it.
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

// A Row is what an error is on the protocols.
type Row struct {
	// Code is one of the constants above.
	Code string
	// HTTP is a status, and OAP has the same numbers.
	HTTP int
	// GRPC is a code of gRPC.
	GRPC int
	// Retry says that trying again later can help: such an error always comes
	// with a time.
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

// kinds are the codes of package driver: what each is called on the wire, where
// it is finer than the code, and which code it has.
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

// An Error is an error as it travels. It has all that a client needs to make the
// driver's error of it again, and nothing of what is behind the daemon: causes
// inside the backend are for its log.
type Error struct {
	// Code and Kind say what went wrong, coarsely and finely.
	Code string
	Kind string
	// Reason is that of a refused capability.
	Reason     string
	Op         string
	Topic      string
	MessageID  string
	Field      string
	Detail     string
	RetryAfter time.Duration
}

// fields are what the fields of package driver are called in requests, where
// fieldName does not find it out.
var fields = map[string]string{
	"Body": "payload", "DedupKey": "idem_key", "Delay": "delay_ms", "Group": "group", "ReplyTo": "reply_to",
	"CorrelationID": "correlation_id", "Attributes": "attrs", "Visibility": "visibility_ms", "Wait": "wait_ms",
	"Max": "max_messages", "MaxBytes": "max_bytes", "Limit": "limit", "States": "states", "OlderThan": "older_than_ms",
	"Reason": "reason", "Cause": "reason", "ID": "msg_id", "name": "topic", "MaxDeliveries": "max_attempts",
	"DedupWindow": "dedup_window_ms", "RetainReady": "retain_ready_ms", "RetainDead": "retain_dead_ms", "MaxHold": "max_hold_ms",
}

// fieldName is what a request calls a field of package driver: the settings of a
// queue have the same words with underscores between them.
func fieldName(field string) string {
	if name, ok := fields[field]; ok {
		return name
	}
	if strings.ContainsAny(field, `/\`) { // a file of the backend: not a part of the request
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

// leastRetry is what a client is told to wait at least where it should try again
// and nobody knows when.
const leastRetry = time.Second

// Of returns err as it travels. An error that is none of the daemon's own is
// CodeUnavailable and says nothing: its outcome is unknown.
func Of(err error) Error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		e = &driver.Error{Code: driver.ErrUnavailable}
		switch code, isCode := errors.AsType[driver.Code](err); {
		case isCode:
			e.Code, e.Detail = code, strings.TrimPrefix(strings.TrimPrefix(err.Error(), string(code)), ": ")
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			e.Detail = "the request was given up"
		}
	}
	w := Error{
		Code: CodeUnavailable, Kind: "unavailable", Reason: string(capability.ReasonOf(err)), Op: e.Op, Topic: e.Queue,
		MessageID: e.MessageID, Field: fieldName(e.Field), Detail: e.Detail, RetryAfter: e.RetryAfter,
	}
	for _, k := range kinds {
		if k.code == e.Code {
			w.Code, w.Kind = k.wire, k.kind
		}
	}
	if w.Row().Retry && w.RetryAfter <= 0 {
		w.RetryAfter = leastRetry
	}
	return w
}

// Row returns what the error is on the protocols.
func (e Error) Row() Row {
	if row, ok := rows[e.Code]; ok {
		return row
	}
	return rows[CodeUnavailable]
}

// RetrySeconds is the value of the Retry-After header: whole seconds, rounded
// up; 0 if there is to be none.
func (e Error) RetrySeconds() int {
	if !e.Row().Retry {
		return 0
	}
	return int((e.RetryAfter + time.Second - 1) / time.Second)
}

// Message says what went wrong, for people.
func (e Error) Message() string { return e.driverError().Error() }

// Driver returns the error of package driver that it was made of, for clients.
func (e Error) Driver() error {
	d := e.driverError()
	if e.Reason != "" {
		d.Err = capability.Reason(e.Reason)
	}
	return d
}

func (e Error) driverError() *driver.Error {
	d := &driver.Error{
		Code: driver.ErrUnavailable, Op: e.Op, Queue: e.Topic, MessageID: e.MessageID,
		Field: e.Field, Detail: e.Detail, RetryAfter: e.RetryAfter,
	}
	for _, k := range kinds {
		if k.kind == e.Kind {
			d.Code = k.code
		}
	}
	return d
}
