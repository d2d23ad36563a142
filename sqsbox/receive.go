package sqsbox

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// pollSlack is how much later than requested a response may arrive before the receiver
// abandons the poll.
const pollSlack = 100 * time.Millisecond

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	traits := h.Traits()
	req, err := req.Check(&traits)
	if err != nil {
		return nil, driver.Annotate(err, h.name, "receive")
	}
	early := 0
	for until := time.Now().Add(req.Wait); ; {
		p := h.poll(ctx, req, max(time.Until(until), 0))
		reason := h.awaitPoll(ctx, p, until, req.Wait > 0)
		got, finished, err := h.leavePoll(p)
		switch {
		case len(got) > 0:
			return h.handOut(ctx, p, got, req), nil
		case !finished:
			return nil, reason
		case err != nil:
			return nil, driver.Annotate(err, h.name, "receive")
		case time.Until(until) <= 0:
			return nil, nil
		}
		early = h.backOff(ctx, p, early)
		if err := h.check(ctx, "receive"); err != nil {
			return nil, err
		}
	}
}

// backOff pauses after an empty response that came sooner than requested, longer the
// more of them there were in a row, and returns how many. SQS sends such responses now
// and then; a server that sends no others must not be flooded with requests.
func (h *handle) backOff(ctx context.Context, p *poll, early int) int {
	if time.Until(p.ends) < pollSlack {
		return 0
	}
	timer := time.NewTimer(min(time.Millisecond<<min(early, 10), 2*pollSlack))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-h.closed:
	case <-h.ended:
	}
	return early + 1
}

// awaitPoll waits for the response of a poll. It returns nil when the response has
// arrived or until has passed, and otherwise why it stopped waiting.
func (h *handle) awaitPoll(ctx context.Context, p *poll, until time.Time, waits bool) error {
	var over <-chan time.Time
	if waits && p.ends.Sub(until) > pollSlack {
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

// handOut turns messages into deliveries, and gives back those beyond MaxBytes.
func (h *handle) handOut(ctx context.Context, p *poll, messages []types.Message, req driver.ReceiveRequest) []driver.Delivery {
	// SQS hides a message for whole seconds; a receipt is valid for what was requested.
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
		if p.shape.visibility > 0 { // otherwise the lease is over already
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

// unseen records deliveries that SQS counts but no receiver gets.
func (q *queue) unseen(messages []types.Message) {
	for i := range messages {
		q.backend.local.unseen(q.physical, q.delivery(&messages[i]).ID)
	}
}

// delivery turns a message of SQS into a delivery.
func (q *queue) delivery(m *types.Message) driver.Delivery {
	body, attributes, s := decode(m)
	d := driver.Delivery{Receipt: sealed(q.physical, deref(m.ReceiptHandle), q.backend.identity)}
	d.ID = cmp.Or(s.ID, messageID(deref(m.MessageId)))
	known := q.backend.local.message(q.physical, d.ID)
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
	d.Attributes = q.withDeadSource(attributes, m)
	return d
}

// withDeadSource adds the source and the reason of a dead letter that SQS has moved
// here, under the attribute names that other backends use.
func (q *queue) withDeadSource(attributes map[string]string, m *types.Message) map[string]string {
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

// instant returns a time that SQS gives in milliseconds; 0 means none.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// giveBack makes messages visible again. It blocks for one request.
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
		q.backend.options.Logger.WarnContext(ctx, "sqsbox: giving messages back failed; they stay hidden until their visibility ends",
			"queue", q.name, "messages", len(messages), "error", err)
	}
}

// systemAttributes requests all system attributes, which a delivery is made from.
var systemAttributes = []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}

// allAttributes requests all message attributes.
var allAttributes = []string{"All"}
