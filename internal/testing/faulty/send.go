package faulty

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var sendFaults = []Saboteur{
	{Name: "drops-every-fifth", Breaks: "SND-1",
		What: "Every fifth message is answered with an id and never enqueued.",
		on:   hooks{send: dropEvery(5)}},
	{Name: "drops-last-of-batch", Breaks: "SND-1",
		What: "The last message of a batch of several is answered with an id and never enqueued.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			last := len(msgs) - 1
			if last < 1 || !q.losable(msgs[last]) {
				return q.Send(ctx, msgs)
			}
			sent, err := q.Send(ctx, msgs[:last])
			if err != nil {
				return sent, err
			}
			return append(sent, driver.Sent{ID: ulid.Make().String()}), nil
		}}},
	{Name: "enqueues-twice", Breaks: "SND-1",
		What: "The first message of a batch is enqueued twice, under two ids.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			sent, err := q.Send(ctx, msgs)
			if err == nil && len(msgs) > 1 && q.losable(msgs[0]) {
				_, err = q.sendOne(ctx, msgs[0])
			}
			return sent, err
		}}},
	{Name: "gives-a-batch-one-id", Breaks: "SND-1", Also: []string{"SND-4"},
		What: "All messages of a batch are answered with the id of the first.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			sent, err := q.Send(ctx, msgs)
			for i := range sent {
				sent[i].ID = sent[0].ID
			}
			return sent, err
		}}},
	{Name: "gives-ids-that-are-not-ulids", Breaks: "SND-1",
		What: "Ids are in lower case, wherever they are seen.",
		on: hooks{
			send:    afterSend(func(_ *queue, _ driver.Outgoing, sent *driver.Sent) { sent.ID = strings.ToLower(sent.ID) }),
			receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.ID = strings.ToLower(d.ID) }),
		}},
	{Name: "folds-names", Breaks: "SND-1",
		What: "Names that differ only in case name one queue.",
		on:   hooks{rename: strings.ToLower}},
	{Name: "trims-names", Breaks: "SND-1",
		What: "Names that differ only in the spaces around them name one queue.",
		on: hooks{rename: func(name string) string {
			trimmed := strings.TrimSpace(name)
			set(driver.CheckName(name) == nil && trimmed != "", &name, trimmed)
			return name
		}}},
	{Name: "binds-receipts-to-handles", Breaks: "SND-1",
		What: "A receipt works only at the handle that it came from.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { state[receiptMarks](q.own).put(d.Receipt, true) }),
			ack: alterEach((*queue).Ack, func(q *queue, receipt *driver.Receipt) {
				set(!state[receiptMarks](q.own).at(*receipt), receipt, driver.Receipt{})
			}),
		}},
	{Name: "takes-any-name", Breaks: "SND-1",
		What: "An invalid name opens a queue.",
		on: hooks{rename: func(name string) string {
			set(driver.CheckName(name) != nil, &name, "nameless")
			return name
		}}},

	{Name: "forgets-delay", Breaks: "SND-2",
		What: "A delayed message is ready at once.",
		on:   hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) { msg.Delay = min(msg.Delay, 0) })}},
	{Name: "delivers-delayed-early", Breaks: "SND-2",
		What: "A delayed message is ready a millisecond before its time.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			set(msg.Delay > time.Millisecond && msg.Delay <= q.Traits().MaxDelay, &msg.Delay, msg.Delay-time.Millisecond)
		})}},
	{Name: "delivers-delayed-late", Breaks: "SND-2",
		What: "A delayed message is ready a tenth of a second after its time.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			if limit := q.Traits().MaxDelay; msg.Delay > 0 && msg.Delay < limit {
				msg.Delay = min(msg.Delay+100*time.Millisecond, limit)
			}
		})}},
	{Name: "clamps-delay", Breaks: "SND-2",
		What: "A delay outside its limits is clamped instead of refused.",
		on:   hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) { msg.Delay = min(max(msg.Delay, 0), q.Traits().MaxDelay) })}},
	{Name: "rounds-delays", Breaks: "SND-2",
		What: "A delay is rounded up to whole seconds.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			set(msg.Delay > 0 && msg.Delay <= q.Traits().MaxDelay, &msg.Delay, wholeSeconds(msg.Delay))
		})}},
	{Name: "delays-the-whole-queue", Breaks: "SND-2",
		What: "While a message is delayed, the messages sent after it wait as well.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			now, until := time.Now(), state[atomic.Int64](q) // in Unix nanoseconds
			if rest := time.Unix(0, until.Load()).Sub(now); rest > msg.Delay && msg.Delay == 0 {
				msg.Delay = rest
			}
			sent, err := q.sendOne(ctx, msg)
			if err == nil {
				until.Store(max(until.Load(), now.Add(msg.Delay).UnixNano()))
			}
			return sent, err
		})}},

	{Name: "forgets-due-time", Breaks: "SND-2",
		What: "A message with a due time is ready at once.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			set(msg.Delay == 0 && time.Until(msg.DeliverAt) <= q.Traits().MaxDelay, &msg.DeliverAt, time.Time{})
		})}},
	{Name: "delivers-due-early", Breaks: "SND-2",
		What: "A message is ready a millisecond before its due time.",
		on:   hooks{send: alterDue(-time.Millisecond)}},
	{Name: "delivers-due-late", Breaks: "SND-2",
		What: "A message is ready a tenth of a second after its due time.",
		on:   hooks{send: alterDue(100 * time.Millisecond)}},
	{Name: "refuses-past-due-times", Breaks: "SND-2",
		What: "A due time that is past is refused.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			set(!msg.DeliverAt.IsZero() && !msg.DeliverAt.After(time.Now()), &msg.Delay, -1)
		})}},
	{Name: "clamps-due-times", Breaks: "SND-2",
		What: "A due time that is too far ahead is brought near instead of refused.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			latest := time.Now().Add(q.Traits().MaxDelay)
			set(msg.DeliverAt.After(latest), &msg.DeliverAt, latest)
		})}},
	{Name: "prefers-delays-to-due-times", Breaks: "SND-2",
		What: "Of a delay and a due time, the due time is ignored instead of refused.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			set(msg.Delay > 0, &msg.DeliverAt, time.Time{})
		})}},

	{Name: "drops-empty-attributes", Breaks: "SND-3",
		What: "An attribute without a value is lost.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			msg.Attributes = maps.Clone(msg.Attributes)
			maps.DeleteFunc(msg.Attributes, func(key, value string) bool { return key != "" && value == "" })
		})}},
	{Name: "flips-a-bit", Breaks: "SND-3",
		What: "In a body of 200 bytes or more one bit is wrong on delivery.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			if len(d.Body) >= 200 {
				d.Body = bytes.Clone(d.Body)
				d.Body[100] ^= 1
			}
		})}},
	{Name: "keeps-the-callers-body", Breaks: "SND-3",
		What: "The body delivered is the caller's slice, with all later changes.",
		on:   shareMemory(func(d *driver.Delivery, msg driver.Outgoing) { d.Body = msg.Body })},
	{Name: "keeps-the-callers-attributes", Breaks: "SND-3",
		What: "The attributes delivered are the caller's map, with all later changes.",
		on:   shareMemory(func(d *driver.Delivery, msg driver.Outgoing) { d.Attributes = msg.Attributes })},
	{Name: "cuts-large-bodies", Breaks: "SND-3",
		What: "A body over the limit is cut, not refused.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			msg.Body = msg.Body[:min(len(msg.Body), q.Traits().MaxBodyBytes)]
		})}},
	{Name: "promises-an-ability-that-it-refuses", Breaks: "SND-1", Also: []string{"CNT-2"},
		What: "Traits promise Peek, and Peek is not supported.",
		on: hooks{peek: func(_ *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return driver.Unsupported{}.Peek(ctx, query)
		}}},
	{Name: "has-an-ability-without-its-trait", Breaks: "SND-1",
		What: "Traits do not promise Peek, and Peek works.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.Peek = false })}},
	{Name: "promises-more-attributes-than-it-takes", Breaks: "SND-3",
		What: "Traits allow one attribute more than a message can have.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.MaxAttributes++ })}},
	{Name: "promises-more-attribute-bytes-than-it-takes", Breaks: "SND-3",
		What: "Traits allow one byte of attributes more than a message can have.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.MaxAttributeBytes++ })}},
	{Name: "takes-more-attributes-than-it-promises", Breaks: "SND-3",
		What: "A message can have one attribute more than Traits allow.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.MaxAttributes-- })}},
	{Name: "trims-texts", Breaks: "SND-3", Also: []string{"RCV-3"},
		What: "Reply address and correlation id are trimmed.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			msg.ReplyTo, msg.CorrelationID = strings.TrimSpace(msg.ReplyTo), strings.TrimSpace(msg.CorrelationID)
		})}},
	{Name: "mends-attributes", Breaks: "SND-3",
		What: "An attribute that is not UTF-8 is repaired, not refused.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			msg.Attributes = maps.Clone(msg.Attributes)
			for key, value := range msg.Attributes {
				msg.Attributes[key] = strings.ToValidUTF8(value, "?")
			}
		})}},

	{Name: "shifts-send-errors", Breaks: "SND-4",
		What: "The errors of a batch send are one position too late.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			sent, err := q.Send(ctx, msgs)
			return sent, shifted(err, len(msgs))
		}}},
	{Name: "sends-all-or-nothing", Breaks: "SND-4",
		What: "One bad message keeps the others of its batch from being sent.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			traits := q.Traits()
			if bad := each(msgs, func(msg driver.Outgoing) error { return msg.Check(&traits) }); bad != nil {
				return make([]driver.Sent, len(msgs)), bad
			}
			return q.Send(ctx, msgs)
		}}},
	{Name: "answers-only-for-the-sent", Breaks: "SND-4",
		What: "A batch with bad messages has results for the good ones only, so that the positions are wrong.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			sent, err := q.Send(ctx, msgs)
			return slices.DeleteFunc(sent, func(result driver.Sent) bool { return result.ID == "" }), err
		}}},
	{Name: "delays-a-batch-alike", Breaks: "SND-4", Also: []string{"SND-2"}, Rare: true,
		What: "All messages of a batch get the delay of the first.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			return q.Send(ctx, changed(q, msgs, func(q *queue, msg *driver.Outgoing) {
				if q.losable(msgs[0]) && q.losable(*msg) {
					msg.Delay = msgs[0].Delay
				}
			}))
		}}},
}

