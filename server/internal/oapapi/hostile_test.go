package oapapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// The tests in this file are about clients that mean no good.

func TestAnExpiredCapabilityStartsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		token := mint(t, ring, capability.ExpiresAt(time.Now().Add(time.Hour)))
		d := newDaemonWith(t, membox.New(nil), oapapi.Options{IdleTimeout: 24 * time.Hour}, ring, token)
		defer d.stop(t)
		early := dialRaw(t, d)
		early.start()
		time.Sleep(time.Hour)
		early.send(requestHeader(oap.OpPing, 7), nil, nil)
		if f := early.mustNext(); f.Code != oap.StatusUnauthenticated {
			t.Errorf("PING on a connection whose token has expired since: status %d", f.Code)
		}
		late := dialRaw(t, d)
		late.send(startHeader(), late.token, startPayload)
		f := late.mustNext()
		if e, err := oap.ParseError(f.Payload); f.Code != oap.StatusUnauthenticated || err != nil || !errors.Is(e, driver.ErrUnauthenticated) {
			t.Errorf("START with an expired token: status %d, %v, %v", f.Code, e, err)
		}
		if _, err := late.next(); !errors.Is(err, io.EOF) {
			t.Errorf("then got %v, want the end of the connection", err)
		}
	})
}

func TestABatchThatIsTooLongIsRefusedAndNothingOfItIsDone(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		const many = 500_000 // an answer to each of them would not fit in a frame
		payload := oap.AppendSend(nil, target, many)
		for range many {
			payload = oap.AppendOutgoing(payload, &driver.Outgoing{})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.send(requestHeader(oap.OpSend, 2), nil, payload)
		f := r.mustNext()
		runtime.ReadMemStats(&after)
		if f.Code != oap.StatusTooLarge || f.Correlation != 2 {
			t.Errorf("status %d", f.Code)
		}
		if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > 16 {
			t.Errorf("it cost %d MiB to refuse %d KiB", spent, len(payload)>>10)
		}
		for i, code := range []uint16{oap.OpAck, oap.OpNack, oap.OpExtend, oap.OpDeadLetter} {
			receipts := make([]driver.Receipt, 1000)
			payload := oap.AppendAck(nil, target, receipts) // it does not get so far as to matter
			r.send(requestHeader(code, uint64(3+i)), nil, payload)
			if f := r.mustNext(); f.Code != oap.StatusTooLarge {
				t.Errorf("%#x of a thousand: status %d", code, f.Code)
			}
		}
		r.send(requestHeader(oap.OpStats, 9), nil, oap.AppendTarget(nil, target))
		if stats, err := oap.ParseStats(r.mustNext().Payload); err != nil || stats != (driver.Stats{}) {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

// TestTheLongestAnswersFitInAFrame holds the largest batch against the largest
// frame: every element fails, and as wordily as an error can.
func TestTheLongestAnswersFitInAFrame(t *testing.T) {
	words := strings.Repeat("x", 10_000) // more than is kept of them
	errs := make([]error, driver.DefaultMaxBatch)
	for i := range errs {
		errs[i] = &driver.Error{Code: driver.ErrInvalid, Op: words, Queue: words, MessageID: words, Field: words, Detail: words, RetryAfter: time.Hour}
	}
	if n := len(oap.AppendSent(nil, make([]driver.Sent, len(errs)), errs)); n > oap.MaxFrameBytes-oap.HeaderBytes {
		t.Errorf("the answer to a send has %d bytes", n)
	}
	if n := len(oap.AppendFailures(nil, errs)); n > oap.MaxFrameBytes-oap.HeaderBytes {
		t.Errorf("the answer to a settlement has %d bytes", n)
	}
}

func TestOpenQueuesOfTokenLeaveOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		ring := keyring.New(keyring.NewKey())
		d := newDaemonWith(t, backend, oapapi.Options{MaxQueues: 80}, ring, mint(t, ring))
		defer d.stop(t)
		fill := func(client *remotebox.Backend) (opened int, refusal error) {
			for ; opened <= 80; opened++ {
				name := fmt.Sprintf("q%d", opened)
				if _, err := client.OpenQueue(t.Context(), name); err != nil {
					return opened, err
				}
			}
			return opened, nil
		}
		connection := &moving{daemon: d}
		hostile := remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: connection.dial})
		defer hostile.Close()
		victim := remotebox.New([]string{"pipe"}, mint(t, ring), &remotebox.Options{Dial: d.pipe})
		defer victim.Close()
		opened, refusal := fill(hostile)
		if opened > 70 || !errors.Is(refusal, driver.ErrFull) || !strings.Contains(fmt.Sprint(refusal), "open queues share of") {
			t.Errorf("one token alone opened %d of 80, and then: %v", opened, refusal)
		}
		q, err := victim.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatalf("another token: %v", err)
		}
		for range 100 {
			_ = q.Close()
			if q, err = victim.OpenQueue(t.Context(), "orders"); err != nil {
				t.Fatalf("a queue that was closed takes room: %v", err)
			}
		}
		_ = connection.nc.Close() // without closing its queues
		synctest.Wait()
		<-time.After(time.Minute) // the other token counts as active for a while
		if again, _ := fill(victim); again < opened/2 {
			t.Errorf("after the connection closed there is room for %d", again)
		}
	})
}

