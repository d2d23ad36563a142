package oapapi_test

import (
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
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// The tests in this file are about clients that mean no good.

func TestAnExpiredCapabilityStartsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := capability.NewKeyRing(capability.NewKey())
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
		for i, code := range []uint16{oap.OpAck, oap.OpNack, oap.OpExtend, oap.OpBury} {
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
	if n := len(oap.AppendSent(nil, make([]driver.Sent, len(errs)), errs)); n > oap.MaxPayloadBytes {
		t.Errorf("the answer to a send has %d bytes", n)
	}
	if n := len(oap.AppendFailures(nil, errs)); n > oap.MaxPayloadBytes {
		t.Errorf("the answer to a settlement has %d bytes", n)
	}
}

func TestOpenQueuesOfTokenLeaveOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		ring := capability.NewKeyRing(capability.NewKey())
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