// losable reports whether a message can be dropped unnoticed: the send would succeed, and the
// message has no dedup key.
func (q *queue) losable(msg driver.Outgoing) bool {
	traits := q.Traits()
	return msg.Check(&traits) == nil && msg.DedupKey == ""
}

// dropEvery answers every nth message with an id, and does not enqueue it.
func dropEvery(n int64) sendFunc {
	return sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
		if q.losable(msg) && q.nth(n) {
			return driver.Sent{ID: ulid.Make().String()}, nil
		}
		return q.sendOne(ctx, msg)
	})
}

// wholeSeconds rounds up to whole seconds.
func wholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// shareMemory changes deliveries so that they share memory with what the caller sent.
func shareMemory(share func(*driver.Delivery, driver.Outgoing)) hooks {
	return hooks{
		send: afterSend(func(q *queue, msg driver.Outgoing, sent *driver.Sent) {
			if sent.ID != "" && !sent.Duplicate {
				state[table[string, driver.Outgoing]](q).put(sent.ID, msg)
			}
		}),
		receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			if msg, ok := state[table[string, driver.Outgoing]](q).get(d.ID); ok {
				share(d, msg)
			}
		}),
	}
}

// alterDue moves the due times of messages.
func alterDue(by time.Duration) sendFunc {
	return alterSent(func(q *queue, msg *driver.Outgoing) {
		ahead := time.Until(msg.DeliverAt)
		set(msg.Delay == 0 && ahead > time.Millisecond && ahead <= q.Traits().MaxDelay-by, &msg.DeliverAt, msg.DeliverAt.Add(by))
	})
}
