package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Program is a sequence of operations on one queue. It names messages and deliveries by
// number, in the order in which they first appeared (m1, m2, … and d1, d2, …), so that one
// program runs on any backend and the results can be compared.
type Program struct {
	// Config is the queue's; it is the zero Config where the opener has no
	// Admin.
	Config driver.Config
	// Other is the configuration of a second queue, which messages move to and from; nil if
	// there is none.
	Other *driver.Config
	// Untimed programs have results that do not depend on how fast they run: leases and delays
	// end at once or not for an hour, and no time passes on purpose. Backends that cannot run
	// in virtual time run these.
	Untimed    bool
	Operations []Operation
}

// An Operation is one step of a Program. Its String is part of the printed program.
type Operation interface {
	fmt.Stringer
	run(ctx context.Context, p *executor) result
}

// String lists the operations, one per line.
func (p Program) String() string {
	var b strings.Builder
	b.WriteString(p.head())
	for i, op := range p.Operations {
		fmt.Fprintf(&b, "%3d. %v\n", i+1, op)
	}
	return b.String()
}

// head describes the queues before the first operation.
func (p Program) head() string {
	text := fmt.Sprintf("  0. configure %s\n", describeConfig(p.Config))
	if p.Other != nil {
		text += fmt.Sprintf("     configure the other queue with %s\n", describeConfig(*p.Other))
	}
	return text
}

// The operations.
type (
	sendOperation    struct{ messages []driver.Outgoing }
	receiveOperation struct{ request driver.ReceiveRequest }
	ackOperation     struct{ deliveries []deliveryNumber }
	lateAckOperation struct{ deliveries []deliveryNumber }
	nackOperation    struct {
		deliveries []deliveryNumber
		delay      time.Duration
		cause      string
	}
	extendOperation struct {
		deliveries []deliveryNumber
		visibility time.Duration
		late       bool
	}
	deadLetterOperation struct {
		deliveries []deliveryNumber
		request    driver.DeadLetterRequest
	}
	redriveOperation struct {
		messages []messageNumber // nil means all
		limit    int
	}
	moveOperation struct {
		back  bool // from the other queue to this one
		limit int
	}
	discardOperation   struct{ messages []messageNumber }
	purgeOperation     struct{}
	purgeDeadOperation struct{}
	listDeadOperation  struct{}
	peekOperation      struct {
		message messageNumber // 0 means any
		query   driver.Query
	}
	advanceOperation struct {
		by time.Duration
		// unseen: the stats are not read afterwards, so that the next operation is the first to
		// see what has become due.
		unseen bool
	}
	configureOperation struct{ config driver.Config }
	restartOperation   struct{ how Crash }
)

// A messageNumber names the n-th message that was sent; unknownMessage is an id that no message
// has.
type messageNumber int

const unknownMessage messageNumber = -1

func (n messageNumber) String() string {
	if n == unknownMessage {
		return "m?"
	}
	return fmt.Sprintf("m%d", int(n))
}

// A deliveryNumber names the receipt of the n-th delivery, and -n the same receipt with another
// nonce. 0 is a receipt that was never given out.
type deliveryNumber int

func (n deliveryNumber) String() string {
	switch {
	case n < 0:
		return fmt.Sprintf("forged-d%d", -int(n))
	case n == 0:
		return "d?"
	}
	return fmt.Sprintf("d%d", int(n))
}

func (o sendOperation) String() string {
	texts := make([]string, len(o.messages))
	for i, msg := range o.messages {
		texts[i] = describeOutgoing(msg)
	}
	return "send " + strings.Join(texts, ", ")
}

func describeOutgoing(msg driver.Outgoing) string {
	text := fmt.Sprintf("%q", msg.Body)
	if len(msg.Attributes) > 0 {
		text += " " + describeAttributes(msg.Attributes)
	}
	for _, part := range []struct{ name, value string }{
		{"key", msg.DedupKey}, {"group", msg.Group}, {"reply to", msg.ReplyTo}, {"correlation", msg.CorrelationID},
	} {
		if part.value != "" {
			text += fmt.Sprintf(" %s %s", part.name, part.value)
		}
	}
	if msg.Delay != 0 {
		text += fmt.Sprintf(" delayed by %v", msg.Delay)
	}
	return text
}

func (o receiveOperation) String() string {
	text := fmt.Sprintf("receive up to %d for %v", o.request.Max, o.request.Visibility)
	if o.request.MaxBytes != 0 {
		text += fmt.Sprintf(", at most %d bytes", o.request.MaxBytes)
	}
	if o.request.Wait != 0 {
		text += fmt.Sprintf(", waiting %v", o.request.Wait)
	}
	return text
}

