package remotebox_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/remotebox"
)

// FuzzAnswers lets a daemon answer START as it should and then anything. The client may
// fail, and neither crashes nor hangs nor takes what no daemon has said.
func FuzzAnswers(f *testing.F) {
	frame := func(flags oap.Flags, code uint16, correlation uint64, payload []byte) []byte {
		return oap.AppendFrame(nil, &oap.Header{Flags: flags, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation}, nil, payload)
	}
	plain := oap.AppendOpened(nil, &oap.Opened{Handle: 1, Traits: driver.Traits{MaxBatch: 10}})
	opened := oap.AppendIdentified(nil, &oap.Opened{Handle: 1, Traits: driver.Traits{MaxBatch: 10, Schedules: true}})
	for correlation := range uint64(4) {
		f.Add(frame(oap.Response, oap.StatusOK, correlation, opened))
		f.Add(frame(oap.Response, oap.StatusFull, correlation, oap.AppendError(nil, &driver.Error{Code: driver.ErrFull, RetryAfter: time.Second})))
	}
	delivery := oap.AppendDelivery(nil, &driver.Delivery{Message: driver.Message{ID: "id", Body: []byte("tea")}, Receipt: driver.Receipt{Handle: "r"}})
	for _, code := range []uint16{oap.StatusMore, oap.StatusPart} {
		parts := frame(oap.Response, oap.StatusOK, 2, opened)
		for correlation := range uint64(6) {
			parts = append(parts, frame(oap.Response, code, correlation, delivery[:5])...)
			parts = append(parts, frame(oap.Response, oap.StatusOK, correlation, delivery[5:])...)
		}
		f.Add(parts)
	}
	f.Add(append(frame(oap.Event, oap.EventDeliverPart, 4, delivery[:5]), frame(oap.Event, oap.EventDeliver, 4, delivery[5:])...))
	f.Add(frame(oap.Event, oap.EventDrain, 0, nil))
	f.Add(frame(oap.Event, oap.EventTraits, 0, plain))
	f.Add(frame(oap.Event, oap.EventOpened, 0, opened))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n this is not a daemon at all"))
	f.Fuzz(func(t *testing.T, answers []byte) {
		started := frame(oap.Response, oap.StatusOK, 0, oap.AppendStarted(nil, &oap.StartAnswer{
			Version: oap.ProtocolVersion, Window: oap.MaxWindow, MaxInFlight: 100, MaxFrame: oap.MaxFrameBytes,
		}))
		dial := func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				go func() { _, _ = io.Copy(io.Discard, there) }()
				_, _ = there.Write(append(started, answers...))
				_ = there.Close()
			}()
			return here, nil
		}
		backend := remotebox.New([]string{"daemon"}, "AgAA", &remotebox.Options{Dial: dial, Patience: -1})
		defer backend.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		q, err := backend.OpenQueue(ctx, "orders")
		if err != nil {
			return
		}
		_, _ = q.Send(ctx, []driver.Outgoing{{Body: []byte("tea")}})
		_, _ = q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		for _, err := range q.Peek(ctx, driver.Query{}) {
			if err != nil {
				break
			}
		}
		_, _, _ = q.Fire(ctx, driver.Firing{Name: "nightly", Definition: []byte("{}")})
		for _, err := range q.Schedules(ctx, "") {
			if err != nil {
				break
			}
		}
		_, _ = backend.Replies().Wait(ctx, "s", time.Second)
		_, _ = backend.Replies().Expired(ctx, 1)
		for _, err := range q.(remotebox.Subscriber).Subscribe(ctx, time.Minute, 2) {
			if err != nil {
				break
			}
		}
		if ctx.Err() != nil {
			t.Error("it hangs, although the daemon has gone")
		}
	})
}
