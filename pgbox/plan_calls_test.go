package pgbox

import (
	"context"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// operate makes every call on a queue that runs a function.
func operate(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	send := func(msgs ...driver.Outgoing) []driver.Sent {
		sent, err := q.Send(ctx, msgs)
		ok(t, err)
		return sent
	}
	take := func() driver.Delivery {
		_, got := receiveBodies(t, q, 1)
		return got[0]
	}
	send(outgoing("a", "b", "c", "d", "e", "f", "g", "h")...)
	send(driver.Outgoing{Body: []byte("keyed"), DedupKey: "key", Group: "group"}, driver.Outgoing{Body: []byte("late"), Delay: time.Hour})
	for range 2 {
		ok(t, q.Nack(ctx, []driver.Nack{{Receipt: take().Receipt}}))
	}
	held := take()
	_, err = q.Extend(ctx, []driver.Extension{{Receipt: held.Receipt, Visibility: hold}})
	ok(t, err)
	ok(t, q.Ack(ctx, []driver.Receipt{held.Receipt}))
	ok(t, q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: take().Receipt, Reason: driver.ReasonFatal}}))
	_, err = q.Redrive(ctx, nil, 0)
	ok(t, err)
	dead := take()
	ok(t, q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: dead.Receipt, Reason: driver.ReasonFatal}}))
	_, err = q.Discard(ctx, []string{dead.ID})
	ok(t, err)
	_, err = q.Usage(ctx)
	ok(t, err)
	_, err = q.Edit(ctx, send(driver.Outgoing{Body: []byte("edited")})[0].ID, driver.Edit{DeliverAt: time.Now().Add(time.Hour)})
	ok(t, err)
	_, _, err = q.Fire(ctx, driver.Firing{Name: "hourly", Definition: []byte("d"), Messages: []driver.DueMessage{{Outgoing: driver.Outgoing{Body: []byte("due")}}}})
	ok(t, err)
	for _, err := range q.Schedules(ctx, "") {
		ok(t, err)
	}
	operateInTx(t, b, q)
	ok(t, b.ConfigureQueue(ctx, "target", driver.Config{}))
	_, err = q.Move(ctx, "target", 0)
	ok(t, err)
	_, err = q.Purge(ctx)
	ok(t, err)
	_, err = q.PurgeDead(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnShortWays makes the calls of a queue without rules of which all that is ready was never delivered.
func operateOnShortWays(t *testing.T, b *Backend, name string) {
	t.Helper()
	q, err := b.OpenQueue(t.Context(), name)
	ok(t, err)
	lookOnce(t, q)
	_, err = q.Send(t.Context(), outgoing("a", "b"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, got[1].Receipt}))
	_, err = q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Millisecond})
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLateCalls lets leases and lives end, and extends what was delivered then.
func operateOnLateCalls(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	ok(t, b.ConfigureQueue(ctx, name, driver.Config{FairGroups: true, MaxDeliveries: 2, MaxDead: 1, MaxInFlight: 10}))
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	ok(t, q.Pause(ctx))
	ok(t, q.Resume(ctx))
	takeFor := func(lease time.Duration) []driver.Delivery {
		t.Helper()
		got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: lease, Wait: time.Minute})
		ok(t, err)
		return got
	}
	_, err = q.Send(ctx, outgoing("late"))
	ok(t, err)
	late := takeFor(time.Microsecond)[0].Receipt
	_, err = q.Stats(ctx)
	ok(t, err)
	ok(t, q.ExtendLate(ctx, []driver.Extension{{Receipt: late, Visibility: time.Microsecond}}))
	_, err = q.Send(ctx, outgoing("left"))
	ok(t, err)
	q.(*handle).undo(ctx, takeFor(hold))
	takeFor(time.Microsecond)
	_, err = q.Stats(ctx) // both deliveries are over
	ok(t, err)
	_, err = q.Purge(ctx)
	ok(t, err)
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("short"), TTL: time.Second}})
	ok(t, err)
	short := takeFor(hold)[0].Receipt
	for expires := time.Now().Add(time.Second); time.Now().Before(expires); { // its life ends during its lease
		_, err = q.Stats(ctx)
		ok(t, err)
	}
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: short}}))
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("stays"), TTL: time.Microsecond}}) // there is a dead letter
	ok(t, err)
	_, err = q.Stats(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLives sends a message with a time to live, and makes the calls that look for its end.
func operateOnLives(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("short"), TTL: time.Microsecond}, {Body: []byte("long"), TTL: time.Hour}})
	ok(t, err)
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
	ok(t, err)
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt, Delay: time.Minute}}))
	_, err = q.Usage(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLimits makes the calls that look for limits of groups.
func operateOnLimits(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	sendTo(t, q, "group", "a", "b")
	ok(t, q.Throttle(ctx, "group", 10*time.Millisecond))
	_, err = q.Stats(ctx)
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt, Mode: driver.NackRelease}}))
	ok(t, b.ConfigureQueue(ctx, name, driver.Config{FairGroups: true, GroupLimits: "rate=1"}))
	ok(t, q.Throttle(ctx, "group", time.Minute))
	_, err = q.Purge(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLevels makes the calls that look for messages with priorities.
func operateOnLevels(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	sent, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("high"), Priority: 9}, {Body: []byte("low"), Priority: 1}, {Body: []byte("plain")}})
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt}}))
	_, err = q.Edit(ctx, sent[2].ID, driver.Edit{Prioritize: true, Priority: 5})
	ok(t, err)
	for _, err := range q.Peek(ctx, driver.Query{}) {
		ok(t, err)
	}
	_, err = q.Usage(ctx)
	ok(t, err)
	_, err = q.Move(ctx, "target", 0)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnKeys makes the calls that look for messages with unique keys.
