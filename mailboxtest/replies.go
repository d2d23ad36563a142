package mailboxtest

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/reply"
)

// ImmediateReply is a reply store that answers every request at once, for tests of
// clients: no worker is needed, and the requests may go to Null. Make one with
// NewImmediateReply or NewImmediateFailure. It is safe for concurrent use.
type ImmediateReply struct {
	*reply.Memory
	answer driver.Answer
	err    error // why there is no answer
}

var _ driver.ReplyStore = (*ImmediateReply)(nil)

// NewImmediateReply returns a store that answers every request with value,
// encoded with codec; nil means JSON. If it cannot be encoded, requests fail.
func NewImmediateReply[R any](codec mailbox.Codec[R], value R) *ImmediateReply {
	if codec == nil {
		codec = mailbox.JSON[R]()
	}
	body, err := codec.Encode(value)
	if err != nil {
		err = &driver.Error{Code: driver.ErrEncoding, Op: "create slot", Detail: codec.ContentType(), Err: err}
	}
	return &ImmediateReply{Memory: reply.NewMemory(nil), answer: driver.Answer{Body: body}, err: err}
}

// NewImmediateFailure returns a store that answers every request with an error,
// which must not be nil.
func NewImmediateFailure(cause error) *ImmediateReply {
	failure := mailbox.NewFailure(cause)
	return &ImmediateReply{
		Memory: reply.NewMemory(nil),
		answer: driver.Answer{Failure: failure.Text, FailureKind: string(failure.Kind)},
	}
}

// Create makes a slot and resolves it. It does not block. Codes: those of
// reply.Memory, and ErrEncoding.
func (s *ImmediateReply) Create(ctx context.Context, id string, ttl time.Duration) error {
	if s.err != nil {
		return s.err
	}
	if err := s.Memory.Create(ctx, id, ttl); err != nil {
		return err
	}
	return s.Memory.Resolve(ctx, id, s.answer)
}

// NeverReply is a reply store that drops every answer, for tests of clients that must
// give up: their slots stay pending until they are cancelled or expire. Make one with
// NewNeverReply. It is safe for concurrent use.
type NeverReply struct{ *reply.Memory }

var _ driver.ReplyStore = (*NeverReply)(nil)

// NewNeverReply returns a store without slots.
func NewNeverReply() *NeverReply { return &NeverReply{reply.NewMemory(nil)} }

// Resolve drops the answer. It does not block. Codes: those of reply.Memory, except
// that a second answer is not an error.
func (s *NeverReply) Resolve(ctx context.Context, id string, _ driver.Answer) error {
	slot, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	return slot.State.WriteError("resolve", id)
}
