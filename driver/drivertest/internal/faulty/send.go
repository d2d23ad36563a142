package faulty

import (
	"context"
	"iter"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var sendFaults = []Saboteur{
	{
		Name: "drops-every-fifth", Breaks: "SND-1",
		What: "Every fifth message is answered with an id and never enqueued.",
		Wrap: perQueue(func(q passThrough, sent *atomic.Int64) driver.Queue { return dropsEvery{q, 5, sent} }),
	},
	{
		Name: "drops-last-of-batch", Breaks: "SND-1",
		What: "The last message of a batch of several is answered with an id and never enqueued.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return dropsLast{q} }),
	},
	{
		Name: "enqueues-twice", Breaks: "SND-1",
		What: "The first message of a batch is enqueued twice, under two ids.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return enqueuesTwice{q} }),
	},
	{
		Name: "gives-a-batch-one-id", Breaks: "SND-1", Also: []string{"SND-4"},
		What: "All messages of a batch are answered with the id of the first.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return oneIDPerBatch{q} }),
	},
	{
		Name: "gives-ids-that-are-not-ulids", Breaks: "SND-1",
		What: "Ids are in lower case, wherever they are seen.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return lowerCaseIDs{q} }),
	},
	{
		Name: "folds-names", Breaks: "SND-1",
		What: "Names that differ only in case name one queue.",
		Wrap: perOpener(func(b *wrapper) backend { return foldsNames{b} }),
	},
	{
		Name: "trims-names", Breaks: "SND-1",
		What: "Names that differ only in the spaces around them name one queue.",
		Wrap: perOpener(func(b *wrapper) backend { return trimsNames{b} }),
	},
	{
		Name: "binds-receipts-to-handles", Breaks: "SND-1",
		What: "A receipt works only at the handle that it came from.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return bindsReceipts{remembersDeliveries{q, new(deliveries)}} }),
	},
	{
		Name: "takes-any-name", Breaks: "SND-1",
		What: "An invalid name opens a queue.",
		Wrap: perOpener(func(b *wrapper) backend { return takesAnyName{b} }),
	},

	{
		Name: "forgets-delay", Breaks: "SND-2",
		What: "A delayed message is ready at once.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) { msg.Delay = min(msg.Delay, 0) }}
		}),
	},
	{
		Name: "delivers-delayed-early", Breaks: "SND-2",
		What: "A delayed message is ready a millisecond before its time.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				if msg.Delay > time.Millisecond && msg.Delay <= q.Traits().MaxDelay {
					msg.Delay -= time.Millisecond
				}
			}}
		}),
	},
	{
		Name: "delivers-delayed-late", Breaks: "SND-2",
		What: "A delayed message is ready a tenth of a second after its time.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				if limit := q.Traits().MaxDelay; msg.Delay > 0 && msg.Delay < limit {
					msg.Delay = min(msg.Delay+100*time.Millisecond, limit)
				}
			}}
		}),
	},
	{
		Name: "clamps-delay", Breaks: "SND-2",
		What: "A delay outside its limits is clamped instead of refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) { msg.Delay = min(max(msg.Delay, 0), q.Traits().MaxDelay) }}
		}),
	},
	{
		Name: "rounds-delays", Breaks: "SND-2",
		What: "A delay is rounded up to whole seconds.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				if msg.Delay > 0 && msg.Delay <= q.Traits().MaxDelay {
					msg.Delay = wholeSeconds(msg.Delay)
				}
			}}
		}),
	},
	{
		Name: "delays-the-whole-queue", Breaks: "SND-2",
		What: "While a message is delayed, the messages sent after it wait as well.",
		Wrap: perQueue(func(q passThrough, until *atomic.Int64) driver.Queue { return delaysAll{q, until} }),
	},

	{
		Name: "drops-empty-attributes", Breaks: "SND-3",
		What: "An attribute without a value is lost.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				msg.Attributes = maps.Clone(msg.Attributes)
				maps.DeleteFunc(msg.Attributes, func(key, value string) bool { return key != "" && value == "" })
			}}
		}),
	},
	{
		Name: "flips-a-bit", Breaks: "SND-3",
		What: "In a body of 200 bytes or more one bit is wrong on delivery.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if len(d.Body) >= 200 {
					d.Body = append([]byte(nil), d.Body...)
					d.Body[100] ^= 1
				}
			}}
		}),
	},
	{
		Name: "keeps-the-callers-body", Breaks: "SND-3",
		What: "The body delivered is the caller's slice, with all later changes.",
		Wrap: perQueue(func(q passThrough, sent *table[string, driver.Outgoing]) driver.Queue {
			return sharesMemory{q, sent, func(d *driver.Delivery, msg driver.Outgoing) { d.Body = msg.Body }}
		}),
	},
	{
		Name: "keeps-the-callers-attributes", Breaks: "SND-3",
		What: "The attributes delivered are the caller's map, with all later changes.",
		Wrap: perQueue(func(q passThrough, sent *table[string, driver.Outgoing]) driver.Queue {
			return sharesMemory{q, sent, func(d *driver.Delivery, msg driver.Outgoing) { d.Attributes = msg.Attributes }}
		}),
	},
	{
		Name: "cuts-large-bodies", Breaks: "SND-3",
		What: "A body over the limit is cut, not refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) { msg.Body = msg.Body[:min(len(msg.Body), q.Traits().MaxBodyBytes)] }}
		}),
	},
	{
		Name: "promises-an-ability-that-it-refuses", Breaks: "SND-1", Also: []string{"CNT-2"},
		What: "Traits promise Peek, and Peek is not supported.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return refusesPeek{q} }),
	},
	{
		Name: "has-an-ability-without-its-trait", Breaks: "SND-1",
		What: "Traits do not promise Peek, and Peek works.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesTraits{q, func(t *driver.Traits) { t.Peek = false }}
		}),
	},
	{
		Name: "promises-more-attributes-than-it-takes", Breaks: "SND-3",
		What: "Traits allow one attribute more than a message can have.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesTraits{q, func(t *driver.Traits) { t.MaxAttributes++ }}
		}),
	},
	{
		Name: "promises-more-attribute-bytes-than-it-takes", Breaks: "SND-3",
		What: "Traits allow one byte of attributes more than a message can have.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesTraits{q, func(t *driver.Traits) { t.MaxAttributeBytes++ }}
		}),
	},
	{
		Name: "takes-more-attributes-than-it-promises", Breaks: "SND-3",
		What: "A message can have one attribute more than Traits allow.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesTraits{q, func(t *driver.Traits) { t.MaxAttributes-- }}
		}),
	},
	{
		Name: "trims-texts", Breaks: "SND-3", Also: []string{"RCV-3"},
		What: "Reply address and correlation id are trimmed.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				msg.ReplyTo, msg.CorrelationID = strings.TrimSpace(msg.ReplyTo), strings.TrimSpace(msg.CorrelationID)
			}}
		}),
	},
	{
		Name: "mends-attributes", Breaks: "SND-3",
		What: "An attribute that is not UTF-8 is repaired, not refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				msg.Attributes = maps.Clone(msg.Attributes)
				for key, value := range msg.Attributes {
					msg.Attributes[key] = strings.ToValidUTF8(value, "?")
				}
			}}
		}),
	},

	{
		Name: "shifts-send-errors", Breaks: "SND-4",
		What: "The errors of a batch send are one position too late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsSendErrors{q} }),
	},
	{
		Name: "sends-all-or-nothing", Breaks: "SND-4",
		What: "One bad message keeps the others of its batch from being sent.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return allOrNothing{q} }),
	},
	{
		Name: "answers-only-for-the-sent", Breaks: "SND-4",
		What: "A batch with bad messages has results for the good ones only, so that the positions are wrong.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return skipsResults{q} }),
	},
	{
		Name: "delays-a-batch-alike", Breaks: "SND-4", Also: []string{"SND-2"}, Rare: true,
		What: "All messages of a batch get the delay of the first.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return delaysAlike{q} }),
	},
}

