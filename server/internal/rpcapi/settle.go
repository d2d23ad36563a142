package rpcapi

import (
	"context"
	"math"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// Ack removes messages.
func (s *service) Ack(ctx context.Context, r *mailboxv1.AckRequest) (*mailboxv1.AckResponse, error) {
	caller := callOf(ctx).caller
	results, err := settle(r.GetTopic(), r.GetDeliveries(), settleRequest[*mailboxv1.DeliveryRef, string]{
		delivery: func(d *mailboxv1.DeliveryRef) *mailboxv1.DeliveryRef { return d },
		convert:  func(d *mailboxv1.DeliveryRef) string { return d.GetReceipt() },
		all: func(receipts []string, _ []*mailboxv1.SettleResult) error {
			return caller.Existing().Ack(ctx, r.GetTopic(), receipts)
		},
		one: func(t broker.Target, _ string, _ *mailboxv1.SettleResult) error { return caller.AckOne(ctx, t) },
	})
	return &mailboxv1.AckResponse{Results: results}, err
}

// Nack returns messages to the queue.
func (s *service) Nack(ctx context.Context, r *mailboxv1.NackRequest) (*mailboxv1.NackResponse, error) {
	caller := callOf(ctx).caller
	results, err := settle(r.GetTopic(), r.GetEntries(), settleRequest[*mailboxv1.NackEntry, broker.Nack]{
		delivery: (*mailboxv1.NackEntry).GetDelivery,
		convert: func(e *mailboxv1.NackEntry) broker.Nack {
			return broker.Nack{
				Receipt: e.GetDelivery().GetReceipt(), Delay: duration(e.GetDelayMs()), Backoff: e.DelayMs == nil, Cause: e.GetCause(),
				Mode: driver.NackMode(min(max(e.GetMode(), 0), math.MaxUint8)),
			}
		},
		all: func(nacks []broker.Nack, _ []*mailboxv1.SettleResult) error {
			return caller.Existing().Nack(ctx, r.GetTopic(), nacks)
		},
		one: func(t broker.Target, n broker.Nack, _ *mailboxv1.SettleResult) error {
			return caller.NackOne(ctx, t, n)
		},
	})
	return &mailboxv1.NackResponse{Results: results}, err
}

// Extend moves deadlines.
func (s *service) Extend(ctx context.Context, r *mailboxv1.ExtendRequest) (*mailboxv1.ExtendResponse, error) {
	caller := callOf(ctx).caller
	results, err := settle(r.GetTopic(), r.GetEntries(), settleRequest[*mailboxv1.ExtendEntry, broker.Extension]{
		delivery: (*mailboxv1.ExtendEntry).GetDelivery,
		convert: func(e *mailboxv1.ExtendEntry) broker.Extension {
			return broker.Extension{Receipt: e.GetDelivery().GetReceipt(), Visibility: duration(e.GetVisibilityMs()), Progress: progressOf(e.GetProgress())}
		},
		all: func(es []broker.Extension, results []*mailboxv1.SettleResult) error {
			granted, err := caller.Existing().Extend(ctx, r.GetTopic(), es)
			for i, visibility := range granted {
				if driver.At(err, i) == nil {
					results[i].VisibilityMs = wireSpan(visibility)
				}
			}
			return err
		},
		one: func(t broker.Target, e broker.Extension, result *mailboxv1.SettleResult) error {
			granted, err := caller.ExtendOne(ctx, t, e)
			if err == nil {
				result.VisibilityMs = wireSpan(granted)
			}
			return err
		},
	})
	return &mailboxv1.ExtendResponse{Results: results}, err
}

// Bury dead-letters deliveries.
func (s *service) Bury(ctx context.Context, r *mailboxv1.BuryRequest) (*mailboxv1.BuryResponse, error) {
	caller := callOf(ctx).caller
	results, err := settle(r.GetTopic(), r.GetEntries(), settleRequest[*mailboxv1.BuryEntry, broker.DeadLetterRequest]{
		delivery: (*mailboxv1.BuryEntry).GetDelivery,
		convert: func(e *mailboxv1.BuryEntry) broker.DeadLetterRequest {
			return broker.DeadLetterRequest{
				Receipt: e.GetDelivery().GetReceipt(), Reason: driver.Reason(e.GetReason()), Error: e.GetError(), ErrorType: e.GetErrorType(),
			}
		},
		all: func(bs []broker.DeadLetterRequest, _ []*mailboxv1.SettleResult) error {
			return caller.Existing().DeadLetter(ctx, r.GetTopic(), bs)
		},
		one: func(t broker.Target, b broker.DeadLetterRequest, _ *mailboxv1.SettleResult) error {
			return caller.DeadLetterOne(ctx, t, b)
		},
	})
	return &mailboxv1.BuryResponse{Results: results}, err
}

// A settleRequest is one way to settle deliveries, such as ack or nack. E is an entry of
// the request, B its type in the broker.
type settleRequest[E, B any] struct {
	delivery func(E) *mailboxv1.DeliveryRef
	convert  func(E) B
	// all settles the entries with receipts in one call of the broker, and one settles
	// an entry without a receipt by its id. They may add to the results.
	all func([]B, []*mailboxv1.SettleResult) error
	one func(broker.Target, B, *mailboxv1.SettleResult) error
}

// settle settles the entries of a request. The error is one of the whole request.
func settle[E, B any](queue string, entries []E, how settleRequest[E, B]) ([]*mailboxv1.SettleResult, error) {
	results := make([]*mailboxv1.SettleResult, len(entries))
	var batch []B
	var batchResults []*mailboxv1.SettleResult
	for i, entry := range entries {
		results[i] = &mailboxv1.SettleResult{}
		ref, element := how.delivery(entry), how.convert(entry)
		switch {
		case ref.GetMsgId() != "":
			target := broker.Target{Queue: queue, ID: ref.GetMsgId(), Receipt: ref.GetReceipt()}
			results[i].Error = positionError(how.one(target, element, results[i]))
		case ref.GetReceipt() == "":
			results[i].Error = positionError(schemaError("delivery", "has neither a receipt nor a msg_id"))
		default:
			batch, batchResults = append(batch, element), append(batchResults, results[i])
		}
	}
	if len(batch) == 0 && len(entries) > 0 {
		return results, nil
	}
	err := how.all(batch, batchResults)
	if isWhole(err) && len(batch) == len(entries) {
		return nil, err
	}
	for i, result := range batchResults {
		result.Error = positionError(driver.At(err, i))
	}
	return results, nil
}
