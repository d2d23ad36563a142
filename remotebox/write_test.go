package remotebox

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// onSocket runs a test with a client of a daemon behind a real socket, which serve serves.
func onSocket(t *testing.T, serve func(nc net.Conn), run func(b *Backend)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer listener.Close()
	serving.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(nc) })
		}
	})
	b := New([]string{listener.Addr().String()}, "", nil)
	defer b.Close()
	run(b)
}

func TestLoneRequestIsWrittenByItsCaller(t *testing.T) {
	s := &script{answer: func(net.Conn, *oap.Frame) bool { return true }}
	onSocket(t, s.serve, func(b *Backend) {
		l, err := b.connected(t.Context(), nil, nil, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if newSocket(l.net) == nil {
			t.Skip("this system has no sockets that can be written to without blocking")
		}
		for range 100 {
			posted, _ := l.post(b.newCall(oap.OpPing, oap.AppendTarget))
			l.mu.Lock()
			writing, pending := l.writing, len(l.pending)
			l.mu.Unlock()
			if !posted || writing || pending > 0 {
				t.Fatalf("posted %v, still writing %v, %d bytes pending", posted, writing, pending)
			}
		}
	})
}

// stall makes the daemon read nothing more from the first PING, when stalled is closed,
// until resume is called, and answer what it reads then.
func (s *script) stall() (stalled <-chan struct{}, resume func(), sent *atomic.Int64) {
	gate, at := make(chan struct{}), make(chan struct{})
	reached := sync.OnceFunc(func() { close(at) })
	sent = new(atomic.Int64)
	s.answer = func(nc net.Conn, f *oap.Frame) bool {
		switch f.Code {
		case oap.OpPing:
			reached()
			<-gate
			respond(nc, oap.StatusOK, f, nil)
		case oap.OpSend:
			sent.Add(1)
			respond(nc, oap.StatusOK, f, oap.AppendSent(nil, []driver.Sent{{ID: "id"}}, nil))
		}
		return true
	}
	return at, sync.OnceFunc(func() { close(gate) }), sent
}

// The socket takes a part of a frame and no more. All callers return when their contexts
// end, the one that wrote included, and the frame is completed later.
func TestCallersGiveUpWhileSocketIsFull(t *testing.T) {
	s := &script{}
	stalled, resume, sent := s.stall()
	onSocket(t, s.serve, func(b *Backend) {
		defer resume()
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		ping := make(chan error, 1)
		go func() { ping <- b.Ping(t.Context()) }()
		<-stalled
		var calls sync.WaitGroup
		for range 32 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, err := q.Send(ctx, []driver.Outgoing{{Body: make([]byte, 1<<20)}}); err != context.DeadlineExceeded { //nolint:errorlint // the bare error is the promise
					t.Errorf("got %v", err)
				}
			})
		}
		returned := make(chan struct{})
		go func() { calls.Wait(); close(returned) }()
		select {
		case <-returned:
		case <-time.After(2 * time.Minute):
			t.Fatal("callers wait although their contexts have ended")
		}
		resume()
		if err := <-ping; err != nil {
			t.Error(err)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if s.dials > 0 || sent.Load() < maxPending>>20 {
			t.Errorf("%d messages arrived after %d more connections", sent.Load(), s.dials)
		}
	})
}

func TestCallsGivenUpDoNotPileUp(t *testing.T) {
	s := &script{}
	withScript(t, s, func(t *testing.T, b *Backend) {
		_, resume, _ := s.stall()
		defer resume()
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = b.Ping(t.Context()) }()
		synctest.Wait()
		send := func(wait time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := q.Send(ctx, []driver.Outgoing{{Body: make([]byte, 1<<20)}})
			return err
		}
		for range 20 {
			if err := send(time.Second); err != context.DeadlineExceeded { //nolint:errorlint // the bare error is the promise
				t.Errorf("got %v", err)
			}
		}
		b.link.mu.Lock()
		if n := len(b.link.pending); n < maxPending || n > maxPending+oap.MaxFrameBytes {
			t.Errorf("%d bytes are pending", n)
		}
		b.link.mu.Unlock()
		late := make(chan error, 1)
		go func() { late <- send(time.Hour) }()
		received := make(chan error, 1)
		go func() {
			_, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: time.Hour})
			received <- err
		}()
		synctest.Wait()
		resume()
		if err := <-late; err != nil {
			t.Errorf("a send that waited for room: %v", err)
		}
		_ = q.Close()
		if err := <-received; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a receive on a closed handle: %v", err)
		}
	})
}

