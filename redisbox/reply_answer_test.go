package redisbox

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// answerDesk is a worker that answers and acks in one step, and a client in another process.
type answerDesk struct {
	worker, client *replyStore
	queue          *handle // of the worker
	proxy          *redistest.Proxy
	asked          int
}

func newAnswerDesk(t *testing.T) *answerDesk {
	t.Helper()
	d := &answerDesk{}
	d.worker, d.client, d.proxy = desks(t)
	d.queue = openQueue(t, d.worker.backend)
	send(t, d.queue, "the scripts are loaded")
	if _, err := d.queue.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// ask sends a request and receives it.
func (d *answerDesk) ask(t *testing.T) (id string, got driver.Delivery) {
	t.Helper()
	d.asked++
	id = fmt.Sprint("request ", d.asked)
	mustRequest(t, openQueue(t, d.client.backend), d.client, id)
	return id, receive(t, d.queue, 1, hold)[0]
}

// answer answers and acks.
func (d *answerDesk) answer(t *testing.T, id string, receipt driver.Receipt, body string) (slotErr, ackErr error) {
	t.Helper()
	acking, stored, err := d.worker.ResolveWithAck(t.Context(), id, answerOf(body))
	if err != nil {
		return err, nil
	}
	ackErr = d.queue.Ack(acking, []driver.Receipt{receipt})
	return stored(), ackErr
}

// TestAnswerAndAckTakeOneScript (RPL-3): the answer is there, the request is not, and the caller that waits is woken.
func TestAnswerAndAckTakeOneScript(t *testing.T) {
	d := newAnswerDesk(t)
	eventually(t, "answer and ack are one script", func() bool {
		id, m := d.ask(t)
		woken := make(chan error, 1)
		go func() {
			slot, err := d.client.Wait(t.Context(), id, soon)
			if err == nil && string(slot.Answer.Body) != "yes" {
				err = fmt.Errorf("got %+v", slot)
			}
			woken <- err
		}()
		scripts := countScripts(d.proxy)
		slotErr, ackErr := d.answer(t, id, m.Receipt, "yes")
		n := scripts() // more if the shard watcher looks meanwhile
		if slotErr != nil || ackErr != nil {
			t.Fatal(slotErr, ackErr)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		wantStats(t, d.queue, driver.Stats{})
		return n == 1
	})
}

// TestSlotThatAcceptsNoAnswerIsAcked (RPL-2).
func TestSlotThatAcceptsNoAnswerIsAcked(t *testing.T) {
	d := newAnswerDesk(t)
	ctx := t.Context()
	for want, prepare := range map[driver.Code]func(id string) error{
		driver.ErrReplyAlreadySent: func(id string) error { return d.client.Resolve(ctx, id, answerOf("first")) },
		driver.ErrReplyCancelled:   func(id string) error { return d.client.Cancel(ctx, id) },
		driver.ErrNotFound:         func(id string) error { return d.client.Delete(ctx, id) },
	} {
		id, m := d.ask(t)
		if err := prepare(id); err != nil {
			t.Fatal(err)
		}
		slotErr, ackErr := d.answer(t, id, m.Receipt, "second")
		if wantCode(t, slotErr, want); ackErr != nil {
			t.Errorf("%s: ack: %v", want, ackErr)
		}
		wantStats(t, d.queue, driver.Stats{})
		if slot, _ := d.client.Get(ctx, id); want == driver.ErrReplyAlreadySent && string(slot.Answer.Body) != "first" {
			t.Errorf("the slot was written twice: %+v", slot)
		}
	}
	if err := sendRequest(t, d.queue, d.client, "short", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	m := receive(t, d.queue, 1, hold)[0]
	eventually(t, "the slot has expired", func() bool {
		slot, err := d.client.Get(ctx, "short")
		return err == nil && slot.State == driver.SlotExpired
	})
	slotErr, ackErr := d.answer(t, "short", m.Receipt, "late")
	if wantCode(t, slotErr, driver.ErrReplyExpired); ackErr != nil {
		t.Errorf("expired: ack: %v", ackErr)
	}
}

// TestAnswerIsStoredWithoutAck: the lease is over, the receipt is not one, the ack was never sent.
func TestAnswerIsStoredWithoutAck(t *testing.T) {
	d := newAnswerDesk(t)
	gone, m := d.ask(t)
	if err := d.queue.Ack(t.Context(), []driver.Receipt{m.Receipt}); err != nil {
		t.Fatal(err)
	}
	foreign, _ := d.ask(t)
	for id, receipt := range map[string]driver.Receipt{gone: m.Receipt, foreign: {Handle: "none"}} {
		slotErr, ackErr := d.answer(t, id, receipt, "yes")
		if wantCode(t, driver.At(ackErr, 0), driver.ErrReceiptExpired); slotErr != nil {
			t.Errorf("%s: %v", id, slotErr)
		}
		wantAnswer(t, d.client, id, "yes")
	}
	unsent, _ := d.ask(t)
	_, stored, err := d.worker.ResolveWithAck(t.Context(), unsent, answerOf("yes"))
	if err == nil {
		err = stored()
	}
	if err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, d.client, unsent, "yes")
}

// TestLostAnswerStoresAndAcksOnce: the call is repeated, and says what the first one did.
func TestLostAnswerStoresAndAcksOnce(t *testing.T) {
	d := newAnswerDesk(t)
	id, m := d.ask(t)
	var cut atomic.Bool
	d.proxy.OnRequest(func(args []string) redistest.Action {
		if args[0] == "EVALSHA" && args[1] == shard.BatchFullScript.Sha && cut.CompareAndSwap(false, true) {
			return redistest.CutAnswerAt(0)
		}
		return redistest.Pass
	})
	slotErr, ackErr := d.answer(t, id, m.Receipt, "yes")
	if slotErr != nil || ackErr != nil || !cut.Load() {
		t.Errorf("got %v, %v; an answer was lost: %t", slotErr, ackErr, cut.Load())
	}
	wantAnswer(t, d.client, id, "yes")
	wantStats(t, d.queue, driver.Stats{})
}

// TestAnswerOfBucketWithOtherServerIsStoredFirst: its time is not known to the script of the ack.
func TestAnswerOfBucketWithOtherServerIsStoredFirst(t *testing.T) {
	d := newAnswerDesk(t)
	id, m := d.ask(t)
	client, meta := d.client.backend.server.Client, d.client.bucket(id).Key("meta")
	if err := client.Do(t.Context(), client.B().Hset().Key(meta).FieldValue().FieldValue("run", "another").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	scripts := countScripts(d.proxy)
	slotErr, ackErr := d.answer(t, id, m.Receipt, "yes")
	if n := scripts(); slotErr != nil || ackErr != nil || n < 3 {
		t.Errorf("got %v, %v after %d scripts, want 3 or more", slotErr, ackErr, n)
	}
	wantAnswer(t, d.client, id, "yes")
	wantStats(t, d.queue, driver.Stats{})
}
