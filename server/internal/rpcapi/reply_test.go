package rpcapi_test

import (
	"context"
	"iter"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// rpcReplies is a reply store over the generated client.
type rpcReplies struct {
	rpc mailboxv1connect.MailboxClient
}

func (r rpcReplies) Create(ctx context.Context, id string, ttl time.Duration) error {
	if !utf8.ValidString(id) { // protobuf cannot say it
		return driver.CheckSlot(id, ttl)
	}
	life := ms(ttl)
	_, err := r.rpc.CreateSlot(ctx, &mailboxv1.CreateSlotRequest{Slot: &id, TtlMs: &life})
	return driverError(ctx, err)
}

func (r rpcReplies) Resolve(ctx context.Context, id string, a driver.Answer) error {
	_, err := r.rpc.ResolveSlot(ctx, &mailboxv1.ResolveSlotRequest{Slot: id, Payload: a.Body, Error: a.Failure, ErrorKind: a.FailureKind})
	return driverError(ctx, err)
}

func (r rpcReplies) Cancel(ctx context.Context, id string) error {
	_, err := r.rpc.CancelSlot(ctx, &mailboxv1.CancelSlotRequest{Slot: id})
	return driverError(ctx, err)
}

func (r rpcReplies) Delete(ctx context.Context, id string) error {
	_, err := r.rpc.DeleteSlot(ctx, &mailboxv1.DeleteSlotRequest{Slot: id})
	return driverError(ctx, err)
}

func (r rpcReplies) Get(ctx context.Context, id string) (driver.Slot, error) {
	return r.Wait(ctx, id, 0)
}

func (r rpcReplies) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	answer, err := r.rpc.WaitSlot(ctx, &mailboxv1.WaitSlotRequest{Slot: id, WaitMs: ms(max(wait, 0))})
	if err != nil {
		return driver.Slot{}, driverError(ctx, err)
	}
	return slotOf(answer.GetSlot()), nil
}

func (r rpcReplies) Consume(ctx context.Context, id string) (driver.Slot, error) {
	answer, err := r.rpc.ConsumeSlot(ctx, &mailboxv1.ConsumeSlotRequest{Slot: id})
	if err != nil {
		return driver.Slot{}, driverError(ctx, err)
	}
	return slotOf(answer.GetSlot()), nil
}

func slotOf(s *mailboxv1.Slot) driver.Slot {
	slot := driver.Slot{
		ID: s.GetSlot(), State: driver.SlotState(s.GetState()), CreatedAt: s.GetCreatedAt().AsTime(), ExpiresAt: s.GetExpiresAt().AsTime(),
		Answer: driver.Answer{Body: s.GetPayload(), Failure: s.GetError(), FailureKind: s.GetErrorKind()},
	}
	if s.GetResolvedAt() != nil {
		slot.ResolvedAt = s.GetResolvedAt().AsTime()
	}
	return slot
}

func (r rpcReplies) Expired(ctx context.Context, limit int) (ids []string, err error) {
	stream, err := r.rpc.ExpiredSlots(ctx, &mailboxv1.ExpiredSlotsRequest{Limit: int64(limit)})
	if err != nil {
		return nil, driverError(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		ids = append(ids, stream.Msg().GetSlots()...)
	}
	return ids, driverError(ctx, stream.Err())
}

func (r rpcReplies) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		stream, err := r.rpc.Slots(ctx, &mailboxv1.SlotsRequest{})
		if err != nil {
			yield(driver.Slot{}, driverError(ctx, err))
			return
		}
		defer stream.Close()
		for stream.Receive() {
			for _, slot := range stream.Msg().GetSlots() {
				if !yield(slotOf(slot), nil) {
					return
				}
			}
		}
		if err := stream.Err(); err != nil {
			yield(driver.Slot{}, driverError(ctx, err))
		}
	}
}

func (r rpcReplies) Sweep(ctx context.Context, limit int) (int, error) {
	answer, err := r.rpc.SweepSlots(ctx, &mailboxv1.SweepSlotsRequest{Limit: int64(limit)})
	return int(answer.GetRemoved()), driverError(ctx, err)
}

