package sqsbox

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// almost is how much later than it was asked to a request may come back before it is
// worth leaving it.
const almost = 100 * time.Millisecond

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	traits := h.Traits()
	req, err := req.Check(&traits)
	if err != nil {
		return nil, named(err, h.name, "receive")
	}
	early := 0
	for until := time.Now().Add(req.Wait); ; {
		p := h.poll(ctx, req, max(time.Until(until), 0))
		reason := h.attend(ctx, p, until, req.Wait > 0)
		got, finished, err := h.leave(p)
		switch {
		case len(got) > 0:
			return h.handOut(ctx, p, got, req), nil
		case !finished:
			return nil, reason
		case err != nil:
			return nil, named(err, h.name, "receive")
		case time.Until(until) <= 0:
			return nil, nil
		}
		early = h.calm(ctx, p, early)
		if err := h.check(ctx, "receive"); err != nil {
			return nil, err
		}
	}
}

// calm waits a little when empty answers have come sooner than they were asked to,
// the longer the more of them there were, and returns how many. SQS gives such
// answers now and then; a server that gives nothing else is not to be overrun.
func (h *handle) calm(ctx context.Context, p *poll, early int) int {
	if time.Until(p.ends) < almost {
		return 0
	}
	timer := time.NewTimer(min(time.Millisecond<<min(early, 10), 2*almost))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-h.closed:
	case <-h.ended:
	}
	return early + 1
}

// attend waits until a poll has come back, and returns why it does not wait any
// longer: nil when the time is over.
func (h *handle) attend(ctx context.Context, p *poll, until time.Time, waits bool) error {
	var over <-chan time.Time
	if waits && p.ends.Sub(until) > almost {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-p.back:
		return nil
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.closed:
		return h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		return h.failure(h.code, "receive")
	}
}

// handOut makes deliveries of messages, and gives back those that are too many.
func (h *handle) handOut(ctx context.Context, p *poll, messages []types.Message, req driver.ReceiveRequest) []driver.Delivery {
	// SQS hides a message for whole seconds; a receipt is good for what was asked.
	deadline := p.taken.Add(time.Duration(p.shape.visibility) * time.Second)
	if asked := p.arrived.Add(req.Visibility); asked.Before(deadline) {
		deadline = asked
	}
	deliveries := make([]driver.Delivery, 0, len(messages))
	bytes := 0
	for i := range messages {
		d := h.delivery(&messages[i])
		bytes += len(d.Body)
		if req.MaxBytes > 0 && bytes > req.MaxBytes && i > 0 {
			h.unseen(messages[i:])
			h.giveBack(ctx, messages[i:])
			messages = messages[:i]
			break
		}
		if p.shape.visibility > 0 { // else it is over already
			h.backend.leases.add(leaseKey{h.physical, d.Receipt.Handle}, lease{
				id: d.ID, deliveries: d.Deliveries, taken: p.taken, deadline: deadline,
			})
		}
		deliveries = append(deliveries, d)
	}
	if p.shape.visibility == 0 {
		h.giveBack(ctx, messages)
	}
	return deliveries
}

// unseen notes deliveries that SQS counts and nobody gets.
func (q *queue) unseen(messages []types.Message) {
	for i := range messages {
		q.backend.recall.unseen(q.physical, q.delivery(&messages[i]).ID)
	}
}

// delivery reads a message of SQS.
func (q *queue) delivery(m *types.Message) driver.Delivery {
	body, attributes, s := open(m)
	d := driver.Delivery{Receipt: sealed(q.physical, deref(m.ReceiptHandle), q.backend.identity)}
	d.ID = cmp.Or(s.ID, messageID(deref(m.MessageId)))
	known := q.backend.recall.message(q.physical, d.ID)
	d.Body, d.ReplyTo, d.CorrelationID, d.LastError = body, s.ReplyTo, s.CorrelationID, known.lastError
	d.Group = m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
	if s.Group != nil {
		d.Group = *s.Group
	} else if d.Group == noGroup {
		d.Group = ""
	}
	number := func(name types.MessageSystemAttributeName) int64 {
		n, err := strconv.ParseInt(m.Attributes[string(name)], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	count := int(number(types.MessageSystemAttributeNameApproximateReceiveCount))
	d.Deliveries = max(count-known.unseen, 1)
	d.EnqueuedAt = instant(cmp.Or(s.Enqueued, number(types.MessageSystemAttributeNameSentTimestamp)))
	d.FirstReceivedAt = instant(cmp.Or(s.FirstReceived, number(types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp)))
	d.Attributes = q.withDeath(attributes, m)
	return d
}

// withDeath adds where a message comes from that SQS has moved here for having been
// delivered too often, under the names that other backends use.
func (q *queue) withDeath(attributes map[string]string, m *types.Message) map[string]string {
	source := nameInARN(m.Attributes[string(types.MessageSystemAttributeNameDeadLetterQueueSourceArn)])
	if source == "" || attributes[driver.AttributeDeadSource] != "" {
		return attributes
	}
	if attributes == nil {
		attributes = make(map[string]string)
	}
	attributes[driver.AttributeDeadSource] = q.backend.nameOf(source)
	attributes[driver.AttributeDeadReason] = string(driver.ReasonMaxDeliveries)
	return attributes
}

// instant is a time that SQS gives in milliseconds; 0 is none.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// giveBack makes messages visible again. It blocks for a request.
func (q *queue) giveBack(ctx context.Context, messages []types.Message) {
	entries := make([]changeEntry, len(messages))
	for i := range messages {
		entries[i] = changeEntry{ReceiptHandle: messages[i].ReceiptHandle, VisibilityTimeout: 0}
	}
	answers, err := q.changes.do(context.WithoutCancel(ctx), entries, nil, func(int, *answer[struct{}]) {})
	for _, a := range answers {
		if a.err != nil {
			err = a.err
		}
	}
	if err != nil {
		q.backend.options.Logger.WarnContext(ctx, "sqsbox: messages that could not be given back stay hidden until their visibility ends",
			"queue", q.name, "messages", len(messages), "error", err)
	}
}

// systemAttributes are what a delivery tells.
var systemAttributes = []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}

// allAttributes asks for the attributes of messages, whatever they are called.
var allAttributes = []string{"All"}