// changesSent changes each message before the backend gets it.
type changesSent struct {
	passThrough
	change func(*driver.Outgoing)
}

func (q changesSent) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	changed := append([]driver.Outgoing(nil), msgs...)
	for i := range changed {
		q.change(&changed[i])
	}
	return q.Queue.Send(ctx, changed)
}

// changesDelivered changes each delivery that is returned.
type changesDelivered struct {
	passThrough
	change func(*driver.Delivery)
}

func (q changesDelivered) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		q.change(&got[i])
	}
	return got, err
}

// losable reports whether a message can be dropped unnoticed: the send would succeed, and the
// message has no dedup key.
func (q passThrough) losable(msg driver.Outgoing) bool {
	traits := q.Traits()
	return msg.Check(&traits) == nil && msg.DedupKey == ""
}

type dropsEvery struct {
	passThrough
	nth  int64
	sent *atomic.Int64
}

func (q dropsEvery) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if q.losable(msg) && q.sent.Add(1)%q.nth == 0 {
			return driver.Sent{ID: ulid.Make().String()}, nil
		}
		return q.sendOne(ctx, msg)
	})
}

type dropsLast struct{ passThrough }

func (q dropsLast) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	last := len(msgs) - 1
	if last < 1 || !q.losable(msgs[last]) {
		return q.Queue.Send(ctx, msgs)
	}
	sent, err := q.Queue.Send(ctx, msgs[:last])
	if err != nil {
		return sent, err
	}
	return append(sent, driver.Sent{ID: ulid.Make().String()}), nil
}