// countingConn counts writes.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestFramesOfManyCallersShareOneWrite(t *testing.T) {
	s := &script{}
	synctest.Test(t, func(t *testing.T) {
		_, resume, sent := s.stall()
		defer resume()
		var writes atomic.Int64
		b := New([]string{"script"}, "", &Options{Dial: func(ctx context.Context, address string) (net.Conn, error) {
			nc, err := s.dial(ctx, address)
			return countingConn{nc, &writes}, err
		}})
		defer b.Close()
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		calls.Go(func() { _ = b.Ping(t.Context()) })
		synctest.Wait()
		before := writes.Load()
		const callers = 100
		for range callers {
			calls.Go(func() {
				if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("tea")}}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		resume()
		calls.Wait()
		// The first caller's frame is in a write that blocks, and all others follow in the next.
		if n := writes.Load() - before; n > 2 || sent.Load() != callers {
			t.Errorf("%d writes for %d messages", n, sent.Load())
		}
	})
}

// leanDaemon answers requests without allocating, each message in a batch of the given
// size, so that the allocations of a process are those of its client.
func leanDaemon(batch int) func(nc net.Conn) {
	message := driver.Delivery{Message: driver.Message{
		ID: "01JCSJ2Q9V0000000000000000", Body: make([]byte, 256), Deliveries: 1, EnqueuedAt: time.Now(),
	}, Receipt: driver.Receipt{Handle: "receipt-01JCSJ2Q9V0000000000000000"}}
	payloads := map[uint16][]byte{
		oap.OpStart:          oap.AppendStarted(nil, &oap.StartAnswer{Version: 1, Window: oap.MaxWindow}),
		oap.OpOpenIdentified: oap.AppendIdentified(nil, &oap.Opened{Handle: 1, Traits: driver.Traits{MaxBatch: 256}}),
		oap.OpAck:            oap.AppendFailures(nil, nil),
	}
	sent := make([]driver.Sent, batch)
	for i := range sent {
		sent[i].ID = message.ID
		payloads[oap.OpReceive] = oap.AppendDelivery(payloads[oap.OpReceive], &message)
	}
	payloads[oap.OpSend] = oap.AppendSent(nil, sent, nil)
	return func(nc net.Conn) {
		defer nc.Close()
		in, out := make([]byte, 64<<10), make([]byte, 0, 64<<10)
		for filled := 0; ; {
			f, rest, need, err := oap.Next(in[:filled])
			if err != nil || f.Flags&oap.End != 0 && need == 0 {
				return
			}
			if need > 0 {
				n, err := nc.Read(in[filled:])
				if err != nil {
					return
				}
				filled += n
				continue
			}
			filled = copy(in, rest) // one request at a time
			h := oap.Header{Flags: oap.Response, Code: oap.StatusOK, Protocol: oap.ProtocolMailbox, Correlation: f.Correlation}
			out = oap.AppendFrame(out[:0], &h, nil, payloads[f.Code])
			if _, err := nc.Write(out); err != nil {
				return
			}
		}
	}
}

// The allocations of a call are what it returns: for a send the results and the ids, for
// a receive the deliveries and the bytes that they point to. A batch has as many.
func TestCallsAllocateOnlyWhatTheyReturn(t *testing.T) {
	for _, batch := range []int{1, 10} {
		onSocket(t, leanDaemon(batch), func(b *Backend) {
			q, err := b.OpenQueue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			msgs := make([]driver.Outgoing, batch)
			for i := range msgs {
				msgs[i].Body = bytes.Repeat([]byte("tea "), 64)
			}
			var got []driver.Delivery
			receipts := make([]driver.Receipt, batch)
			for _, call := range []struct {
				name string
				want float64
				do   func() error
			}{
				{"send", 2, func() error { _, err := q.Send(t.Context(), msgs); return err }},
				{"receive", 2, func() (err error) {
					got, err = q.Receive(t.Context(), driver.ReceiveRequest{Max: batch, Visibility: time.Minute, Wait: time.Second})
					return err
				}},
				{"ack", 0, func() error {
					for i := range receipts {
						receipts[i] = got[i].Receipt
					}
					return q.Ack(t.Context(), receipts)
				}},
			} {
				var failure error
				n := testing.AllocsPerRun(200, func() { failure = errors.Join(failure, call.do()) })
				if failure != nil || n > call.want && !volume.RaceDetector {
					t.Errorf("%s of %d messages: %v allocations, want %v; error %v", call.name, batch, n, call.want, failure)
				}
			}
		})
	}
}
