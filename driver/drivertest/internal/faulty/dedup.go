package faulty

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var dedupFaults = []Saboteur{
	{
		Name: "forgets-no-dedup-keys", Breaks: "DUP-3",
		What: "ForgetDedup does nothing.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return forgets{q, func(context.Context) error { return nil }}
		}),
	},
	{
		Name: "purges-when-it-forgets-dedup-keys", Breaks: "DUP-3",
		What: "ForgetDedup purges the queue.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return forgets{q, func(ctx context.Context) error {
				_, err := q.Queue.Purge(ctx)
				return errors.Join(err, q.Queue.ForgetDedup(ctx))
			}}
		}),
	},
	{
		Name: "hides-duplicates", Breaks: "DUP-1",
		What: "A duplicate is not marked as one.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return hidesDuplicates{q} }),
	},
	{
		Name: "compares-attributes-too", Breaks: "DUP-1",
		What: "The same key and body with other attributes is another message.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return renamesKeys{q, func(msg driver.Outgoing) string { return fmt.Sprint(msg.DedupKey, msg.Attributes) }}
		}),
	},
	{
		Name: "keeps-keys-by-group", Breaks: "DUP-1", Rare: true,
		What: "The same key and body in another group is another message, as with a table per shard.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return renamesKeys{q, func(msg driver.Outgoing) string { return msg.Group + "\x00" + msg.DedupKey }}
		}),
	},
	{
		Name: "cuts-keys", Breaks: "DUP-1",
		What: "Only the first 64 bytes of a key count.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return renamesKeys{q, func(msg driver.Outgoing) string { return msg.DedupKey[:min(len(msg.DedupKey), 64)] }}
		}),
	},
	{
		Name: "folds-keys", Breaks: "DUP-1",
		What: "Keys that differ only in case are one key.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return renamesKeys{q, func(msg driver.Outgoing) string { return strings.ToLower(msg.DedupKey) }}
		}),
	},
	{
		Name: "keeps-keys-by-shard", Breaks: "DUP-1",
		What: "In a queue of several shards each shard has keys of its own.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return renamesKeys{q, func(msg driver.Outgoing) string {
				if q.config().Shards > 1 {
					return msg.Group + "\x00" + msg.DedupKey
				}
				return msg.DedupKey
			}}
		}),
	},
	{
		Name: "shares-keys-between-queues", Breaks: "DUP-1",
		What: "A key used in one queue is used in all.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return sharesKeys{q, stateOf[table[string, keyUse]](q.wrapper, "")} }),
	},
	{
		Name: "races-on-a-key", Breaks: "DUP-1",
		What: "A key is looked up and recorded in two steps, so that concurrent sends can all be first.",
		Wrap: perQueue(func(q passThrough, race *keyRace) driver.Queue { return racesOnKey{q, race} }),
	},
	{
		Name: "wants-room-for-duplicates", Breaks: "DUP-1",
		What: "A duplicate is refused when the queue is full.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return wantsRoom{q} }),
	},

	{
		Name: "ignores-another-body", Breaks: "DUP-2",
		What: "A used key with another body counts as a duplicate.",
		Wrap: perQueue(func(q passThrough, used *table[string, keyUse]) driver.Queue { return ignoresBody{q, used} }),
	},
	{
		Name: "forgets-conflicts-on-ack", Breaks: "DUP-2",
		What: "Once the message is acked, its key can be used for another body.",
		Wrap: perQueue(func(q passThrough, used *usedKeys) driver.Queue { return forgetsConflicts{freesKeys{q, used}} }),
	},

	{
		Name: "ends-the-window-early", Breaks: "DUP-3",
		What: "A key is free when nine tenths of the window have passed.",
		Wrap: changesConfigAndHides(func(config *driver.Config) { config.DedupWindow = config.DedupWindow * 9 / 10 },
			func(q passThrough) driver.Queue { return hidesWindow{q} }),
	},
	{
		Name: "ends-the-window-late", Breaks: "DUP-3",
		What: "A key is free when eleven tenths of the window have passed.",
		Wrap: changesConfigAndHides(func(config *driver.Config) { config.DedupWindow = config.DedupWindow * 11 / 10 },
			func(q passThrough) driver.Queue { return hidesWindow{q} }),
	},
	{
		Name: "extends-the-window-on-repeats", Breaks: "DUP-3",
		What: "Each duplicate restarts the window of its key.",
		Wrap: perQueue(func(q passThrough, used *table[string, keyUse]) driver.Queue { return extendsWindow{q, used} }),
	},
	{
		Name: "evicts-the-oldest-key", Breaks: "DUP-3",
		What: "A full dedup table evicts its oldest key to store a new one.",
		Wrap: func(inner driver.Opener) driver.Opener {
			b := newWrapper(inner)
			b.rewrite = func(config driver.Config) driver.Config { config.DedupMax = 0; return config }
			b.spoil = func(q passThrough) driver.Queue { return evictsOldest{freesKeys{q, stateOf[usedKeys](b, q.name)}} }
			return withAbilitiesOf(b, inner)
		},
	},
	{
		Name: "lets-keys-through-a-full-table", Breaks: "DUP-3",
		What: "When the dedup table is full, keyed messages are sent as if they had no key.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return letsKeysThrough{q} }),
	},
	{
		Name: "never-frees-places-in-the-table", Breaks: "DUP-3",
		What: "A key whose window is over still takes room in the dedup table.",
		Wrap: perQueue(func(q passThrough, used *table[string, keyUse]) driver.Queue { return neverFrees{q, used} }),
	},
	{
		Name: "hints-at-the-newest-key", Breaks: "DUP-3",
		What: "RetryAfter of a full dedup table is a whole window, not the rest of its oldest key's.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return hintsTooLate{q} }),
	},
	{
		Name: "forgets-keys-on-ack", Breaks: "DUP-3",
		What: "An ack frees the key of its message.",
		Wrap: perQueue(func(q passThrough, used *usedKeys) driver.Queue { return forgetsOnAck{freesKeys{q, used}} }),
	},
	{
		Name: "forgets-keys-on-purge", Breaks: "DUP-3",
		What: "A purge frees all keys.",
		Wrap: perQueue(func(q passThrough, used *usedKeys) driver.Queue { return forgetsOnPurge{freesKeys{q, used}} }),
	},
	{
		Name: "forgets-keys-on-death", Breaks: "DUP-3",
		What: "A key is free once its message was dead-lettered.",
		Wrap: perQueue(func(q passThrough, used *usedKeys) driver.Queue { return forgetsOnDeath{freesKeys{q, used}} }),
	},
	{
		Name: "remembers-bodies-forever", Breaks: "DUP-3", Rare: true,
		What: "After the window a key can be used for its old body only.",
		Wrap: perQueue(func(q passThrough, used *table[string, keyUse]) driver.Queue { return remembersBodies{q, used} }),
	},
}

