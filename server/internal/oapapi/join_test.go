package oapapi_test

import (
	"bytes"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// sqsBody is the largest body that the SQS wire stores; one of hugeBody comes from a program
// that uses the same store.
const (
	sqsBody  = 1<<20 + 16<<10
	hugeBody = 3<<20 + 1
)

// withLarge runs a test with a daemon whose queue "orders" has bodies of these sizes, which
// its surface did not take.
func withLarge(t *testing.T, sizes []int, run func(t *testing.T, d *daemon, bodies [][]byte)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(&membox.Options{MaxBodyBytes: 8 << 20}), oapapi.Options{})
		defer d.stop(t)
		q, err := d.backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		var bodies [][]byte
		for i, size := range sizes {
			bodies = append(bodies, bytes.Repeat([]byte{byte('a' + i)}, size))
			attributes := map[string]string{"size": strings.Repeat("x", i)}
			if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: bodies[i], Attributes: attributes}}); err != nil {
				t.Fatal(err)
			}
		}
		run(t, d, bodies)
	})
}

// mixed has bodies on both sides of the limit of a frame, alone and beside others.
var mixed = []int{10, sqsBody, hugeBody, 700 << 10, 20, 700 << 10, 1<<20 - 100, 1 << 20, 30}

func TestStoredBodyBeyondFrameIsDelivered(t *testing.T) { // SVC-5
	type bodies = iter.Seq2[[]byte, error]
	for name, received := range map[string]func(t *testing.T, q driver.Queue) bodies{
		"receive": func(t *testing.T, q driver.Queue) bodies {
			return func(yield func([]byte, error) bool) {
				for {
					got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 5, Visibility: time.Hour})
					for i := range got {
						if !yield(got[i].Body, nil) {
							return
						}
					}
					if len(got) == 0 {
						yield(nil, err)
						return
					}
				}
			}
		},
		"subscribe": func(t *testing.T, q driver.Queue) bodies {
			return func(yield func([]byte, error) bool) {
				n := 0
				for d, err := range q.(remotebox.Subscriber).Subscribe(t.Context(), time.Hour, 4) {
					if n++; !yield(d.Body, err) || n == len(mixed) {
						return
					}
				}
			}
		},
		"peek": func(t *testing.T, q driver.Queue) bodies {
			return func(yield func([]byte, error) bool) {
				for p, err := range q.Peek(t.Context(), driver.Query{}) {
					if !yield(p.Body, err) {
						return
					}
				}
			}
		},
		"dead letters": func(t *testing.T, q driver.Queue) bodies {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: len(mixed), Visibility: time.Hour, MaxBytes: 1 << 30})
			for len(got) > 0 && err == nil {
				requests := make([]driver.DeadLetterRequest, len(got))
				for i := range got {
					requests[i] = driver.DeadLetterRequest{Receipt: got[i].Receipt, Reason: driver.ReasonFatal}
				}
				if err = q.DeadLetter(t.Context(), requests); err == nil {
					got, err = q.Receive(t.Context(), driver.ReceiveRequest{Max: len(mixed), Visibility: time.Hour})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			return func(yield func([]byte, error) bool) {
				for l, err := range q.DeadLetters(t.Context()) {
					if !yield(l.Body, err) {
						return
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withLarge(t, mixed, func(t *testing.T, d *daemon, want [][]byte) {
				client := d.client()
				defer client.Close()
				q, err := client.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for body, err := range received(t, q) {
					if err != nil {
						t.Fatal(err)
					}
					if body == nil {
						break
					}
					if n == len(want) || !bytes.Equal(body, want[n]) {
						t.Fatalf("body %d of %d bytes is not what was sent", n, len(body))
					}
					n++
				}
				if n != len(want) {
					t.Errorf("%d bodies, want %d", n, len(want))
				}
			})
		})
	}
}

// answer collects the frames of an answer, or of deliveries up to one that is not a part.
func (r *raw) answer(limit int) (payload []byte, codes []uint16) {
	r.t.Helper()
	for {
		f := r.mustNext()
		if int(f.Length) > limit {
			r.t.Errorf("a frame of %d bytes", f.Length)
		}
		payload, codes = append(payload, f.Payload...), append(codes, f.Code)
		if f.Code != oap.StatusMore && f.Code != oap.StatusPart && f.Code != oap.EventDeliverPart {
			return payload, codes
		}
	}
}

// askFor sends a request for what the queue has.
func (r *raw) askFor(code uint16, handle uint32) {
	r.t.Helper()
	target := oap.Target{Handle: handle}
	var payload []byte
	switch code {
	case oap.OpReceive:
		payload = oap.AppendReceive(nil, handle, driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
	case oap.OpPeek:
		payload = oap.AppendPeek(nil, target, new(driver.Query))
	case oap.OpSubscribe:
		payload = oap.AppendSubscribe(nil, &oap.SubscribeRequest{Target: target, Visibility: time.Minute, Credit: 10})
	}
	r.send(requestHeader(code, 9), nil, payload)
}

// join announces that the client joins frames.
func (r *raw) join() {
	r.t.Helper()
	r.send(requestHeader(oap.OpJoin, 8), nil, nil)
	if f := r.mustNext(); f.Code != oap.StatusOK {
		r.t.Fatalf("join: status %d", f.Code)
	}
}

func TestFramesForJoiningClientKeepToLimit(t *testing.T) { // SVC-5
	for name, test := range map[string]struct {
		code  uint16
		codes []uint16
		parse func([]byte) (int, error)
	}{
		"receive":   {oap.OpReceive, []uint16{oap.StatusMore, oap.StatusPart, oap.StatusPart, oap.StatusPart, oap.StatusOK}, countDeliveries},
		"subscribe": {oap.OpSubscribe, []uint16{oap.EventDeliver, oap.EventDeliverPart, oap.EventDeliverPart, oap.EventDeliverPart, oap.EventDeliver}, countDeliveries},
		"peek": {oap.OpPeek, []uint16{oap.StatusMore, oap.StatusPart, oap.StatusPart, oap.StatusPart, oap.StatusMore, oap.StatusOK}, func(b []byte) (int, error) {
			peeked, err := oap.ParsePeeked(b)
			return len(peeked), err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withLarge(t, []int{10, hugeBody, 20}, func(t *testing.T, d *daemon, _ [][]byte) {
				r := dialRaw(t, d)
				r.start()
				r.join()
				r.askFor(test.code, r.open("orders"))
				var payload []byte
				var codes []uint16
				for len(codes) < len(test.codes) {
					more, some := r.answer(1_048_576)
					payload, codes = append(payload, more...), append(codes, some...)
				}
				if len(codes) != len(test.codes) {
					t.Fatalf("codes %v, want %v", codes, test.codes)
				}
				for i := range codes {
					if codes[i] != test.codes[i] {
						t.Fatalf("codes %v, want %v", codes, test.codes)
					}
				}
				if n, err := test.parse(payload); n != 3 || err != nil {
					t.Errorf("%d messages, %v", n, err)
				}
			})
		})
	}
}

func countDeliveries(payload []byte) (int, error) {
	got, err := oap.ParseDeliveries(payload, nil)
	return len(got), err
}

// TestEarlierClientGetsLargeBodyInOneFrame: clients that do not join get what they always got.
func TestEarlierClientGetsLargeBodyInOneFrame(t *testing.T) { // SVC-5
	for _, code := range []uint16{oap.OpReceive, oap.OpSubscribe, oap.OpPeek} {
		withLarge(t, []int{sqsBody}, func(t *testing.T, d *daemon, _ [][]byte) {
			r := dialRaw(t, d)
			r.start()
			r.askFor(code, r.open("orders"))
			f := r.mustNext()
			if f.Length <= sqsBody || f.Length > oap.EarlierFrameBytes || f.Code == oap.StatusPart || f.Code == oap.EventDeliverPart {
				t.Errorf("%#x: a frame of %d bytes with code %d", code, f.Length, f.Code)
			}
		})
	}
}

// TestEarlierClientIsToldOfBodyThatItCannotGet: the message stays leased, and comes back; what
// is beside it is delivered.
func TestEarlierClientIsToldOfBodyThatItCannotGet(t *testing.T) { // SVC-5
	refused := func(t *testing.T, f oap.Frame) {
		t.Helper()
		if f.Code != oap.StatusTooLarge || f.Flags&oap.End != 0 {
			t.Fatalf("status %d, flags %#x", f.Code, f.Flags)
		}
		e, err := oap.ParseError(f.Payload)
		if err != nil || e.Code != driver.ErrTooLarge || !strings.Contains(e.Detail, "upgrade the client") {
			t.Errorf("%v, %v", e, err)
		}
	}
	stats := func(t *testing.T, d *daemon, want driver.Stats) {
		t.Helper()
		if got, err := d.caller(t).Stats(t.Context(), "orders"); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	t.Run("receive", func(t *testing.T) {
		withLarge(t, []int{10, hugeBody, 20}, func(t *testing.T, d *daemon, _ [][]byte) {
			r := dialRaw(t, d)
			r.start()
			handle := r.open("orders")
			r.askFor(oap.OpReceive, handle)
			if f := r.mustNext(); f.Code != oap.StatusOK {
				t.Fatalf("status %d", f.Code)
			} else if n, err := countDeliveries(f.Payload); n != 2 || err != nil {
				t.Errorf("%d messages, %v", n, err)
			}
			stats(t, d, driver.Stats{InFlight: 3})
			<-time.After(time.Minute + time.Second)
			stats(t, d, driver.Stats{Ready: 3})
		})
		withLarge(t, []int{hugeBody}, func(t *testing.T, d *daemon, _ [][]byte) {
			r := dialRaw(t, d)
			r.start()
			handle := r.open("orders")
			r.askFor(oap.OpReceive, handle)
			refused(t, r.mustNext())
			stats(t, d, driver.Stats{InFlight: 1})
			r.askFor(oap.OpReceive, handle) // the connection goes on
			if f := r.mustNext(); f.Code != oap.StatusOK || len(f.Payload) > 0 {
				t.Errorf("status %d with %d bytes", f.Code, len(f.Payload))
			}
		})
	})
	t.Run("subscribe", func(t *testing.T) {
		withLarge(t, []int{10, hugeBody, 20}, func(t *testing.T, d *daemon, _ [][]byte) {
			r := dialRaw(t, d)
			r.start()
			r.askFor(oap.OpSubscribe, r.open("orders"))
			if f := r.mustNext(); f.Code != oap.EventDeliver {
				t.Fatalf("code %d", f.Code)
			} else if n, err := countDeliveries(f.Payload); n != 2 || err != nil {
				t.Errorf("%d messages, %v", n, err)
			}
			refused(t, r.mustNext())
			stats(t, d, driver.Stats{InFlight: 3})
		})
	})
	t.Run("peek", func(t *testing.T) {
		withLarge(t, []int{10, hugeBody, 20}, func(t *testing.T, d *daemon, _ [][]byte) {
			r := dialRaw(t, d)
			r.start()
			r.askFor(oap.OpPeek, r.open("orders"))
			if f := r.mustNext(); f.Code != oap.StatusMore {
				t.Fatalf("status %d", f.Code)
			}
			refused(t, r.mustNext())
			stats(t, d, driver.Stats{Ready: 3})
		})
	})
}

// TestEarlierClientMaySendLongFrames: the first release accepts them, and no others.
func TestEarlierClientMaySendLongFrames(t *testing.T) { // SVC-5
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		handle := r.open("orders")
		payload := oap.AppendSend(nil, oap.Target{Handle: handle}, 1)
		payload = oap.AppendOutgoing(payload, &driver.Outgoing{Body: make([]byte, 1<<20), Attributes: map[string]string{"a": strings.Repeat("x", 60_000)}})
		r.send(requestHeader(oap.OpSend, 3), nil, payload)
		if f := r.mustNext(); f.Code != oap.StatusOK || f.Correlation != 3 {
			t.Fatalf("status %d", f.Code)
		}
		r.write(oap.AppendHeader(nil, &oap.Header{Length: 1_183_783, Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 4}))
		f := r.mustNext()
		e, err := oap.ParseError(f.Payload)
		if f.Code != oap.StatusTooLarge || err != nil || e.Code != driver.ErrTooLarge || e.Field != "len" || !strings.Contains(e.Detail, "1048576") {
			t.Errorf("status %d, %v, %v", f.Code, e, err)
		}
	})
}

// TestTraitsFollowFromFrame: the harness allows bodies of 1 MiB, which no request can carry.
func TestTraitsFollowFromFrame(t *testing.T) { // SVC-5
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		client := d.client()
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		largest := q.Traits().MaxBodyBytes
		if largest >= 1<<20 || largest < 1<<20-1<<10 {
			t.Errorf("MaxBodyBytes is %d", largest)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: make([]byte, largest)}}); err != nil {
			t.Error(err)
		}
		_, err = q.Send(t.Context(), []driver.Outgoing{{Body: make([]byte, largest+1)}})
		e := new(driver.Error)
		if !errors.As(driver.At(err, 0), &e) || e.Code != driver.ErrTooLarge || e.Field != "Body" {
			t.Errorf("a byte too many: %v", err)
		}
	})
}