func operateOnKeys(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	_, err = q.Purge(ctx)
	ok(t, err)
	sendOne(t, q, unique("k", "first"))
	sendOne(t, q, replacing("k", "replaces"))
	target, err := b.OpenQueue(ctx, "target")
	ok(t, err)
	_, err = target.Purge(ctx)
	ok(t, err)
	sendOne(t, target, unique("k", "holds"))
	deadLetter(t, target)
	holder := sendOne(t, target, unique("k", "holds again")).ID
	_, err = target.Redrive(ctx, nil, 0)
	wantHolder(t, err, holder)
	_, err = q.Move(ctx, "target", 0)
	wantHolder(t, err, holder)
	deadLetter(t, q)
	tx := begin(t, b)
	_, err = q.Send(InTx(ctx, tx), []driver.Outgoing{unique("k", "a"), replacing("k", "b")})
	ok(t, err)
	ok(t, tx.Commit(ctx))
	collect(t, q)
	ok(t, target.Close())
	ok(t, q.Close())
}

// operateReplies makes every call of a reply store.
func operateReplies(t *testing.T, r driver.ReplyStore) {
	t.Helper()
	ctx := t.Context()
	for _, id := range []string{"one", "two"} {
		ok(t, r.Create(ctx, id, time.Hour))
	}
	ok(t, r.Resolve(ctx, "one", driver.Answer{Body: []byte("answer")}))
	ok(t, r.Cancel(ctx, "two"))
	if r.Resolve(ctx, "unknown", driver.Answer{}) == nil {
		t.Error("an unknown slot could be answered")
	}
	_, err := r.Get(ctx, "one")
	ok(t, err)
	_, err = r.Consume(ctx, "one")
	ok(t, err)
	ok(t, r.Delete(ctx, "two"))
	_, err = r.Expired(ctx, 10)
	ok(t, err)
	_, err = r.Sweep(ctx, 10)
	ok(t, err)
	for _, err := range r.(driver.SlotLister).Slots(ctx) {
		ok(t, err)
	}
}

// operateInTx makes the calls that can be part of a transaction, and lets another move what they
// have done.
func operateInTx(t *testing.T, b *Backend, q driver.Queue) {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: hold})
	ok(t, err)
	tx := begin(t, b)
	ctx := InTx(t.Context(), tx)
	_, err = q.Send(ctx, outgoing("in a transaction"))
	ok(t, err)
	for i, d := range got {
		if i == 0 {
			ok(t, q.Ack(ctx, []driver.Receipt{d.Receipt}))
		} else {
			ok(t, q.Nack(ctx, []driver.Nack{{Receipt: d.Receipt}}))
		}
	}
	ok(t, tx.Commit(context.WithoutCancel(ctx)))
	last, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: hold, Wait: time.Minute})
	ok(t, err)
	if len(last) == 0 {
		t.Fatal("received nothing")
	}
}