// openReplies returns the reply store of a daemon.
func openReplies(t testing.TB, d *daemon, protocol ...connect.ClientOption) driver.ReplyStore {
	t.Helper()
	token := d.mint(t, "", capability.EveryOperation(), capability.Queues(capability.AnyQueue()))
	opener := newRPCOpener(d, token, protocol...)
	t.Cleanup(func() { _ = opener.Close() })
	return rpcReplies{opener.user}
}

// TestReplyConformance runs the suite of reply stores through gRPC.
func TestReplyConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{
		Virtual: true,
		Open: func(t testing.TB) driver.ReplyStore {
			return openReplies(t, newDaemon(t, membox.New(nil), broker.Limits{}), connect.WithGRPC())
		},
	})
}

func TestReplyConformanceOnDisk(t *testing.T) {
	drivertest.RunReplyStore(t, drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
		replytest.InPart(t)
		backend, err := diskbox.Open(t.Context(), t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return openReplies(t, newDaemonOnLoopback(t, backend, keyring.New(keyring.NewKey())), connect.WithGRPC())
	}})
}

func TestReplyConformanceOnRedis(t *testing.T) {
	drivertest.RunReplyStore(t, slotsOnRedis(redistest.Standalone(t), func(backend driver.Opener) driver.Opener { return backend }))
}

// slotsOnRedis is the reply store of a daemon in front of a server that is passed through a function.
func slotsOnRedis(server *redistest.Server, pass func(driver.Opener) driver.Opener) drivertest.ReplyStore {
	return drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
		replytest.InPart(t)
		client, err := rueidis.NewClient(server.ClientOption())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		backend, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: redistest.Prefix(t)})
		if err != nil {
			t.Fatal(err)
		}
		return openReplies(t, newDaemonOnLoopback(t, pass(backend), keyring.New(keyring.NewKey())), connect.WithGRPC())
	}}
}

func TestSlotSaboteursAreCaughtThroughGRPCOnRedis(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaughtInPart(t, func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore {
		return slotsOnRedis(redistest.Standalone(t), spoil)
	})
}

func TestSlotSaboteursAreCaughtThroughGRPC(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaught(t, func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore {
		return drivertest.ReplyStore{Virtual: true, Open: func(t testing.TB) driver.ReplyStore {
			return openReplies(t, newDaemon(t, spoil(membox.New(nil)), broker.Limits{}), connect.WithGRPC())
		}}
	})
}

func TestSlotOfCallWithoutIDGetsOne(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		rpc := d.rpc(d.mint(t, "", capability.EveryOperation(), capability.Queues(capability.AnyQueue())), protocol)
		made, err := rpc.CreateSlot(t.Context(), &mailboxv1.CreateSlotRequest{})
		if err != nil || made.GetReplyTo() != "reply:"+made.GetSlot() || len(made.GetSlot()) < 32 {
			t.Errorf("created %v, %v", made, err)
		}
	})
}

// TestDeliveryTellsOfPendingSlot (RPL-6): a delivery says that its slot waits, and one whose request was cancelled before does not.
func TestDeliveryTellsOfPendingSlot(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		rpc := d.rpc(d.mint(t, "", capability.EveryOperation(), capability.Queues(capability.AnyQueue())), protocol)
		for id, cancelled := range map[string]bool{"waiting": false, "cancelled": true} {
			_, err := rpc.CreateSlot(t.Context(), &mailboxv1.CreateSlotRequest{Slot: &id})
			if err == nil {
				_, err = rpc.Send(t.Context(), &mailboxv1.SendRequest{Topic: id, Messages: []*mailboxv1.Outgoing{{IdemKey: id, ReplyTo: driver.SlotAddress(id)}}})
			}
			if err == nil && cancelled {
				_, err = rpc.CancelSlot(t.Context(), &mailboxv1.CancelSlotRequest{Slot: id})
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: id})
			if err != nil || len(got.GetMessages()) != 1 || got.GetMessages()[0].GetSlotPending() == cancelled {
				t.Errorf("%s: got %v, %v", id, got, err)
			}
		}
	})
}
