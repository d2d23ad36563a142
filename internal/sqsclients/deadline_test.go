package sqsclients_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// An ackRecord is what consumers know of messages, by their bodies.
type ackRecord struct {
	mu        sync.Mutex
	delivered map[string]int
	acked     map[string]time.Time // time of the confirmed ack
	unknown   map[string]bool      // an ack was neither confirmed nor refused
	wrong     []string
}

// received records the deliveries of a call that was made at a time.
func (b *ackRecord) received(asked time.Time, deliveries []driver.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range deliveries {
		body := string(deliveries[i].Body)
		b.delivered[body]++
		if at, ok := b.acked[body]; ok && at.Before(asked) {
			b.wrong = append(b.wrong, body+" was acked and came back")
		}
	}
}

// answered records the results of a batch of acks.
func (b *ackRecord) answered(deliveries []driver.Delivery, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range deliveries {
		body := string(deliveries[i].Body)
		switch failure := driver.At(err, i); {
		case failure == nil:
			b.acked[body] = time.Now()
		case errors.Is(failure, driver.ErrReceiptExpired):
		case errors.Is(failure, driver.ErrUnavailable):
			b.unknown[body] = true
		default:
			b.wrong = append(b.wrong, fmt.Sprintf("%s: an ack is answered with %v", body, failure))
		}
	}
}

// owed counts the messages that must come again: those without an ack, or whose acks were
// all refused.
func (b *ackRecord) owed(messages int) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range messages {
		body := fmt.Sprint(i)
		if _, done := b.acked[body]; !done && !b.unknown[body] {
			n++
		}
	}
	return n
}

// brinkAck receives for a second and acks at the moment in which the lease ends.
func (b *ackRecord) brinkAck(ctx context.Context, q driver.Queue) error {
	asked := time.Now()
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 10, Visibility: time.Second, Wait: time.Second})
	if err != nil {
		return err
	}
	end := time.Now().Add(time.Second)
	b.received(asked, got)
	var acks sync.WaitGroup
	for i := range got {
		acks.Go(func() {
			time.Sleep(time.Until(end.Add(rand.N(12*time.Millisecond) - 10*time.Millisecond)))
			b.answered(got[i:i+1], q.Ack(ctx, []driver.Receipt{got[i].Receipt}))
		})
	}
	acks.Wait()
	return nil
}

// plainAck receives with a long visibility and acks at once.
func (b *ackRecord) plainAck(ctx context.Context, q driver.Queue) error {
	asked := time.Now()
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 10, Visibility: time.Minute, Wait: time.Second})
	if err != nil || len(got) == 0 {
		return err
	}
	b.received(asked, got)
	receipts := make([]driver.Receipt, len(got))
	for i := range got {
		receipts[i] = got[i].Receipt
	}
	b.answered(got, q.Ack(ctx, receipts))
	return nil
}

// The result of an ack at its deadline is open. But a confirmed ack is done, and a
// message all of whose acks were refused comes again; a FIFO queue confirms or refuses
// every ack. VIS-6 is stricter, and does not hold for standard queues of SQS: see edge.
func TestNoAckAtItsDeadlineLosesAMessage(t *testing.T) {
	for _, backend := range []string{"memory", "disk", "redis"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			var args []string
			switch backend {
			case "memory":
				args = append(args, "--backend=memory:")
			case "redis":
				args = append(args, "--backend=redis://"+redistest.SharedServer(t).Addr())
			}
			d := start(t, args...)
			for _, kind := range []string{"standard", "fifo"} {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					ackAtTheBrink(t, openSite(t, d, sqstest.Prefix()), kind == "fifo")
				})
			}
		})
	}
}

func ackAtTheBrink(t *testing.T, backend *site, fifo bool) {
	messages, ctx := volume.Count(t, 300, 3000), t.Context()
	if err := backend.ConfigureQueue(ctx, "brink", driver.Config{StrictGroups: fifo}); err != nil {
		t.Fatal(err)
	}
	q, err := backend.OpenQueue(ctx, "brink")
	if err != nil {
		t.Fatal(err)
	}
	outgoing := make([]driver.Outgoing, messages)
	for i := range outgoing {
		outgoing[i] = driver.Outgoing{Body: []byte(fmt.Sprint(i)), Group: fmt.Sprint("group ", i)}
	}
	if _, err := q.Send(ctx, outgoing); err != nil {
		t.Fatal(err)
	}
	book := &ackRecord{delivered: make(map[string]int), acked: make(map[string]time.Time), unknown: make(map[string]bool)}
	brink, patience := time.Now().Add(4*time.Second), time.Now().Add(2*time.Minute)
	errs := make([]error, 16)
	var workers sync.WaitGroup
	for i := range errs {
		workers.Go(func() {
			for errs[i] == nil && time.Now().Before(brink) {
				errs[i] = book.brinkAck(ctx, q)
			}
			for errs[i] == nil && book.owed(messages) > 0 && time.Now().Before(patience) {
				errs[i] = book.plainAck(ctx, q)
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	book.judge(t, messages, fifo)
}

func (b *ackRecord) judge(t *testing.T, messages int, fifo bool) {
	for _, wrong := range b.wrong {
		t.Error(wrong)
	}
	if n := b.owed(messages); n > 0 {
		t.Errorf("%d messages are missing, though every ack of them was refused", n)
	}
	if fifo && len(b.unknown) > 0 {
		t.Errorf("%d acks have no answer", len(b.unknown))
	}
	deliveries, gone := 0, 0
	for body, n := range b.delivered {
		deliveries += n
		if _, acked := b.acked[body]; !acked && b.unknown[body] {
			gone++
		}
	}
	t.Logf("%d messages, %d deliveries, %d confirmed acks; of %d without an answer %d did not come again",
		messages, deliveries, len(b.acked), len(b.unknown), gone)
}
