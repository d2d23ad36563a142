package oapapi_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// The tests in this file are about clients that ask for much and read nothing:
// what the server keeps for one of them is bounded.

const large = 512 << 10

// growth returns by how many MiB of memory more are in use after do.
func growth(do func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20
}

// fill sends large messages.
func (r *raw) fill(target oap.Target, messages int) {
	r.t.Helper()
	payload := oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{Body: make([]byte, large)})
	for range messages {
		r.send(requestHeader(oap.OpSend, 3), nil, payload)
		if f := r.mustNext(); f.Code != oap.StatusOK {
			r.t.Fatalf("send: status %d", f.Code)
		}
	}
}

// pipelined returns the same request many times.
func pipelined(code uint16, requests int, payload []byte) (frames []byte) {
	for i := range requests {
		h := requestHeader(code, uint64(100+i))
		frames = oap.AppendFrame(frames, &h, nil, payload)
	}
	return frames
}

func TestUnreadPeeksCostLittle(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		r.fill(target, 1)
		const asked = 1000
		held := growth(func() {
			r.write(pipelined(oap.OpPeek, asked, oap.AppendPeek(nil, target, &driver.Query{Limit: 1})))
			synctest.Wait()
		})
		if held > 40 {
			t.Errorf("the server holds %d MiB", held)
		}
		statuses := make(map[uint16]int)
		for range asked {
			f := r.mustNext()
			for f.Code == oap.StatusMore {
				f = r.mustNext()
			}
			statuses[f.Code]++
		}
		if statuses[oap.StatusOK] < 16 || statuses[oap.StatusOK]+statuses[oap.StatusFull] != asked {
			t.Errorf("answers by status: %v", statuses)
		}
	})
}

func TestUnreadReceivesCostLittle(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		const messages = 100
		r.fill(target, messages)
		// They differ, so that they are not taken together.
		var frames []byte
		for i := range messages {
			req := driver.ReceiveRequest{Max: 1, Visibility: time.Hour + time.Duration(i)}
			h := requestHeader(oap.OpReceive, uint64(100+i))
			frames = oap.AppendFrame(frames, &h, nil, oap.AppendReceive(nil, target.Handle, req))
		}
		held := growth(func() {
			r.write(frames)
			synctest.Wait()
		})
		if held > 4 {
			t.Errorf("the server holds %d MiB", held)
		}
		for range messages {
			if f := r.mustNext(); f.Code != oap.StatusOK || len(f.Payload) < large {
				t.Fatalf("status %d, %d bytes", f.Code, len(f.Payload))
			}
		}
	})
}

// stuck is a backend that does not answer sends until it is told to, and is not in
// memory, as far as it says.
type stuck struct {
	*membox.Backend
	free chan struct{}
}

type stuckQueue struct {
	driver.Queue
	free chan struct{}
}

func (s *stuck) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := s.Backend.OpenQueue(ctx, name)
	return &stuckQueue{q, s.free}, err
}

func (q *stuckQueue) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Durability = driver.DurabilityProcess
	return traits
}

func (q *stuckQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	<-q.free
	return q.Queue.Send(ctx, msgs)
}

func TestSendsThatTheBackendDoesNotTakeCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &stuck{membox.New(nil), make(chan struct{})}
		d := newDaemon(t, backend, oapapi.Options{FrameTimeout: time.Hour})
		defer d.stop(t)
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		const messages = 100
		frames := pipelined(oap.OpSend, messages, oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{Body: make([]byte, large)}))
		held := growth(func() {
			r.write(frames)
			synctest.Wait()
		})
		if held > 24 {
			t.Errorf("the server holds %d MiB", held)
		}
		close(backend.free)
		for range messages {
			if f := r.mustNext(); f.Code != oap.StatusOK {
				t.Fatalf("status %d", f.Code)
			}
		}
	})
}

// TestCreditIsNoReasonToKeepAWholeQueue has a stream go on for as long as there is
// credit, and a client that does not read.
func TestCreditIsNoReasonToKeepAWholeQueue(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		const messages = 100
		r.fill(target, messages)
		held := growth(func() {
			// Another goroutine must be the one that writes.
			r.send(requestHeader(oap.OpPing, 8), nil, nil)
			synctest.Wait()
			r.send(requestHeader(oap.OpPeek, 9), nil, oap.AppendPeek(nil, target, &driver.Query{}))
			synctest.Wait()
			r.send(oap.Header{Flags: oap.Event, Code: oap.EventCredit, Protocol: oap.ProtocolMailbox, Correlation: 9}, nil, oap.AppendCount(nil, 1<<20))
			synctest.Wait()
		})
		if held > 4 {
			t.Errorf("the server holds %d MiB", held)
		}
		if f := r.mustNext(); f.Correlation != 8 {
			t.Fatalf("got an answer to %d", f.Correlation)
		}
		seen := 0
		for f := r.mustNext(); f.Code != oap.StatusOK; f = r.mustNext() {
			seen++
		}
		if seen != messages {
			t.Errorf("%d chunks, want one for each of %d messages", seen, messages)
		}
	})
}