// A keyUse is a recorded dedup key.
type keyUse struct {
	queue string
	id    string
	body  []byte
	at    time.Time
}

// renamesKeys replaces the dedup keys of messages.
type renamesKeys struct {
	passThrough
	rename func(driver.Outgoing) string
}

func (q renamesKeys) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	renamed := slices.Clone(msgs)
	for i, msg := range msgs {
		if msg.DedupKey != "" && len(msg.DedupKey) <= driver.MaxDedupKeyBytes {
			renamed[i].DedupKey = shortKey(q.rename(msg))
		}
	}
	return q.Queue.Send(ctx, renamed)
}

// shortKey returns a key that is not longer than allowed.
func shortKey(key string) string {
	if len(key) <= driver.MaxDedupKeyBytes {
		return key
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

type hidesDuplicates struct{ passThrough }

func (q hidesDuplicates) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		sent[i].Duplicate = false
	}
	return sent, err
}

type sharesKeys struct {
	passThrough
	used *table[string, keyUse]
}

func (q sharesKeys) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if first, ok := q.used.get(msg.DedupKey); ok && first.queue != q.name && bytes.Equal(first.body, msg.Body) {
			return driver.Sent{ID: first.id, Duplicate: true}, nil
		}
		sent, err := q.sendOne(ctx, msg)
		if err == nil && msg.DedupKey != "" {
			q.used.put(msg.DedupKey, keyUse{queue: q.name, id: sent.ID, body: bytes.Clone(msg.Body)})
		}
		return sent, err
	})
}

// A keyRace makes concurrent sends with one key all succeed.
type keyRace struct {
	mu      sync.Mutex // guards the fields below
	sending map[string]int
	salt    int
}

// enter returns the key to use: a unique one while other sends use the same.
func (r *keyRace) enter(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sending == nil {
		r.sending = make(map[string]int)
	}
	r.sending[key]++
	if r.sending[key] == 1 {
		return key
	}
	r.salt++
	return shortKey(fmt.Sprintf("%s %d", key, r.salt))
}

