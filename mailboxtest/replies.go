package mailboxtest

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/reply"
)

// immediateReply is a reply store that answers every request at once.
type immediateReply struct {
	driver.ReplyStore
	answer driver.Answer
	err    error // why there is no answer
}

// NewImmediateReply returns a reply store that answers every request at once with
// value, encoded with codec; nil means JSON. If it cannot be encoded, requests fail. It
// is for tests of clients: no worker is needed, and the requests may go to Null.
func NewImmediateReply[R any](codec mailbox.Codec[R], value R) driver.ReplyStore {
	if codec == nil {
		codec = mailbox.JSON[R]()
	}
	body, err := codec.Encode(value)
	if err != nil {
		err = &driver.Error{Code: driver.ErrEncoding, Op: "create slot", Detail: codec.ContentType(), Err: err}
	}
	return &immediateReply{ReplyStore: reply.NewMemory(nil), answer: driver.Answer{Body: body}, err: err}
}

// NewImmediateFailure is NewImmediateReply with an error, which must not be nil.
func NewImmediateFailure(cause error) driver.ReplyStore {
	failure := mailbox.NewFailure(cause)
	return &immediateReply{
		ReplyStore: reply.NewMemory(nil),
		answer:     driver.Answer{Failure: failure.Text, FailureKind: string(failure.Kind)},
	}
}

// Create makes a slot and resolves it.
func (s *immediateReply) Create(ctx context.Context, id string, ttl time.Duration) error {
	if s.err != nil {
		return s.err
	}
	if err := s.ReplyStore.Create(ctx, id, ttl); err != nil {
		return err
	}
	return s.ReplyStore.Resolve(ctx, id, s.answer)
}

// neverReply is a reply store that drops every answer.
type neverReply struct{ driver.ReplyStore }

// NewNeverReply returns a reply store that drops every answer, for tests of clients
// that must give up: their slots stay pending until they are cancelled or expire.
func NewNeverReply() driver.ReplyStore { return &neverReply{reply.NewMemory(nil)} }

// Resolve drops the answer. A second answer is not an error.
func (s *neverReply) Resolve(ctx context.Context, id string, _ driver.Answer) error {
	slot, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	return slot.State.WriteError("resolve", id)
}