// TestAnswersToManySessionsCostLittle has one token open session after session, ack
// what it never received, and give no answer back: each answer is a list of long
// errors.
func TestAnswersToManySessionsCostLittle(t *testing.T) {
	volume.InFull(t)
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		const sessions, requests = 4, 600
		queue := strings.Repeat("q", 200) // in each error
		d.make(t, queue)
		receipts := make([]driver.Receipt, driver.DefaultMaxBatch)
		for i := range receipts {
			receipts[i].Handle = "x"
		}
		held := growth(func() {
			for producer := range sessions {
				r := dialRaw(t, d)
				r.startAs([16]byte{byte(producer + 1)})
				handle := r.open(queue)
				for n := uint64(1); n <= requests; n++ {
					target := oap.Target{Ticket: oap.Ticket{Sequence: n, Behind: n - 1}, Handle: handle}
					r.send(requestHeader(oap.OpAck, n+10), nil, oap.AppendAck(nil, target, receipts))
					r.mustNext()
				}
				_ = r.net.Close()
			}
			synctest.Wait()
		})
		if held > 5*sessions {
			t.Errorf("%d MiB are held for %d sessions whose connections are closed", held, sessions)
		}
	})
}

// TestSlowReaderHoldsUpNoOtherClient has a client with many receives that wait, which reads
// none of the answers. Another one sends to the same queue, so its goroutine serves them.
func TestSlowReaderHoldsUpNoOtherClient(t *testing.T) {
	const receives, body = 200, 64 << 10
	d := newDaemon(t, membox.New(nil), oapapi.Options{WriteTimeout: time.Hour})
	defer d.stop(t)
	d.make(t, "orders")
	address := d.listen(t)
	client := remotebox.New([]string{address}, d.token, nil)
	defer client.Close()
	slow, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	r := newRaw(t, d, slow)
	r.start()
	req := driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour}
	r.write(pipelined(oap.OpReceive, receives, oap.AppendReceive(nil, r.open("orders"), req)))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	q, err := client.OpenQueue(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	held := growth(func() {
		for range receives {
			if _, err := q.Send(ctx, []driver.Outgoing{{Body: make([]byte, body)}}); err != nil {
				t.Fatal("send beside a client that does not read: ", err)
			}
		}
		for stats := (driver.Stats{}); stats.InFlight < receives; {
			if stats, err = q.Stats(ctx); err != nil {
				t.Fatal("the slow client's receives were not served: ", err)
			}
		}
	})
	if most := int64(3 * receives * body >> 20); held > most { // the queue and the output have each message
		t.Errorf("the server holds %d MiB for %d MiB that are not read, want at most %d", held, receives*body>>20, most)
	}
	cycle(t, client)
}

// TestUnreadAnswersOfOneSlotCostLittle has many requests wait for one large answer, which is in
// memory once. Those that it does not get it for ask again.
func TestUnreadAnswersOfOneSlotCostLittle(t *testing.T) {
	volume.InFull(t)
	synctest.Test(t, func(t *testing.T) {
		d := newAsking(t, membox.New(nil))
		defer d.stop(t)
		r := dialRaw(t, d)
		r.start()
		const waits = 200
		r.send(requestHeader(oap.OpCreateSlot, 3), nil, oap.AppendSlotTime(nil, oap.Ticket{}, "s", time.Hour))
		if f := r.mustNext(); f.Code != oap.StatusOK {
			t.Fatalf("create: status %d", f.Code)
		}
		wait := oap.AppendSlotTime(nil, oap.Ticket{}, "s", time.Hour)
		r.write(pipelined(oap.OpWaitSlot, waits, wait))
		synctest.Wait()
		held := growth(func() {
			r.send(requestHeader(oap.OpResolveSlot, 4), nil, oap.AppendResolve(nil, oap.Ticket{}, "s", &driver.Answer{Body: make([]byte, large)}))
			synctest.Wait()
		})
		if held > 24 {
			t.Errorf("the server holds %d MiB", held)
		}
		answered := 0
		for answered < waits {
			f := r.mustNext()
			if f.Correlation == 4 {
				continue
			}
			slot, err := oap.ParseSlot(f.Payload)
			switch {
			case err != nil || f.Code != oap.StatusOK:
				t.Fatalf("status %d, %v", f.Code, err)
			case slot.State == driver.SlotResolved && len(slot.Answer.Body) == large:
				answered++
			case slot.State == driver.SlotPending:
				r.send(requestHeader(oap.OpWaitSlot, f.Correlation), nil, wait)
			default:
				t.Fatalf("the slot is %s with %d bytes", slot.State, len(slot.Answer.Body))
			}
		}
	})
}