func (r *keyRace) leave(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sending[key]--
}

type racesOnKey struct {
	passThrough
	*keyRace
}

func (q racesOnKey) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if key := msg.DedupKey; key != "" && len(key) <= driver.MaxDedupKeyBytes {
			msg.DedupKey = q.enter(key)
			defer q.leave(key)
			yieldToOthers()
		}
		return q.sendOne(ctx, msg)
	})
}

type wantsRoom struct{ passThrough }

func (q wantsRoom) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		limit := q.config().MaxMessages
		if stats, err := q.Queue.Stats(ctx); err == nil && limit > 0 && stats.Waiting() >= limit {
			return driver.Sent{}, q.full()
		}
		return q.sendOne(ctx, msg)
	})
}

type ignoresBody struct {
	passThrough
	used *table[string, keyUse]
}

func (q ignoresBody) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if first, ok := q.used.get(msg.DedupKey); ok && errors.Is(err, driver.ErrConflict) {
			return driver.Sent{ID: first.id, Duplicate: true}, nil
		}
		if err == nil {
			q.used.put(msg.DedupKey, keyUse{id: sent.ID})
		}
		return sent, err
	})
}

type hidesWindow struct{ passThrough }

func (q hidesWindow) Traits() driver.Traits {
	traits := q.Queue.Traits()
	if window := q.config().DedupWindow; window > 0 {
		traits.DedupWindow = window
	}
	return traits
}

type extendsWindow struct {
	passThrough
	used *table[string, keyUse]
}

func (q extendsWindow) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if msg.DedupKey == "" {
			return q.sendOne(ctx, msg)
		}
		now := time.Now()
		last, ok := q.used.get(msg.DedupKey)
		if ok && bytes.Equal(last.body, msg.Body) && now.Before(last.at.Add(q.Traits().DedupWindow)) {
			q.used.put(msg.DedupKey, keyUse{id: last.id, body: last.body, at: now})
			return driver.Sent{ID: last.id, Duplicate: true}, nil
		}
		sent, err := q.sendOne(ctx, msg)
		if err == nil {
			q.used.put(msg.DedupKey, keyUse{id: sent.ID, body: bytes.Clone(msg.Body), at: now})
		}
		return sent, err
	})
}

type letsKeysThrough struct{ passThrough }

func (q letsKeysThrough) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if errors.Is(err, driver.ErrFull) && msg.DedupKey != "" {
			msg.DedupKey = ""
			return q.sendOne(ctx, msg)
		}
		return sent, err
	})
}

type hintsTooLate struct{ passThrough }

func (q hintsTooLate) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if detail, ok := errors.AsType[*driver.Error](err); ok && detail.Code == driver.ErrFull && msg.DedupKey != "" {
			late := *detail
			late.RetryAfter = q.Traits().DedupWindow
			err = &late
		}
		return sent, err
	})
}

type remembersBodies struct {
	passThrough
	used *table[string, keyUse]
}

func (q remembersBodies) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if first, ok := q.used.get(msg.DedupKey); ok && !bytes.Equal(first.body, msg.Body) {
			return driver.Sent{}, &driver.Error{Code: driver.ErrConflict, Op: "send", Queue: q.name, MessageID: first.id, Field: "DedupKey"}
		}
		sent, err := q.sendOne(ctx, msg)
		if err == nil && msg.DedupKey != "" {
			q.used.put(msg.DedupKey, keyUse{id: sent.ID, body: bytes.Clone(msg.Body)})
		}
		return sent, err
	})
}

type neverFrees struct {
	passThrough
	used *table[string, keyUse]
}

func (q neverFrees) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		_, known := q.used.get(msg.DedupKey)
		if limit := q.config().DedupMax; limit > 0 && msg.DedupKey != "" && !known && len(q.used.keys()) >= limit {
			return driver.Sent{}, q.full()
		}
		sent, err := q.sendOne(ctx, msg)
		if err == nil && msg.DedupKey != "" {
			q.used.put(msg.DedupKey, keyUse{id: sent.ID})
		}
		return sent, err
	})
}

// forgets replaces ForgetDedup.
type forgets struct {
	passThrough
	forget func(context.Context) error
}

func (q forgets) ForgetDedup(ctx context.Context) error { return q.forget(ctx) }
