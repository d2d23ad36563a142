package mailboxtest

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The operations of reply stores, for faults of Faults.Replies. Fault.Queue is then
// the id of the slot.
const (
	opReplyCreate  = "create slot"
	opReplyResolve = "resolve"
	opReplyCancel  = "cancel"
	opReplyGet     = "get"
	opReplyWait    = "wait"
	opReplyConsume = "consume"
	opReplyDelete  = "delete"
	opReplySweep   = "sweep"
	opReplyExpired = "expired"
)

// Replies returns a reply store that forwards to store and applies the faults. Faults
// apply to a wait when it begins.
func (f *Faults) Replies(store driver.ReplyStore) driver.ReplyStore {
	return &faultReplies{faults: f, store: store}
}

// faultReplies is a reply store with faults.
type faultReplies struct {
	faults *Faults
	store  driver.ReplyStore
}

// callStore runs do with the faults of op.
func callStore[R any](ctx context.Context, s *faultReplies, op string, id string, do func() (R, error)) (R, error) {
	var none R
	s.faults.count(op)
	late, err := s.faults.meet(ctx, op, id)
	if err != nil {
		return none, err
	}
	result, err := do()
	if late != nil {
		return none, late
	}
	return result, err
}

// write runs do with the faults of op, for operations that return only an error.
func (s *faultReplies) write(ctx context.Context, op string, id string, do func() error) error {
	_, err := callStore(ctx, s, op, id, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (s *faultReplies) Create(ctx context.Context, id string, ttl time.Duration) error {
	return s.write(ctx, opReplyCreate, id, func() error { return s.store.Create(ctx, id, ttl) })
}

func (s *faultReplies) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return s.write(ctx, opReplyResolve, id, func() error { return s.store.Resolve(ctx, id, answer) })
}

func (s *faultReplies) Cancel(ctx context.Context, id string) error {
	return s.write(ctx, opReplyCancel, id, func() error { return s.store.Cancel(ctx, id) })
}

func (s *faultReplies) Delete(ctx context.Context, id string) error {
	return s.write(ctx, opReplyDelete, id, func() error { return s.store.Delete(ctx, id) })
}

func (s *faultReplies) Get(ctx context.Context, id string) (driver.Slot, error) {
	return callStore(ctx, s, opReplyGet, id, func() (driver.Slot, error) { return s.store.Get(ctx, id) })
}

func (s *faultReplies) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return callStore(ctx, s, opReplyWait, id, func() (driver.Slot, error) { return s.store.Wait(ctx, id, wait) })
}

func (s *faultReplies) Consume(ctx context.Context, id string) (driver.Slot, error) {
	return callStore(ctx, s, opReplyConsume, id, func() (driver.Slot, error) { return s.store.Consume(ctx, id) })
}

func (s *faultReplies) Expired(ctx context.Context, limit int) ([]string, error) {
	return callStore(ctx, s, opReplyExpired, "", func() ([]string, error) { return s.store.Expired(ctx, limit) })
}

func (s *faultReplies) Sweep(ctx context.Context, limit int) (int, error) {
	return callStore(ctx, s, opReplySweep, "", func() (int, error) { return s.store.Sweep(ctx, limit) })
}
