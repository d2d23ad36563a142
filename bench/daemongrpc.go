package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	connectrpc "connectrpc.com/connect"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
)

// overGRPC lets the workers share the generated client, and so one connection.
func overGRPC(door daemonDoor, stand *daemonStand) error {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	stand.disconnect = func() error {
		transport.CloseIdleConnections()
		return nil
	}
	client := mailboxv1connect.NewMailboxClient(&http.Client{Transport: transport}, "http://"+door.http, connectrpc.WithGRPC())
	authorized := func() context.Context {
		ctx, call := connectrpc.NewClientContext(context.Background())
		call.RequestHeader().Set("Authorization", "Bearer "+door.token)
		return ctx
	}
	for range stand.shape.workers {
		stand.producers = append(stand.producers, func(bodies [][]byte) error {
			request := &mailboxv1.SendRequest{Topic: daemonQueue, Keyless: true}
			for _, body := range bodies {
				request.Messages = append(request.Messages, &mailboxv1.Outgoing{Payload: body})
			}
			response, err := client.Send(authorized(), request)
			if err != nil {
				return err
			}
			return checkGRPC(len(bodies), response.GetResults())
		})
		stand.consumers = append(stand.consumers, &grpcConsumer{client: client, authorized: authorized, batch: stand.shape.batch})
	}
	return nil
}

// checkGRPC fails unless all of n positions succeeded.
func checkGRPC[R interface{ GetError() *mailboxv1.ErrorDetail }](n int, results []R) error {
	if len(results) != n {
		return fmt.Errorf("%d results for %d messages", len(results), n)
	}
	for _, result := range results {
		if failure := result.GetError(); failure != nil {
			return errors.New(failure.String())
		}
	}
	return nil
}

type grpcConsumer struct {
	client     mailboxv1connect.MailboxClient
	authorized func() context.Context
	batch      int
	got        []*mailboxv1.Delivery
}

func (c *grpcConsumer) receive() ([][]byte, error) {
	most, visibility := int32(c.batch), float64(daemonVisibility.Milliseconds())
	response, err := c.client.Recv(c.authorized(), &mailboxv1.RecvRequest{
		Topic: daemonQueue, MaxMessages: &most, VisibilityMs: &visibility, WaitMs: float64(daemonWait.Milliseconds()),
	})
	if err != nil {
		return nil, err
	}
	c.got = response.GetMessages()
	bodies := make([][]byte, len(c.got))
	for i, delivery := range c.got {
		bodies[i] = delivery.GetPayload()
	}
	return bodies, nil
}

func (c *grpcConsumer) ack() error {
	request := &mailboxv1.AckRequest{Topic: daemonQueue}
	for _, delivery := range c.got {
		request.Deliveries = append(request.Deliveries, &mailboxv1.DeliveryRef{Receipt: delivery.GetReceipt()})
	}
	response, err := c.client.Ack(c.authorized(), request)
	if err != nil {
		return err
	}
	return checkGRPC(len(request.GetDeliveries()), response.GetResults())
}
