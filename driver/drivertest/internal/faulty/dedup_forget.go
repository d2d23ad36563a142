package faulty

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// usedKeys can make the wrapped queue forget a key, by replacing it with another from then on.
type usedKeys struct {
	mu       sync.Mutex // guards the fields below
	instead  map[string]string
	messages map[string]string // keys by message id
	inOrder  []string

	delivered table[driver.Receipt, string] // message ids
}

func (u *usedKeys) translate(key string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if other, ok := u.instead[key]; ok {
		return other
	}
	return key
}

func (u *usedKeys) note(key, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.messages == nil {
		u.messages, u.instead = make(map[string]string), make(map[string]string)
	}
	u.messages[id] = key
	u.inOrder = append(u.inOrder, key)
}

// forget frees the given keys, or all keys if none is given.
func (u *usedKeys) forget(keys ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(keys) == 0 {
		keys = slices.Clone(u.inOrder)
	}
	for _, key := range keys {
		u.instead[key] = shortKey(fmt.Sprint("again ", u.instead[key], key))
		u.inOrder = slices.DeleteFunc(u.inOrder, func(other string) bool { return other == key })
	}
}

// forgetDelivered frees the dedup key of a delivered message, if it has one.
func (u *usedKeys) forgetDelivered(receipt driver.Receipt) {
	id, _ := u.delivered.get(receipt)
	u.mu.Lock()
	key, ok := u.messages[id]
	u.mu.Unlock()
	if ok {
		u.forget(key)
	}
}

// freesKeys records keys for saboteurs that free them too early.
type freesKeys struct {
	passThrough
	used *usedKeys
}

func (q freesKeys) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		key := msg.DedupKey
		msg.DedupKey = q.used.translate(key)
		sent, err := q.sendOne(ctx, msg)
		if err == nil && key != "" && !sent.Duplicate {
			q.used.note(key, sent.ID)
		}
		return sent, err
	})
}

func (q freesKeys) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.used.delivered.put(d.Receipt, d.ID)
	}
	return got, err
}

type evictsOldest struct{ freesKeys }

func (q evictsOldest) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.freesKeys.Send(ctx, []driver.Outgoing{msg})
		if len(sent) == 0 {
			return driver.Sent{}, err
		}
		q.used.mu.Lock()
		inOrder, limit := slices.Clone(q.used.inOrder), q.config().DedupMax
		q.used.mu.Unlock()
		if limit > 0 && len(inOrder) > limit {
			q.used.forget(inOrder[0])
		}
		return sent[0], err
	})
}

type forgetsOnAck struct{ freesKeys }

func (q forgetsOnAck) Ack(ctx context.Context, acked []driver.Receipt) error {
	err := q.freesKeys.Ack(ctx, acked)
	for i, receipt := range acked {
		if driver.At(err, i) == nil {
			q.used.forgetDelivered(receipt)
		}
	}
	return err
}

type forgetsConflicts struct{ freesKeys }

func (q forgetsConflicts) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.freesKeys.Send(ctx, []driver.Outgoing{msg})
		stats, _ := q.Queue.Stats(ctx)
		if errors.Is(err, driver.ErrConflict) && stats == (driver.Stats{}) { // its message is gone
			q.used.forget(msg.DedupKey)
			sent, err = q.freesKeys.Send(ctx, []driver.Outgoing{msg})
		}
		if len(sent) == 0 {
			return driver.Sent{}, err
		}
		return sent[0], err
	})
}

type forgetsOnPurge struct{ freesKeys }

func (q forgetsOnPurge) Purge(ctx context.Context) (int, error) {
	q.used.forget()
	return q.freesKeys.Purge(ctx)
}

type forgetsOnDeath struct{ freesKeys }

func (q forgetsOnDeath) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	err := q.freesKeys.DeadLetter(ctx, requests)
	for i, request := range requests {
		if driver.At(err, i) == nil {
			q.used.forgetDelivered(request.Receipt)
		}
	}
	return err
}
