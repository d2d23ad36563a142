package faulty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var dedupFaults = []Saboteur{
	{Name: "forgets-no-dedup-keys", Breaks: "DUP-3",
		What: "ForgetDedup does nothing.",
		on:   hooks{forgetDedup: func(*queue, context.Context) error { return nil }}},
	{Name: "purges-when-it-forgets-dedup-keys", Breaks: "DUP-3",
		What: "ForgetDedup purges the queue.",
		on: hooks{forgetDedup: func(q *queue, ctx context.Context) error {
			_, err := q.Purge(ctx)
			return errors.Join(err, q.ForgetDedup(ctx))
		}}},
	{Name: "hides-duplicates", Breaks: "DUP-1",
		What: "A duplicate is not marked as one.",
		on:   hooks{send: afterSend(func(_ *queue, _ driver.Outgoing, sent *driver.Sent) { sent.Duplicate = false })}},
	{Name: "compares-attributes-too", Breaks: "DUP-1",
		What: "The same key and body with other attributes is another message.",
		on:   hooks{send: renameKeys(func(_ *queue, msg *driver.Outgoing) string { return fmt.Sprint(msg.DedupKey, msg.Attributes) })}},
	{Name: "keeps-keys-by-group", Breaks: "DUP-1", Rare: true,
		What: "The same key and body in another group is another message, as with a table per shard.",
		on:   hooks{send: renameKeys(keyOfGroup)}},
	{Name: "cuts-keys", Breaks: "DUP-1",
		What: "Only the first 64 bytes of a key count.",
		on:   hooks{send: renameKeys(func(_ *queue, msg *driver.Outgoing) string { return msg.DedupKey[:min(len(msg.DedupKey), 64)] })}},
	{Name: "folds-keys", Breaks: "DUP-1",
		What: "Keys that differ only in case are one key.",
		on:   hooks{send: renameKeys(func(_ *queue, msg *driver.Outgoing) string { return strings.ToLower(msg.DedupKey) })}},
	{Name: "keeps-keys-by-shard", Breaks: "DUP-1",
		What: "In a queue of several shards each shard has keys of its own.",
		on:   hooks{only: sharded, send: renameKeys(keyOfGroup)}},
	{Name: "shares-keys-between-queues", Breaks: "DUP-1",
		What: "A key used in one queue is used in all.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[keyUses](q.wrapper)
			if first, ok := used.get(msg.DedupKey); ok && first.queue != q.name && bytes.Equal(first.body, msg.Body) {
				return driver.Sent{ID: first.id, Duplicate: true}, nil
			}
			return q.sendAndRecord(ctx, msg, used)
		})}},
	{Name: "races-on-a-key", Breaks: "DUP-1",
		What: "A key is looked up and recorded in two steps, so that concurrent sends can all be first.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			if key := msg.DedupKey; key != "" && len(key) <= driver.MaxDedupKeyBytes {
				sending := state[counts](q)
				if add(sending, key, 1) > 1 {
					msg.DedupKey = shortKey(fmt.Sprintf("%s %d", key, q.calls.Add(1)))
				}
				defer add(sending, key, -1)
				yieldToOthers()
			}
			return q.sendOne(ctx, msg)
		})}},
	{Name: "wants-room-for-duplicates", Breaks: "DUP-1",
		What: "A duplicate is refused when the queue is full.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			limit := q.config().MaxMessages
			if stats, err := q.Stats(ctx); err == nil && limit > 0 && stats.Waiting() >= limit {
				return driver.Sent{}, q.full()
			}
			return q.sendOne(ctx, msg)
		})}},

	{Name: "ignores-another-body", Breaks: "DUP-2",
		What: "A used key with another body counts as a duplicate.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendAndRecord(ctx, msg, state[keyUses](q))
			if first, ok := state[keyUses](q).get(msg.DedupKey); ok && errors.Is(err, driver.ErrConflict) {
				return driver.Sent{ID: first.id, Duplicate: true}, nil
			}
			return sent, err
		})}},
	{Name: "forgets-conflicts-on-ack", Breaks: "DUP-2",
		What: "Once the message is acked, its key can be used for another body.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendTranslated(ctx, msg)
			stats, _ := q.Stats(ctx)
			if errors.Is(err, driver.ErrConflict) && stats == (driver.Stats{}) { // its message is gone
				state[usedKeys](q).forget(msg.DedupKey)
				return q.sendTranslated(ctx, msg)
			}
			return sent, err
		})}},

	{Name: "ends-the-window-early", Breaks: "DUP-3",
		What: "A key is free when nine tenths of the window have passed.",
		on:   hooks{config: func(c *driver.Config) { c.DedupWindow = c.DedupWindow * 9 / 10 }, traits: claimWindow}},
	{Name: "ends-the-window-late", Breaks: "DUP-3",
		What: "A key is free when eleven tenths of the window have passed.",
		on:   hooks{config: func(c *driver.Config) { c.DedupWindow = c.DedupWindow * 11 / 10 }, traits: claimWindow}},
	{Name: "extends-the-window-on-repeats", Breaks: "DUP-3",
		What: "Each duplicate restarts the window of its key.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[keyUses](q)
			last, ok := used.get(msg.DedupKey)
			if ok && bytes.Equal(last.body, msg.Body) && time.Since(last.at) < q.Traits().DedupWindow {
				last.at = time.Now()
				used.put(msg.DedupKey, last)
				return driver.Sent{ID: last.id, Duplicate: true}, nil
			}
			return q.sendAndRecord(ctx, msg, used)
		})}},
	{Name: "evicts-the-oldest-key", Breaks: "DUP-3",
		What: "A full dedup table evicts its oldest key to store a new one.",
		on: hooks{
			config: func(c *driver.Config) { c.DedupMax = 0 },
			send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
				sent, err := q.sendTranslated(ctx, msg)
				state[usedKeys](q).evictDownTo(q.config().DedupMax)
				return sent, err
			}),
		}},
	{Name: "lets-keys-through-a-full-table", Breaks: "DUP-3",
		What: "When the dedup table is full, keyed messages are sent as if they had no key.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if errors.Is(err, driver.ErrFull) && msg.DedupKey != "" {
				msg.DedupKey = ""
				return q.sendOne(ctx, msg)
			}
			return sent, err
		})}},
	{Name: "never-frees-places-in-the-table", Breaks: "DUP-3",
		What: "A key whose window is over still takes room in the dedup table.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[keyUses](q)
			_, known := used.get(msg.DedupKey)
			if limit := q.config().DedupMax; limit > 0 && msg.DedupKey != "" && !known && len(used.keys()) >= limit {
				return driver.Sent{}, q.full()
			}
			return q.sendAndRecord(ctx, msg, used)
		})}},
	{Name: "hints-at-the-newest-key", Breaks: "DUP-3",
		What: "RetryAfter of a full dedup table is a whole window, not the rest of its oldest key's.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if errors.Is(err, driver.ErrFull) && msg.DedupKey != "" {
				err = alterError(err, func(e *driver.Error) { e.RetryAfter = q.Traits().DedupWindow })
			}
			return sent, err
		})}},
	{Name: "forgets-keys-on-ack", Breaks: "DUP-3",
		What: "An ack frees the key of its message.",
		on:   hooks{send: translateKeys, ack: afterEach((*queue).Ack, (*queue).forgetKey)}},
	{Name: "forgets-keys-on-purge", Breaks: "DUP-3",
		What: "A purge frees all keys.",
		on: hooks{send: translateKeys, purge: func(q *queue, ctx context.Context) (int, error) {
			used := state[usedKeys](q)
			used.forget(used.keys()...)
			return q.Purge(ctx)
		}}},
	{Name: "forgets-keys-on-death", Breaks: "DUP-3",
		What: "A key is free once its message was dead-lettered.",
		on: hooks{send: translateKeys, deadLetter: afterEach((*queue).DeadLetter, func(q *queue, request driver.DeadLetterRequest) {
			q.forgetKey(request.Receipt)
		})}},
	{Name: "remembers-bodies-forever", Breaks: "DUP-3", Rare: true,
		What: "After the window a key can be used for its old body only.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			used := state[keyUses](q)
			if first, ok := used.get(msg.DedupKey); ok && !bytes.Equal(first.body, msg.Body) {
				return driver.Sent{}, &driver.Error{Code: driver.ErrConflict, Op: "send", Queue: q.name, MessageID: first.id, Field: "DedupKey"}
			}
			return q.sendAndRecord(ctx, msg, used)
		})}},
}

// A keyUse is a recorded dedup key.
type keyUse struct {
	queue string
	id    string
	body  []byte
	at    time.Time
}

type keyUses = table[string, keyUse]

// sendAndRecord sends a message and records its key.
func (q *queue) sendAndRecord(ctx context.Context, msg driver.Outgoing, used *keyUses) (driver.Sent, error) {
	at := time.Now()
	sent, err := q.sendOne(ctx, msg)
	if err == nil && msg.DedupKey != "" {
		used.put(msg.DedupKey, keyUse{q.name, sent.ID, slices.Clone(msg.Body), at})
	}
	return sent, err
}

// claimWindow returns the traits that the configuration asks for.
func claimWindow(q *queue) driver.Traits {
	traits := q.Traits()
	if window := q.config().DedupWindow; window > 0 {
		traits.DedupWindow = window
	}
	return traits
}