func (o ackOperation) String() string     { return "ack " + join(o.deliveries) }
func (o lateAckOperation) String() string { return "ack late " + join(o.deliveries) }

func (o nackOperation) String() string {
	return fmt.Sprintf("nack %s, delay %v, cause %q", join(o.deliveries), o.delay, o.cause)
}

func (o extendOperation) String() string {
	what := "extend"
	if o.late {
		what = "extend late"
	}
	return fmt.Sprintf("%s %s to %v", what, join(o.deliveries), o.visibility)
}

func (o deadLetterOperation) String() string {
	return fmt.Sprintf("dead-letter %s, reason %s, error %q of type %q", join(o.deliveries), o.request.Reason, o.request.Error, o.request.ErrorType)
}

func (o redriveOperation) String() string {
	text := "redrive all"
	if o.messages != nil {
		text = "redrive " + join(o.messages)
	}
	if o.limit != 0 {
		text += fmt.Sprintf(", at most %d", o.limit)
	}
	return text
}

func (o moveOperation) String() string {
	text := "move to the other queue"
	if o.back {
		text = "move back from the other queue"
	}
	if o.limit != 0 {
		text += fmt.Sprintf(", at most %d", o.limit)
	}
	return text
}

func (o discardOperation) String() string { return "discard " + join(o.messages) }
func (purgeOperation) String() string     { return "purge" }
func (purgeDeadOperation) String() string { return "purge the dead letters" }
func (listDeadOperation) String() string  { return "list the dead letters" }

func (o peekOperation) String() string {
	text := "peek"
	if o.message != 0 {
		text += fmt.Sprintf(" for %v", o.message)
	}
	for _, state := range o.query.States {
		text += fmt.Sprintf(" %s", state)
	}
	if len(o.query.Attributes) > 0 {
		text += " " + describeAttributes(o.query.Attributes)
	}
	if o.query.OlderThan != 0 {
		text += fmt.Sprintf(" older than %v", o.query.OlderThan)
	}
	if o.query.Reason != "" {
		text += fmt.Sprintf(" dead of %s", o.query.Reason)
	}
	if o.query.Limit != 0 {
		text += fmt.Sprintf(", at most %d", o.query.Limit)
	}
	return text
}

func (o advanceOperation) String() string {
	if o.unseen {
		return fmt.Sprintf("let %v pass unseen", o.by)
	}
	return fmt.Sprintf("let %v pass", o.by)
}

func (o configureOperation) String() string { return "configure " + describeConfig(o.config) }
func (o restartOperation) String() string   { return fmt.Sprintf("go through %v", o.how) }

// describeConfig prints the fields that are set.
func describeConfig(c driver.Config) string {
	var set []string
	for _, field := range []struct {
		name  string
		value any
	}{
		{"Shards", c.Shards},
		{"StrictGroups", c.StrictGroups},
		{"FairGroups", c.FairGroups},
		{"MaxDeliveries", c.MaxDeliveries},
		{"MaxMessages", c.MaxMessages},
		{"MaxBytes", c.MaxBytes},
		{"MaxInFlight", c.MaxInFlight},
		{"MaxDead", c.MaxDead},
		{"DedupWindow", c.DedupWindow},
		{"DedupMax", c.DedupMax},
		{"RetainReady.Age", c.RetainReady.Age},
		{"RetainReady.Count", c.RetainReady.Count},
		{"DropExpired", c.DropExpired},
		{"RetainDead.Age", c.RetainDead.Age},
		{"RetainDead.Count", c.RetainDead.Count},
		{"MaxHold", c.MaxHold},
		{"DeadLetterTo", c.DeadLetterTo},
	} {
		switch field.value {
		case 0, "", false, time.Duration(0):
		default:
			set = append(set, fmt.Sprintf("%s %v", field.name, field.value))
		}
	}
	if len(set) == 0 {
		return "nothing"
	}
	return strings.Join(set, ", ")
}

// describeAttributes prints attributes in a fixed order.
func describeAttributes(attributes map[string]string) string {
	var pairs []string
	for key, value := range attributes {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, " ") + "}"
}

func join[E fmt.Stringer](elements []E) string {
	texts := make([]string, len(elements))
	for i, element := range elements {
		texts[i] = element.String()
	}
	return strings.Join(texts, " ")
}
