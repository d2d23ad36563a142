package rpcapi

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// Metadata of errors that should be tried again. The second is what retry
// policies of gRPC clients read.
const (
	headerRetryAfter = "Retry-After"
	headerPushback   = "Grpc-Retry-Pushback-Ms"
)

// fault returns the wire form of err: a *connect.Error with one ErrorDetail.
func (c *call) fault(err error) error { return c.faultAfter(err, 0) }

// faultAfter is fault for an operation that was done in part.
func (c *call) faultAfter(err error, done int) error {
	if already, ok := errors.AsType[*connect.Error](err); ok {
		return already
	}
	w := wireerr.Of(err)
	detail := errorDetail(w)
	detail.CorrId, detail.Done = c.corr, int64(done)
	e := connect.NewError(connect.Code(w.Row().GRPC), errors.New(detail.Message))
	attach(e, detail)
	if seconds := w.RetrySeconds(); seconds > 0 {
		attach(e, retryInfo(w.RetryAfter))
		e.Meta().Set(headerRetryAfter, strconv.Itoa(seconds))
		e.Meta().Set(headerPushback, strconv.Itoa(int(math.Ceil(detail.GetRetryAfterMs()))))
	}
	return e
}

// failed returns the error of a handler for err. It passes the end of the context on, and
// logs failures of the daemon.
func (c *call) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err // the library knows the codes of both
	}
	if w := wireerr.Of(err); w.Code == wireerr.CodeUnavailable && ctx.Err() == nil {
		c.handler.options.Logger.ErrorContext(ctx, "call failed", "corr_id", c.corr, "op", w.Op, "queue", w.Queue, "error", err)
	}
	return c.fault(err)
}

func attach(e *connect.Error, message proto.Message) {
	if detail, err := connect.NewErrorDetail(message); err == nil { // ours all encode
		e.AddDetail(detail)
	}
}

// errorDetail returns the detail without a correlation id, which a position of a batch
// does not have.
func errorDetail(w wireerr.Error) *mailboxv1.ErrorDetail {
	return &mailboxv1.ErrorDetail{
		Code: w.Code, Message: w.Message(), RetryAfterMs: milliseconds(w.RetryAfter), Field: w.Field, Detail: w.Detail,
		Kind: w.Kind, Reason: w.Reason, Op: w.Op, Topic: w.Queue, MsgId: w.MessageID,
	}
}

// retryInfo is a google.rpc.RetryInfo. It is written by hand because its package
// has a dozen other messages that are not used here.
func retryInfo(after time.Duration) *anypb.Any {
	delay, _ := proto.Marshal(durationpb.New(after)) // a duration always encodes
	value := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), delay)
	return &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: value}
}

// positionError returns the error of one position of a batch, or nil.
func positionError(err error) *mailboxv1.ErrorDetail {
	if err == nil {
		return nil
	}
	return errorDetail(wireerr.Of(err))
}

// isWhole reports whether an error concerns a whole batch.
func isWhole(err error) bool {
	_, batch := errors.AsType[*driver.BatchError](err)
	return err != nil && !batch
}

func schemaError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "read", Field: field, Detail: detail}
}
