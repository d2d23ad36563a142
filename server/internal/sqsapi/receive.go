package sqsapi

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// The system attributes of messages.
const (
	systemSender       = "SenderId"
	systemSent         = "SentTimestamp"
	systemReceiveCount = "ApproximateReceiveCount"
	systemFirstReceive = "ApproximateFirstReceiveTimestamp"
	systemSequence     = "SequenceNumber"
	systemDedup        = "MessageDeduplicationId"
	systemGroup        = "MessageGroupId"
	systemTrace        = "AWSTraceHeader"
	systemDeadSource   = "DeadLetterQueueSourceArn"
	defaultReceive     = 1
	integrityRetries   = 3
)

// systemAttributes lists all system attributes.
var systemAttributes = []string{
	systemSender, systemSent, systemReceiveCount, systemFirstReceive, systemSequence, systemDedup, systemGroup, systemTrace, systemDeadSource,
}

// A receiveOptions has the checked parameters of a receive.
type receiveOptions struct {
	driver.ReceiveRequest
	system  []string // nil for none
	filter  sqswire.Filter
	attempt string
}

// receiveMessage receives messages.
func (r *request) receiveMessage(ctx context.Context, in *sqswire.ReceiveMessageInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	wanted, err := q.receiveOptions(in)
	if err != nil {
		return nil, err
	}
	deliveries, err := r.receive(ctx, q, wanted)
	if wanted.Wait > 0 && errors.Is(err, driver.ErrNotFound) {
		// The queue was deleted while the client waited. AWS ends the wait without
		// messages; the next request learns that the queue is gone.
		r.service.queues.forget(q.TenantQueue)
		return new(sqswire.ReceiveMessageOutput), nil
	}
	if err != nil {
		return nil, err
	}
	if len(deliveries) == 0 {
		return new(sqswire.ReceiveMessageOutput), nil
	}
	r.giveBack = func(ctx context.Context) { r.release(ctx, q, deliveries) }
	out := &sqswire.ReceiveMessageOutput{Messages: make([]sqswire.Message, len(deliveries))}
	for i := range deliveries {
		r.show(&out.Messages[i], q, &deliveries[i], wanted)
	}
	return out, nil
}

// receiveOptions checks the parameters of a receive.
func (q *queue) receiveOptions(in *sqswire.ReceiveMessageInput) (*receiveOptions, error) {
	most, visibility, wait := defaultReceive, q.Visibility, q.Wait
	if in.MaxNumberOfMessages != nil {
		if most = *in.MaxNumberOfMessages; most < 1 || most > sqswire.MaxReceive {
			return nil, outOfRange("MaxNumberOfMessages", most, "Must be between 1 and 10, if provided.")
		}
	}
	if in.VisibilityTimeout != nil {
		if visibility = *in.VisibilityTimeout; visibility < 0 || visibility > maxVisibilitySeconds {
			return nil, outOfRange("VisibilityTimeout", visibility, "Must be >= 0 and <= 43200, if provided.")
		}
	}
	if in.WaitTimeSeconds != nil {
		if wait = *in.WaitTimeSeconds; wait < 0 || wait > maxWaitSeconds {
			return nil, outOfRange("WaitTimeSeconds", wait, "Must be >= 0 and <= 20, if provided.")
		}
	}
	wanted := &receiveOptions{
		ReceiveRequest: driver.ReceiveRequest{
			Max: most, Visibility: time.Duration(visibility) * time.Second, Wait: time.Duration(wait) * time.Second,
		},
		filter: sqswire.NewFilter(in.MessageAttributeNames),
	}
	for _, names := range [][]string{in.AttributeNames, in.MessageSystemAttributeNames} {
		for _, name := range names {
			switch {
			case name == attributeAll:
				wanted.system = systemAttributes
			case !slices.Contains(systemAttributes, name):
				return nil, sqswire.InvalidAttributeName.Withf("Unknown Attribute %s.", name)
			case !slices.Contains(wanted.system, name):
				wanted.system = append(slices.Clip(wanted.system), name)
			}
		}
	}
	if id := in.ReceiveRequestAttemptID; id != nil {
		if !q.FIFO {
			return nil, invalidValue("ReceiveRequestAttemptId", *id, wrongKind)
		}
		if err := sqswire.CheckAttemptID(*id); err != nil {
			return nil, err
		}
		wanted.attempt = *id
	}
	return wanted, nil
}

