package faulty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

var uniqueFaults = []Saboteur{
	{Name: "ignores-unique-keys", Breaks: "FLOW-5",
		What: "Messages with one unique key are sent as if they had none.",
		on: hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) {
			msg.UniqueKey, msg.Replace = "", false
		})}},
	{Name: "hides-unique-duplicates", Breaks: "FLOW-5",
		What: "A send whose unique key is held is not marked as a duplicate.",
		on: hooks{send: afterSend(func(_ *queue, msg driver.Outgoing, sent *driver.Sent) {
			set(msg.UniqueKey != "" && !sent.Replaced, &sent.Duplicate, false)
		})}},
	{Name: "refuses-another-body-for-a-unique-key", Breaks: "FLOW-5",
		What: "A send whose unique key is held for another body is a conflict.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			bodies := state[table[string, []byte]](q)
			if body, known := bodies.get(msg.UniqueKey); known && msg.UniqueKey != "" && !bytes.Equal(body, msg.Body) {
				return driver.Sent{}, &driver.Error{Code: driver.ErrConflict, Op: "send", Queue: q.name, Field: "UniqueKey"}
			}
			sent, err := q.sendOne(ctx, msg)
			if err == nil && !sent.Duplicate {
				bodies.put(msg.UniqueKey, slices.Clone(msg.Body))
			}
			return sent, err
		})}},
	{Name: "frees-unique-keys-on-delivery", Breaks: "FLOW-5",
		What: "A message holds its unique key only until it is delivered.",
		on: hooks{send: renewKeys, receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			q.renewKey(d.ID)
		})}},
	{Name: "frees-unique-keys-on-nack", Breaks: "FLOW-5",
		What: "A nack frees the unique key of its message.",
		on: hooks{send: renewKeys, nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) {
			if nack.Mode == driver.NackFailed {
				q.renewKey(q.delivered.at(nack.Receipt).ID)
			}
		})}},
	{Name: "frees-unique-keys-on-release", Breaks: "FLOW-5",
		What: "A release frees the unique key of its message.",
		on: hooks{send: renewKeys, nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) {
			if nack.Mode != driver.NackFailed {
				q.renewKey(q.delivered.at(nack.Receipt).ID)
			}
		})}},
	{Name: "frees-unique-keys-on-edit", Breaks: "FLOW-5",
		What: "A change of its due time frees the unique key of a message.",
		on: hooks{send: renewKeys, edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			if err == nil && !edit.Remove {
				q.renewKey(id)
			}
			return was, err
		}}},
	{Name: "frees-unique-keys-on-redrive", Breaks: "FLOW-5",
		What: "A redriven message does not hold its unique key.",
		on: hooks{send: renewKeys, redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			before, _ := collect(q.DeadLetters(ctx))
			moved, err := q.Redrive(ctx, ids, limit)
			for _, letter := range before {
				if moved > 0 && wanted(ids, letter) {
					q.renewKey(letter.ID)
				}
			}
			return moved, err
		}}},
	{Name: "keeps-unique-keys-after-an-ack", Breaks: "FLOW-5",
		What: "An acked message holds its unique key.",
		on: hooks{send: stuckKeys, ack: afterEach((*queue).Ack, func(q *queue, receipt driver.Receipt) {
			q.stick(q.delivered.at(receipt).ID)
		})}},
	{Name: "measures-no-unique-keys", Breaks: "FLOW-5",
		What: "Usage does not count the unique keys that messages hold.",
		on: hooks{usage: func(q *queue, ctx context.Context) (driver.Usage, error) {
			usage, err := q.Usage(ctx)
			usage.UniqueKeys = 0
			return usage, err
		}}},
	{Name: "keeps-unique-keys-after-a-late-ack", Breaks: "FLOW-5",
		What: "A message that was acked late holds its unique key.",
		on: hooks{send: stuckKeys, ackLate: afterEach((*queue).AckLate, func(q *queue, receipt driver.Receipt) {
			q.stick(q.delivered.at(receipt).ID)
		})}},
	{Name: "lets-dead-letters-hold-unique-keys", Breaks: "FLOW-5",
		What: "A dead letter holds its unique key.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			letters, _ := collect(q.DeadLetters(ctx))
			for _, letter := range letters {
				if id := state[uniqueUses](q).at(msg.UniqueKey).id; msg.UniqueKey != "" && id == letter.ID {
					return driver.Sent{ID: id, Duplicate: true}, nil
				}
			}
			return q.sendUnique(ctx, msg)
		})}},
	{Name: "keeps-unique-keys-after-a-purge", Breaks: "FLOW-5",
		What: "Purged messages hold their unique keys.",
		on: hooks{send: stuckKeys, purge: func(q *queue, ctx context.Context) (int, error) {
			uses := state[uniqueUses](q)
			for _, key := range uses.keys() {
				q.stick(uses.at(key).id)
			}
			return q.Purge(ctx)
		}}},
	{Name: "keeps-unique-keys-after-a-removal", Breaks: "FLOW-5",
		What: "A message that was removed while it waited holds its unique key.",
		on: hooks{send: stuckKeys, edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			if edit.Remove {
				q.stick(id)
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "takes-unique-keys-for-dedup-keys", Breaks: "FLOW-5",
		What: "A unique key is used as a dedup key.",
		on: hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) {
			if msg.DedupKey == "" {
				msg.DedupKey, msg.UniqueKey, msg.Replace = msg.UniqueKey, "", false
			}
		})}},
	{Name: "shares-unique-keys-between-queues", Breaks: "FLOW-5",
		What: "A unique key that is held in one queue is held in all.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[keyUses](q.wrapper)
			if first, ok := used.get(msg.UniqueKey); ok && first.queue != q.name {
				return driver.Sent{ID: first.id, Duplicate: true}, nil
			}
			sent, err := q.sendOne(ctx, msg)
			if err == nil && msg.UniqueKey != "" {
				used.put(msg.UniqueKey, keyUse{queue: q.name, id: sent.ID})
			}
			return sent, err
		})}},
	{Name: "shares-unique-keys-with-dedup-keys", Breaks: "FLOW-5",
		What: "A unique key and a dedup key with the same text are one key.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[texts](q)
			if first, ok := used.get(msg.UniqueKey); ok {
				return driver.Sent{ID: first, Duplicate: true}, nil
			}
			sent, err := q.sendOne(ctx, msg)
			if err == nil && msg.DedupKey != "" {
				used.put(msg.DedupKey, sent.ID)
			}
			return sent, err
		})}},
	{Name: "cuts-unique-keys", Breaks: "FLOW-5",
		What: "Only the first 64 bytes of a unique key count.",
		on: hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) {
			msg.UniqueKey = msg.UniqueKey[:min(len(msg.UniqueKey), 64)]
		})}},
	{Name: "takes-any-unique-key", Breaks: "FLOW-5",
		What: "A unique key that is too long is cut instead of refused.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			msg.UniqueKey = msg.UniqueKey[:min(len(msg.UniqueKey), driver.MaxDedupKeyBytes)]
		})}},
	{Name: "keeps-unique-keys-by-shard", Breaks: "FLOW-5",
		What: "In a queue of several shards each shard has unique keys of its own.",
		on: hooks{only: sharded, send: alterUnique(func(q *queue, msg *driver.Outgoing) {
			msg.UniqueKey = shortKey(fmt.Sprint(msg.UniqueKey, q.calls.Add(1)%4))
		})}},
	{Name: "ignores-unique-keys-in-groups-of-shards", Breaks: "FLOW-5",
		What: "In a queue of several shards the unique key of a message with a group is ignored.",
		on: hooks{only: sharded, send: alterUnique(func(_ *queue, msg *driver.Outgoing) {
			set(msg.Group != "", &msg.UniqueKey, "")
		})}},
	{Name: "races-on-a-unique-key", Breaks: "FLOW-5",
		What: "A unique key is looked up and taken in two steps, so that concurrent sends can all be first.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			if key := msg.UniqueKey; key != "" && len(key) <= driver.MaxDedupKeyBytes && !msg.Replace {
				sending := state[counts](q)
				if add(sending, key, 1) > 1 {
					msg.UniqueKey = shortKey(fmt.Sprintf("%s %d", key, q.calls.Add(1)))
				}
				defer add(sending, key, -1)
				yieldToOthers()
			}
			return q.sendOne(ctx, msg)
		})}},
	{Name: "wants-room-for-unique-duplicates", Breaks: "FLOW-5",
		What: "A send whose unique key is held is refused when the queue is full.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			limit := q.config().MaxMessages
			if stats, err := q.Stats(ctx); err == nil && limit > 0 && stats.Waiting() >= limit && msg.UniqueKey != "" {
				return driver.Sent{}, q.full()
			}
			return q.sendOne(ctx, msg)
		})}},
	{Name: "holds-keys-of-refused-messages", Breaks: "FLOW-5",
		What: "A message that found no room holds its unique key all the same.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			refused := state[marks](q)
			if msg.UniqueKey != "" && refused.at(msg.UniqueKey) {
				return driver.Sent{ID: "refused", Duplicate: true}, nil
			}
			sent, err := q.sendOne(ctx, msg)
			if errors.Is(err, driver.ErrFull) && q.config().MaxMessages > 0 {
				refused.put(msg.UniqueKey, true)
			}
			return sent, err
		})}},
	{Name: "lets-unique-keys-through-a-full-table", Breaks: "FLOW-5",
		What: "When the table of unique keys is full, messages are sent as if they had no key.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if errors.Is(err, driver.ErrFull) && msg.UniqueKey != "" {
				msg.UniqueKey, msg.Replace = "", false
				return q.sendOne(ctx, msg)
			}
			return sent, err
		})}},
	{Name: "counts-dedup-keys-among-unique-keys", Breaks: "FLOW-5",
		What: "Dedup keys take room in the table of unique keys.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[marks](q)
			if limit := q.config().DedupMax; limit > 0 && msg.UniqueKey != "" && len(used.keys()) >= limit {
				return driver.Sent{}, q.full()
			}
			sent, err := q.sendOne(ctx, msg)
			if err == nil && msg.DedupKey != "" {
				used.put(msg.DedupKey, true)
			}
			return sent, err
		})}},

	{Name: "never-replaces", Breaks: "FLOW-5",
		What: "A send that should replace a waiting message does not.",
		on:   hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) { msg.Replace = false })}},
	{Name: "pretends-to-replace", Breaks: "FLOW-5",
		What: "A send that should replace a waiting message says that it has, and has not.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			replace := msg.Replace && msg.UniqueKey != ""
			set(replace, &msg.Replace, false)
			sent, err := q.sendOne(ctx, msg)
			sent.Replaced = replace && sent.Duplicate
			return sent, err
		})}},
	{Name: "always-replaces", Breaks: "FLOW-5",
		What: "Every send replaces the waiting message that holds its unique key, and does not say so.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			asked := msg.Replace
			msg.Replace = msg.UniqueKey != "" || asked
			sent, err := q.sendOne(ctx, msg)
			sent.Replaced = sent.Replaced && asked
			return sent, err
		})}},
	{Name: "says-not-that-it-replaced", Breaks: "FLOW-5",
		What: "A send that has replaced a message does not say so.",
		on:   hooks{send: afterSend(func(_ *queue, _ driver.Outgoing, sent *driver.Sent) { sent.Replaced = false })}},
	{Name: "says-that-it-replaced-in-flight", Breaks: "FLOW-5",
		What: "A send that left a message in flight alone says that it has replaced it.",
		on: hooks{send: afterSend(func(_ *queue, msg driver.Outgoing, sent *driver.Sent) {
			set(msg.Replace && sent.Duplicate, &sent.Replaced, true)
		})}},
	{Name: "makes-replaced-messages-ready", Breaks: "FLOW-5",
		What: "A message that is replaced by a delayed one is ready at once.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if err == nil && sent.Replaced {
				_, _ = q.Edit(ctx, sent.ID, driver.Edit{Ready: true})
			}
			return sent, err
		})}},
	{Name: "replaces-by-another-message", Breaks: "FLOW-5",
		What: "A replaced message has a new id, and is at the tail.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if err != nil || !sent.Replaced {
				return sent, err
			}
			if _, err := q.Edit(ctx, sent.ID, driver.Edit{Remove: true}); err != nil {
				return sent, nil
			}
			msg.DedupKey = ""
			fresh, err := q.sendOne(ctx, msg)
			return driver.Sent{ID: fresh.ID, Duplicate: true, Replaced: true}, err
		})}},
	{Name: "keeps-attributes-of-replaced-messages", Breaks: "FLOW-5",
		What: "A replaced message does not get the attributes of the last send.",
		on:   hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) { set(msg.Replace, &msg.Attributes, nil) })}},
	{Name: "keeps-seals-of-replaced-messages", Breaks: "FLOW-5",
		What: "A replaced message does not get the seal of the last send.",
		on:   hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) { set(msg.Replace, &msg.Seal, nil) })}},
	{Name: "keeps-times-to-live-of-replaced-messages", Breaks: "FLOW-5",
		What: "A replaced message does not get the time to live of the last send.",
		on:   hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) { set(msg.Replace, &msg.TTL, 0) })}},
	{Name: "raises-priorities-of-replaced-messages", Breaks: "FLOW-5",
		What: "A replaced message gets the priority of the last send.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if err == nil && sent.Replaced && msg.Priority > 0 {
				_, _ = q.Edit(ctx, sent.ID, driver.Edit{Prioritize: true, Priority: msg.Priority})
			}
			return sent, err
		})}},
	{Name: "replaces-without-a-unique-key", Breaks: "FLOW-5",
		What: "A send that should replace, and has no unique key, is accepted.",
		on:   hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) { set(msg.UniqueKey == "", &msg.Replace, false) })}},
	{Name: "replaces-again", Breaks: "FLOW-5",
		What: "A repeat, by its dedup key, of a send that has replaced a message replaces it again.",
		on:   hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) { set(msg.Replace, &msg.DedupKey, "") })}},
	{Name: "forgets-dedup-keys-of-unique-duplicates", Breaks: "FLOW-5",
		What: "A send whose unique key was held leaves no dedup key behind, so that its repeat adds a message.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			if msg.UniqueKey == "" || msg.DedupKey == "" || msg.Replace || len(msg.DedupKey) > driver.MaxDedupKeyBytes {
				return q.sendOne(ctx, msg)
			}
			probe := msg
			probe.DedupKey = shortKey(fmt.Sprint("probe ", q.calls.Add(1)))
			if held := state[uniqueUses](q).at(msg.UniqueKey).id; held != "" {
				return q.sendUnique(ctx, probe)
			}
			return q.sendUnique(ctx, msg)
		})}},

	{Name: "redrives-held-keys", Breaks: "FLOW-5",
		What: "A dead letter is redriven although another message holds its unique key.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			moved, err := q.Redrive(ctx, ids, limit)
			if !errors.Is(err, driver.ErrConflict) {
				return moved, err
			}
			letters, err := collect(q.DeadLetters(ctx))
			for _, letter := range letters {
				if wanted(ids, letter) && err == nil {
					_, _ = q.Discard(ctx, []string{letter.ID})
					_, err = q.sendOne(ctx, again(letter.Message))
					moved++
				}
			}
			return moved, err
		}}},
	{Name: "skips-held-keys-in-silence", Breaks: "FLOW-5",
		What: "A redrive does not say that a dead letter stays because another message holds its unique key.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			moved, err := q.Redrive(ctx, ids, limit)
			return moved, unless(errors.Is(err, driver.ErrConflict), err)
		}}},
	{Name: "names-no-holder-on-redrive", Breaks: "FLOW-5",
		What: "A refused redrive does not name the message that holds the unique key.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			moved, err := q.Redrive(ctx, ids, limit)
			return moved, alterError(err, func(e *driver.Error) { e.MessageID = "" })
		}}},
	{Name: "stops-redriving-at-a-held-key", Breaks: "FLOW-5",
		What: "A redrive of all stops at the first dead letter whose unique key is held.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (moved int, err error) {
			if ids != nil || limit > 0 {
				return q.Redrive(ctx, ids, limit)
			}
			letters, err := collect(q.DeadLetters(ctx))
			for _, letter := range letters {
				if err == nil {
					var n int
					n, err = q.Redrive(ctx, []string{letter.ID}, 0)
					moved += n
				}
			}
			return moved, err
		}}},
	{Name: "names-no-holder-on-move", Breaks: "FLOW-5",
		What: "A refused move does not name the message that holds the unique key.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			moved, err := q.Move(ctx, to, limit)
			return moved, alterError(err, func(e *driver.Error) { e.MessageID = "" })
		}}},
	{Name: "moves-held-keys", Breaks: "FLOW-5",
		What: "A message is moved to a queue in which another one holds its unique key.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			moved, err := q.Move(ctx, to, limit)
			if !errors.Is(err, driver.ErrConflict) {
				return moved, err
			}
			target, err := q.wrapper.inner.OpenQueue(ctx, to)
			if err != nil {
				return moved, err
			}
			defer func() { _ = target.Close() }()
			for _, m := range q.readyMessages(ctx) {
				_, _ = q.Edit(ctx, m.ID, driver.Edit{Remove: true})
				_, err = target.Send(ctx, []driver.Outgoing{again(m)})
				moved++
			}
			return moved, err
		}}},
	{Name: "denies-unique-keys", Breaks: "FLOW-5",
		What: "A queue whose messages can have unique keys says that they cannot.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.UniqueKeys = false })}},
	{Name: "drops-unique-keys-of-schedules", Breaks: "FLOW-5",
		What: "A message of a schedule with a unique key is sent without it.",
		on: hooks{fire: func(q *queue, ctx context.Context, firing driver.Firing) (driver.Schedule, bool, error) {
			firing.Messages = slices.Clone(firing.Messages)
			for i := range firing.Messages {
				firing.Messages[i].UniqueKey = ""
			}
			return q.Fire(ctx, firing)
		}}},

	{Name: "forgets-unique-keys-on-restart", Breaks: "FLOW-5",
		What:  "After a restart all unique keys are free.",
		after: &hooks{send: alterUnique(func(_ *queue, msg *driver.Outgoing) { msg.UniqueKey = shortKey("restarted " + msg.UniqueKey) })}},
	{Name: "holds-free-keys-on-restart", Breaks: "FLOW-5",
		What: "After a restart the unique keys of messages that are gone are held.",
		on: hooks{ack: afterEach((*queue).Ack, (*queue).recordDelivered), purge: func(q *queue, ctx context.Context) (int, error) {
			q.wrapper.log.put(q.name, q.readyMessages(ctx))
			return q.Purge(ctx)
		}},
		after: &hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			if gone := q.wrapper.log.at(q.name); len(gone) > 0 && msg.UniqueKey != "" {
				return driver.Sent{ID: gone[0].ID, Duplicate: true}, nil
			}
			return q.sendOne(ctx, msg)
		})}},
	{Name: "acks-late-what-was-replaced", Breaks: "FLOW-5",
		What: "A late ack removes a message that was replaced since.",
		on: hooks{
			send: afterSend(func(q *queue, _ driver.Outgoing, sent *driver.Sent) {
				if sent.Replaced {
					state[marks](q).put(sent.ID, true)
				}
			}),
			ackLate: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
				err := q.ackOneLate(ctx, receipt)
				if !state[marks](q).at(receipt.Handle) || !errors.Is(err, driver.ErrReceiptExpired) {
					return err
				}
				_, failure := q.Edit(ctx, receipt.Handle, driver.Edit{Remove: true})
				return unless(failure == nil, err)
			}),
		}},
	{Name: "undoes-replacing-on-restart", Breaks: "FLOW-5",
		What: "After a restart a replaced message has the body that it had before.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			before := q.peeked(ctx, driver.StateReady, driver.StateDelayed)
			sent, err := q.sendOne(ctx, msg)
			for _, seen := range before {
				if sent.Replaced && seen.ID == sent.ID {
					q.wrapper.log.put(sent.ID, []driver.Message{seen.Message})
				}
			}
			return sent, err
		})},
		after: &hooks{receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			if old := q.wrapper.log.at(d.ID); len(old) > 0 {
				d.Body = old[0].Body
			}
		})}},
}
