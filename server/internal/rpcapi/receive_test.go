package rpcapi_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// lateBackend has queues whose receives bring messages in the moment in which they are
// cancelled.
type lateBackend struct{ *membox.Backend }

func (b lateBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return lateQueue{q}, err
}

type lateQueue struct{ driver.Queue }

func (q lateQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	<-ctx.Done()
	req.Wait = 0
	return q.Queue.Receive(context.WithoutCancel(ctx), req)
}

// TestMessagesOfLostClientAreReleased: the client goes in the moment in which its messages are
// leased (FLOW-4).
func TestMessagesOfLostClientAreReleased(t *testing.T) {
	for name, receive := range map[string]func(ctx context.Context, t *testing.T, d *daemon){
		"Recv": func(ctx context.Context, t *testing.T, d *daemon) {
			rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
			go func() {
				_, err := rpc.Recv(ctx, &mailboxv1.RecvRequest{Topic: "orders", WaitMs: 60_000, VisibilityMs: proto.Float64(3_600_000)})
				if connect.CodeOf(err) != connect.CodeCanceled {
					t.Errorf("receive: %v", err)
				}
			}()
		},
		"RecvStream": func(ctx context.Context, t *testing.T, d *daemon) {
			s := openStream(ctx, t, d.rpc(d.mint(t, ""), connect.WithGRPC()), &mailboxv1.RecvStreamRequest{Credit: 9, VisibilityMs: proto.Float64(3_600_000)})
			context.AfterFunc(ctx, func() { _ = s.CloseResponse() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := membox.New(nil)
				q, err := backend.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				d := newDaemon(t, lateBackend{backend}, broker.Limits{})
				if _, err := q.Send(t.Context(), make([]driver.Outgoing, 2)); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				receive(ctx, t, d)
				synctest.Wait()
				cancel()
				synctest.Wait()
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 9, Visibility: time.Hour})
				if err != nil || len(got) != 2 {
					t.Fatalf("%d messages are ready after the client has gone, want 2; %v", len(got), err)
				}
				for _, m := range got {
					if m.Deliveries != 1 {
						t.Errorf("a message that no client got is delivered for the %d. time", m.Deliveries)
					}
				}
			})
		})
	}
}
