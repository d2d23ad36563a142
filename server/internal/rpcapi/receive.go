package rpcapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

const (
	// maxReceiveBytes bounds the bodies of one answer.
	maxReceiveBytes = 1 << 20
	// maxAnswerBytes bounds a whole answer, with attributes. Clients of gRPC accept 4 MiB by default.
	maxAnswerBytes = 3 << 20
)

// Recv leases messages.
func (s *service) Recv(ctx context.Context, r *mailboxv1.RecvRequest) (*mailboxv1.RecvResponse, error) {
	options := &s.handler.options
	request := driver.ReceiveRequest{
		Max: options.MaxMessages, MaxBytes: options.MaxBytes, Visibility: options.Visibility, Wait: duration(r.GetWaitMs()),
	}
	if r.MaxMessages != nil {
		request.Max = int(r.GetMaxMessages())
	}
	if r.VisibilityMs != nil {
		request.Visibility = duration(r.GetVisibilityMs())
	}
	if r.GetMaxBytes() != 0 {
		request.MaxBytes = min(number(r.GetMaxBytes()), maxReceiveBytes)
	}
	c := callOf(ctx)
	if err := c.asWorker(); err != nil {
		return nil, err
	}
	got, err := c.caller.Receive(ctx, r.GetTopic(), request)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the client is gone
		c.giveBack(ctx, r.GetTopic(), got)
		return nil, ctx.Err()
	}
	response := &mailboxv1.RecvResponse{}
	size := 0
	for i := range got {
		message := delivery(&got[i])
		if size += proto.Size(message); size > maxAnswerBytes && i > 0 {
			c.giveBack(ctx, r.GetTopic(), got[i:])
			break
		}
		response.Messages = append(response.Messages, message)
	}
	return response, nil
}

// giveBackTimeout bounds how long a call goes on after its client is gone.
const giveBackTimeout = 5 * time.Second

// giveBack releases deliveries that were not handed over, so that other receivers get
// them at once and in their old order. If that fails, the messages become ready again when
// their leases expire.
func (c *call) giveBack(ctx context.Context, queue string, deliveries []broker.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_ = c.caller.GiveBack(ctx, queue, deliveries)
}
