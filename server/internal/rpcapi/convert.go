package rpcapi

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// duration converts the milliseconds of a request. Values out of range become the
// longest or the shortest duration; NaN becomes the shortest, which every limit refuses.
func duration(ms float64) time.Duration {
	switch ns := math.Round(ms * float64(time.Millisecond)); {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns > math.MinInt64:
		return time.Duration(ns)
	}
	return math.MinInt64
}

// milliseconds reverses duration, exactly to the nanosecond up to three weeks.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// number returns n as an int; a value that does not fit becomes one that every limit
// refuses.
func number(n int64) int {
	switch {
	case n > math.MaxInt:
		return math.MaxInt
	case n < math.MinInt:
		return math.MinInt
	}
	return int(n)
}

// timestamp returns nil for the zero time.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// outgoing reads a message to be sent.
func outgoing(m *mailboxv1.Outgoing) (broker.Outgoing, error) {
	out := broker.Outgoing{Outgoing: driver.Outgoing{
		Body: m.GetPayload(), Attributes: m.GetAttrs(), Delay: duration(m.GetDelayMs()), TTL: duration(m.GetTtlMs()), Priority: int(m.GetPriority()), DedupKey: m.GetIdemKey(),
		UniqueKey: m.GetUniqueKey(), Replace: m.GetReplace(), Group: m.GetGroup(), ReplyTo: m.GetReplyTo(), CorrelationID: m.GetCorrelationId(),
	}}
	if at := m.GetDeliverAt(); at != nil {
		if out.DeliverAt = at.AsTime(); !at.IsValid() || out.DeliverAt.IsZero() {
			return out, schemaError("deliver_at", "is not a time")
		}
	}
	signed := len(m.GetSig()) > 0
	switch {
	case signed != (m.GetSentAtMs() != 0):
		return out, schemaError("sent_at_ms", "and sig go together: the signature is over the time too")
	case !signed:
		return out, nil
	case len(m.GetSig()) != len(out.Signature):
		return out, schemaError("sig", "has 64 bytes, or none")
	}
	out.SentAt = time.UnixMilli(m.GetSentAtMs())
	out.Signature = envelope.Signature(m.GetSig())
	return out, nil
}

func delivery(d *broker.Delivery) *mailboxv1.Delivery {
	return &mailboxv1.Delivery{
		Envelope: sealedEnvelope(d.Queue, &d.Message, &d.Seal), Payload: d.Body, Receipt: d.Receipt, History: history(&d.Message),
		SlotPending: d.SlotPending,
	}
}

func sealedEnvelope(queue string, m *driver.Message, seal *broker.Seal) *mailboxv1.Envelope {
	e := &mailboxv1.Envelope{
		MsgId: m.ID, Topic: queue, IdemKey: seal.IdemKey, Attrs: m.Attributes, CorrId: seal.CorrelationID(m),
		Attempt: int32(m.Deliveries), Group: m.Group, ReplyTo: m.ReplyTo, CorrelationId: m.CorrelationID,
	}
	if !seal.SentAt.IsZero() { // zero if the message is damaged
		e.TsMs = seal.SentAt.UnixMilli()
		e.PayloadHash, e.HashChain = seal.PayloadHash(m.Body).String(), seal.HashChain.String()
	}
	if !seal.Signature.IsZero() {
		e.Sig = append([]byte(nil), seal.Signature[:]...)
	}
	return e
}

func history(m *driver.Message) *mailboxv1.History {
	return &mailboxv1.History{
		EnqueuedAt: timestamp(m.EnqueuedAt), FirstReceivedAt: timestamp(m.FirstReceivedAt), LastError: strings.ToValidUTF8(m.LastError, "\ufffd"),
		Priority: int32(m.Priority),
	}
}

