package rpcapi

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// defaultSlotTTL is how long a reply slot lives if its client does not say.
const defaultSlotTTL = 5 * time.Minute

// CreateSlot creates a reply slot.
func (s *service) CreateSlot(ctx context.Context, r *mailboxv1.CreateSlotRequest) (*mailboxv1.CreateSlotResponse, error) {
	id, ttl := broker.NewSlotID(), defaultSlotTTL
	if r.Slot != nil {
		id = r.GetSlot()
	}
	if r.TtlMs != nil {
		ttl = duration(r.GetTtlMs())
	}
	err := callOf(ctx).caller.Replies().Create(ctx, id, ttl)
	return &mailboxv1.CreateSlotResponse{Slot: id, ReplyTo: driver.SlotAddress(id)}, err
}

// ResolveSlot answers a request.
func (s *service) ResolveSlot(ctx context.Context, r *mailboxv1.ResolveSlotRequest) (*mailboxv1.ResolveSlotResponse, error) {
	answer := driver.Answer{Body: r.GetPayload(), Failure: r.GetError(), FailureKind: r.GetErrorKind()}
	return &mailboxv1.ResolveSlotResponse{}, callOf(ctx).caller.Replies().Resolve(ctx, r.GetSlot(), answer)
}

// WaitSlot waits for a reply slot.
func (s *service) WaitSlot(ctx context.Context, r *mailboxv1.WaitSlotRequest) (*mailboxv1.WaitSlotResponse, error) {
	slot, err := callOf(ctx).caller.Replies().Wait(ctx, r.GetSlot(), duration(r.GetWaitMs()))
	return &mailboxv1.WaitSlotResponse{Slot: wireSlot(&slot)}, err
}

// CancelSlot gives up a request.
func (s *service) CancelSlot(ctx context.Context, r *mailboxv1.CancelSlotRequest) (*mailboxv1.CancelSlotResponse, error) {
	return &mailboxv1.CancelSlotResponse{}, callOf(ctx).caller.Replies().Cancel(ctx, r.GetSlot())
}

// ConsumeSlot returns a reply slot and removes it.
func (s *service) ConsumeSlot(ctx context.Context, r *mailboxv1.ConsumeSlotRequest) (*mailboxv1.ConsumeSlotResponse, error) {
	slot, err := callOf(ctx).caller.Replies().Consume(ctx, r.GetSlot())
	return &mailboxv1.ConsumeSlotResponse{Slot: wireSlot(&slot)}, err
}

// DeleteSlot removes a reply slot.
func (s *service) DeleteSlot(ctx context.Context, r *mailboxv1.DeleteSlotRequest) (*mailboxv1.DeleteSlotResponse, error) {
	return &mailboxv1.DeleteSlotResponse{}, callOf(ctx).caller.Replies().Delete(ctx, r.GetSlot())
}

// slotsChunk is how many ids a part of a list has; each has 255 bytes at most.
const slotsChunk = 1024

// Slots lists reply slots.
func (s *service) Slots(ctx context.Context, _ *mailboxv1.SlotsRequest, stream *connect.ServerStream[mailboxv1.SlotsResponse]) error {
	return inChunks(callOf(ctx).caller.Replies().List(ctx), 0, wireSlot, func(chunk []*mailboxv1.Slot) error {
		return stream.Send(&mailboxv1.SlotsResponse{Slots: chunk})
	})
}

// ExpiredSlots lists expired reply slots.
func (s *service) ExpiredSlots(ctx context.Context, r *mailboxv1.ExpiredSlotsRequest, stream *connect.ServerStream[mailboxv1.ExpiredSlotsResponse]) error {
	ids, err := callOf(ctx).caller.Replies().Expired(ctx, int(r.GetLimit()))
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(ids, slotsChunk) {
		if err := stream.Send(&mailboxv1.ExpiredSlotsResponse{Slots: chunk}); err != nil {
			return err
		}
	}
	return nil
}

// SweepSlots removes expired reply slots.
func (s *service) SweepSlots(ctx context.Context, r *mailboxv1.SweepSlotsRequest) (*mailboxv1.SweepSlotsResponse, error) {
	removed, err := callOf(ctx).caller.Replies().Sweep(ctx, int(r.GetLimit()))
	return &mailboxv1.SweepSlotsResponse{Removed: int64(removed)}, err
}

func wireSlot(s *driver.Slot) *mailboxv1.Slot {
	return &mailboxv1.Slot{
		Slot: s.ID, State: string(s.State), Payload: s.Answer.Body, Error: s.Answer.Failure, ErrorKind: s.Answer.FailureKind,
		CreatedAt: timestamp(s.CreatedAt), ExpiresAt: timestamp(s.ExpiresAt), ResolvedAt: timestamp(s.ResolvedAt),
	}
}
