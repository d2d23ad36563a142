package rpcapi

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// A service has one handler for each call of the proto file, which describes them. The
// handlers return errors of the broker; the interceptor converts them to wire errors.
type service struct{ handler *Handler }

// Send enqueues messages.
func (s *service) Send(ctx context.Context, r *mailboxv1.SendRequest) (*mailboxv1.SendResponse, error) {
	failed := make([]error, len(r.GetMessages()))
	messages := make([]broker.Outgoing, 0, len(failed))
	keyless := 0
	for i, m := range r.GetMessages() {
		message, err := outgoing(m)
		if err == nil && message.DedupKey == "" && !r.GetKeyless() {
			err = schemaError("idem_key", "is missing; a request that means it says keyless")
		}
		if err != nil {
			failed[i] = err
			continue
		}
		if message.DedupKey == "" {
			keyless++
		}
		messages = append(messages, message)
	}
	var sent []driver.Sent
	if len(messages) > 0 || len(failed) == 0 {
		var err error
		if sent, err = callOf(ctx).caller.Send(ctx, r.GetTopic(), messages); isWhole(err) {
			return nil, err
		}
		sent, _ = broker.Spread(sent, err, failed) // the errors are in failed
		if keyless > 0 {
			callOf(ctx).caller.SentKeyless(ctx, r.GetTopic(), keyless)
		}
	}
	response := &mailboxv1.SendResponse{Results: make([]*mailboxv1.SendResult, len(failed))}
	for i, err := range failed {
		result := &mailboxv1.SendResult{Error: positionError(err)}
		if err == nil && i < len(sent) {
			result.MsgId, result.Duplicate, result.Replaced = sent[i].ID, sent[i].Duplicate, sent[i].Replaced
		}
		response.Results[i] = result
	}
	return response, nil
}