type enqueuesTwice struct{ passThrough }

func (q enqueuesTwice) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	if err == nil && len(msgs) > 1 && q.losable(msgs[0]) {
		_, err = q.Queue.Send(ctx, msgs[:1])
	}
	return sent, err
}

type oneIDPerBatch struct{ passThrough }

func (q oneIDPerBatch) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		sent[i].ID = sent[0].ID
	}
	return sent, err
}

type lowerCaseIDs struct{ passThrough }

func (q lowerCaseIDs) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		sent[i].ID = strings.ToLower(sent[i].ID)
	}
	return sent, err
}

func (q lowerCaseIDs) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		got[i].ID = strings.ToLower(got[i].ID)
	}
	return got, err
}

type foldsNames struct{ *wrapper }

func (b foldsNames) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	return b.wrapper.OpenQueue(ctx, strings.ToLower(name))
}

type takesAnyName struct{ *wrapper }

func (b takesAnyName) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if driver.CheckName(name) != nil {
		name = "nameless"
	}
	return b.wrapper.OpenQueue(ctx, name)
}

type trimsNames struct{ *wrapper }

func (b trimsNames) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if trimmed := strings.TrimSpace(name); driver.CheckName(name) == nil && trimmed != "" {
		name = trimmed
	}
	return b.wrapper.OpenQueue(ctx, name)
}

type bindsReceipts struct{ remembersDeliveries }

func (q bindsReceipts) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		if _, mine := q.delivered.get(receipt); !mine {
			receipt = driver.Receipt{}
		}
		return q.Queue.Ack(ctx, []driver.Receipt{receipt})
	})
}

// wholeSeconds rounds up to whole seconds.
func wholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

type delaysAll struct {
	passThrough
	until *atomic.Int64 // Unix nanoseconds
}

func (q delaysAll) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		now := time.Now()
		if rest := time.Unix(0, q.until.Load()).Sub(now); rest > msg.Delay && msg.Delay == 0 {
			msg.Delay = rest
		}
		sent, err := q.sendOne(ctx, msg)
		if err == nil {
			q.until.Store(max(q.until.Load(), now.Add(msg.Delay).UnixNano()))
		}
		return sent, err
	})
}

type sharesMemory struct {
	passThrough
	sent  *table[string, driver.Outgoing]
	share func(*driver.Delivery, driver.Outgoing)
}

func (q sharesMemory) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if err == nil && !sent.Duplicate {
			q.sent.put(sent.ID, msg)
		}
		return sent, err
	})
}

func (q sharesMemory) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if msg, ok := q.sent.get(got[i].ID); ok {
			q.share(&got[i], msg)
		}
	}
	return got, err
}

// shifted moves the errors of a batch one position up.
func shifted(err error, n int) error {
	if !ofBatch(err) || n < 2 {
		return err
	}
	errs := make([]error, n)
	for i := range errs {
		errs[(i+1)%n] = driver.At(err, i)
	}
	return driver.NewBatchError(errs)
}

type shiftsSendErrors struct{ passThrough }

func (q shiftsSendErrors) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	return sent, shifted(err, len(msgs))
}

type allOrNothing struct{ passThrough }

func (q allOrNothing) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	traits := q.Traits()
	bad := each(msgs, func(msg driver.Outgoing) error { return msg.Check(&traits) })
	if bad != nil {
		return make([]driver.Sent, len(msgs)), bad
	}
	return q.Queue.Send(ctx, msgs)
}

type skipsResults struct{ passThrough }

func (q skipsResults) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	var good []driver.Sent
	for _, result := range sent {
		if result.ID != "" {
			good = append(good, result)
		}
	}
	return good, err
}

type delaysAlike struct{ passThrough }

func (q delaysAlike) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	alike := append([]driver.Outgoing(nil), msgs...)
	for i := range alike {
		if q.losable(alike[0]) && q.losable(alike[i]) {
			alike[i].Delay = alike[0].Delay
		}
	}
	return q.Queue.Send(ctx, alike)
}

type refusesPeek struct{ passThrough }

func (refusesPeek) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return driver.Unsupported{}.Peek(ctx, query)
}

type changesTraits struct {
	passThrough
	change func(*driver.Traits)
}

func (q changesTraits) Traits() driver.Traits {
	traits := q.passThrough.Traits()
	q.change(&traits)
	return traits
}