func peeked(l *broker.Peeked) *mailboxv1.Peeked {
	p := &mailboxv1.Peeked{
		Envelope: sealedEnvelope(l.Queue, &l.Message, &l.Seal), Payload: l.Body, History: history(&l.Message),
		State: wireStates[l.State], DueAt: timestamp(l.DueAt), Damaged: l.Damaged, Redrives: int32(l.Redrives),
	}
	if l.State == driver.StateDead {
		cause, _ := l.Cause()
		p.Death = &mailboxv1.Death{
			Reason: string(l.Reason), Source: l.Source, ErrorType: strings.ToValidUTF8(l.ErrorType, "\ufffd"), DeadAt: timestamp(l.DeadAt), Cause: cause,
		}
	}
	return p
}

var wireStates = map[driver.State]mailboxv1.MessageState{
	driver.StateReady:    mailboxv1.MessageState_MESSAGE_STATE_READY,
	driver.StateDelayed:  mailboxv1.MessageState_MESSAGE_STATE_DELAYED,
	driver.StateInFlight: mailboxv1.MessageState_MESSAGE_STATE_IN_FLIGHT,
	driver.StateDead:     mailboxv1.MessageState_MESSAGE_STATE_DEAD,
}

// A search is a request that looks for messages.
type search interface {
	GetAttrs() map[string]string
	GetOlderThanMs() float64
	GetReason() string
	GetText() string
	GetGroup() string
	GetCause() string
}

// conditions reads what a request looks for.
func conditions(r search, priority *int32) broker.Search {
	s := broker.Search{
		Query: driver.Query{Attributes: r.GetAttrs(), OlderThan: duration(r.GetOlderThanMs()), Reason: driver.Reason(r.GetReason())},
		Text:  r.GetText(), Group: r.GetGroup(), Cause: r.GetCause(),
	}
	if priority != nil {
		wanted := int(*priority)
		s.Priority = &wanted
	}
	return s
}

// searchOf reads a peek.
func searchOf(r *mailboxv1.PeekRequest) (s broker.Search, err error) {
	s = conditions(r, r.Priority)
	s.Query.ID, s.Query.Limit, s.Query.Last = r.GetMsgId(), int(r.GetLimit()), int(r.GetLast())
	if s.Query.States, err = statesOf(r.GetStates()); err != nil {
		return s, err
	}
	switch within := duration(r.GetWithinMs()); {
	case r.GetLast() != 0 && (r.Cursor != nil || s.Selective()):
		err = schemaError("last", "cannot be combined with a cursor, text, group, priority or cause")
	case r.Cursor != nil:
		err = s.Page(r.GetCursor(), within)
	case within != 0:
		err = schemaError("within_ms", "needs a cursor; \"\" is the beginning")
	}
	return s, err
}

func statesOf(all []mailboxv1.MessageState) (states []driver.State, err error) {
	for _, wanted := range all {
		known := false
		for state, wire := range wireStates {
			if wire == wanted {
				states, known = append(states, state), true
			}
		}
		if !known {
			return nil, schemaError("states", "has an unknown state")
		}
	}
	return states, nil
}

func traits(t *driver.Traits) *mailboxv1.TraitsResponse {
	return &mailboxv1.TraitsResponse{
		Ordering: string(t.Ordering), Durability: string(t.Durability), ExactStats: t.ExactStats, Groups: t.Groups,
		StrictGroups: t.StrictGroups, DeadLetters: t.DeadLetters, Peek: t.Peek, PeekLast: t.PeekLast, Pause: t.Pause, Release: t.Release, DeliverAt: t.DeliverAt, Edit: t.Edit, Ttl: t.TTL, Schedules: t.Schedules, Priorities: t.Priorities, UniqueKeys: t.UniqueKeys, GroupLimits: t.GroupLimits, FairGroups: t.FairGroups,
		DedupWindowMs: milliseconds(t.DedupWindow), MaxPayloadBytes: int64(t.MaxBodyBytes), MaxBatch: int32(t.MaxBatch),
		MaxDelayMs: milliseconds(t.MaxDelay), MaxVisibilityMs: milliseconds(t.MaxVisibility), MaxWaitMs: milliseconds(t.MaxWait),
		PurgeCooldownMs: milliseconds(t.PurgeCooldown), MaxAttributes: int32(t.MaxAttributes), MaxAttributeBytes: int32(t.MaxAttributeBytes),
	}
}