// durable is a queue that says that it is on disk, so that sends to it wait in a lane.
type durable struct{ driver.Queue }

func (q durable) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Durability = driver.DurabilityDisk
	return traits
}

// slowDisk is a backend of durable queues.
type slowDisk struct{ slow }

func (o slowDisk) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := o.slow.OpenQueue(ctx, name)
	return durable{q}, err
}

// TestRequestsOfGoneClientsAreBounded has a hundred clients send a hundred messages
// each to a backend that stands still, and go. Requests that wait are done for a few of
// them only; the others are done when their client comes back and repeats them.
func TestRequestsOfGoneClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, messages = 100, 100
		moves := make(chan struct{})
		d := newDaemon(t, slowDisk{slow{membox.New(nil), func() { <-moves }}}, oapapi.Options{})
		defer d.stop(t)
		d.make(t, "one")
		d.make(t, "two")
		type opened struct {
			*raw
			handles []uint32 // by turns: each send is a call of its own
		}
		open := func(client int) opened {
			r := dialRaw(t, d)
			r.startAs([16]byte{byte(client), 1})
			return opened{r, []uint32{r.open("one"), r.open("two")}}
		}
		send := func(r opened) {
			for n := uint64(1); n <= messages; n++ {
				target := oap.Target{Ticket: oap.Ticket{Sequence: n, Behind: n - 1}, Handle: r.handles[n%2]}
				r.send(requestHeader(oap.OpSend, 10+n), nil, oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{}))
			}
			<-r.written
		}
		sent := func() (total int) {
			for _, name := range []string{"one", "two"} {
				q, err := d.backend.OpenQueue(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				stats, err := q.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				total += stats.Ready
			}
			return total
		}
		all := make([]opened, clients)
		for client := range all { // before sends take all turns
			all[client] = open(client)
		}
		for _, r := range all {
			send(r)
			_ = r.net.Close()
			synctest.Wait()
		}
		close(moves)
		synctest.Wait()
		before := sent()
		if before > clients*messages/2 || before == 0 {
			t.Errorf("%d of %d messages were sent for clients that are gone", before, clients*messages)
		}
		again := open(clients - 1)
		send(again)
		for range messages {
			if f := again.mustNext(); f.Code != oap.StatusOK {
				t.Fatalf("a repeat: status %d", f.Code)
			}
		}
		if n := sent() - before; n < messages-1 || n > messages {
			t.Errorf("the repeats of a client whose requests were dropped sent %d messages", n)
		}
	})
}