// receive waits for messages, or repeats an earlier receive with the same attempt id.
func (r *request) receive(ctx context.Context, q *queue, wanted *receiveOptions) ([]broker.Delivery, error) {
	if wanted.attempt == "" {
		return r.take(ctx, q, wanted)
	}
	// A repeated attempt returns messages without a receive, so the permission is checked
	// here.
	if err := r.caller.May(ctx, capability.OpRecv, q.Queue); err != nil {
		return nil, err
	}
	key := attemptKey{q.TenantQueue, wanted.attempt}
	held, done, err := r.service.attempts.begin(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(held) > 0 && r.prolong(ctx, q, held, wanted.Visibility) {
		done(held)
		return held, nil
	}
	deliveries, err := r.take(ctx, q, wanted)
	done(deliveries)
	return deliveries, err
}

// prolong extends the leases of deliveries, and reports whether all are still in flight.
func (r *request) prolong(ctx context.Context, q *queue, held []broker.Delivery, visibility time.Duration) bool {
	extensions := make([]broker.Extension, len(held))
	for i := range held {
		extensions[i] = broker.Extension{Receipt: held[i].Receipt, Visibility: visibility}
	}
	daemon, err := r.service.daemon(q.Tenant)
	if err != nil {
		return false
	}
	_, err = daemon.Extend(ctx, q.Queue, extensions)
	return err == nil
}

// take receives messages. At the in-flight limit a short poll of a standard queue fails;
// other receives return no messages.
func (r *request) take(ctx context.Context, q *queue, wanted *receiveOptions) ([]broker.Delivery, error) {
	began := time.Now()
	for range integrityRetries {
		deliveries, err := r.caller.Receive(ctx, q.Queue, wanted.ReceiveRequest)
		switch {
		case err == nil:
			return deliveries, nil
		case errors.Is(err, driver.ErrIntegrity):
			continue // the damaged message was dead-lettered; try the next
		case errors.Is(err, driver.ErrFull) && capability.ReasonOf(err) == "":
			waited := time.Since(began) >= wanted.Wait
			if waited && (q.FIFO || wanted.Wait > 0) {
				return nil, nil
			}
			return nil, sqswire.OverLimit.Withf("The number of messages in flight has reached its limit for the queue %s.", q.Queue)
		}
		return nil, err
	}
	return nil, nil
}

// release gives back deliveries that could not be returned to the client.
func (r *request) release(ctx context.Context, q *queue, deliveries []broker.Delivery) {
	if daemon, err := r.service.daemon(q.Tenant); err == nil {
		_ = daemon.GiveBack(ctx, q.Queue, deliveries) // on an error they come back when their leases end
	}
}

// show converts a delivery to a message of SQS.
func (r *request) show(m *sqswire.Message, q *queue, d *broker.Delivery, wanted *receiveOptions) {
	p := unwrap(&d.Message)
	m.MessageID, m.ReceiptHandle, m.Body = messageID(d.ID), d.Receipt, p.body
	m.MD5OfBody = sqswire.MD5OfBody(p.body)
	m.MessageAttributes = p.attributes(wanted.filter)
	m.MD5OfMessageAttributes = sqswire.MD5OfAttributes(m.MessageAttributes)
	if len(wanted.system) > 0 {
		m.Attributes = make(map[string]string, len(wanted.system))
		for _, name := range wanted.system {
			if value := r.systemAttribute(name, q, d, &p); value != "" {
				m.Attributes[name] = value
			}
		}
	}
}

func milliseconds(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// systemAttribute returns the value of a system attribute, "" if there is none.
func (r *request) systemAttribute(name string, q *queue, d *broker.Delivery, p *decodedMessage) string {
	switch name {
	case systemSender:
		return r.account
	case systemSent:
		return milliseconds(d.EnqueuedAt)
	case systemReceiveCount:
		return strconv.Itoa(d.TotalDeliveries())
	case systemFirstReceive:
		return milliseconds(d.FirstReceivedAt)
	case systemGroup:
		return d.Group
	case systemTrace:
		return p.hidden.Trace
	case systemDeadSource:
		if source := d.Attributes[driver.AttributeDeadSource]; source != "" {
			return r.arn(source)
		}
	case systemSequence:
		if q.FIFO {
			return sequenceNumber(d.ID)
		}
	case systemDedup:
		if q.FIFO && p.hidden.Dedup != "" {
			return p.hidden.Dedup
		}
		if q.FIFO {
			return d.Seal.IdemKey
		}
	}
	return ""
}
