package remotebox

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

func TestSubscriptionGivesCreditByHalves(t *testing.T) {
	for ahead, want := range map[int][]int{1: {1, 1, 1, 1, 1, 1, 1, 1}, 3: {2, 2, 2, 2}, 8: {4, 4}} {
		var credits []int
		var subscription oap.Frame
		left, total := 0, 0
		s := &script{}
		s.answer = func(nc net.Conn, f *oap.Frame) bool {
			switch f.Code {
			case oap.OpSubscribe:
				r, _ := oap.ParseSubscribe(f.Payload)
				subscription, left = *f, r.Credit
			case oap.EventCredit:
				n, _ := oap.ParseCount(f.Payload)
				credits = append(credits, n)
				left += n
			case oap.OpPing: // the test has all messages
				respond(nc, oap.StatusOK, f, nil)
			}
			for ; left > 0 && total < 8; left, total = left-1, total+1 {
				d := driver.Delivery{Message: driver.Message{ID: "id", EnqueuedAt: time.Now()}, Receipt: driver.Receipt{Handle: "r"}}
				h := oap.Header{Flags: oap.Event, Code: oap.EventDeliver, Protocol: oap.ProtocolMailbox, Correlation: subscription.Correlation}
				_, _ = nc.Write(oap.AppendFrame(nil, &h, nil, oap.AppendDelivery(nil, &d)))
			}
			return true
		}
		withScript(t, s, func(t *testing.T, b *Backend) {
			q, err := b.OpenQueue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			next := time.AfterFunc(time.Second, func() { _ = q.Close() })
			defer next.Stop()
			for _, err := range q.(Subscriber).Subscribe(t.Context(), time.Minute, ahead) {
				if err == nil {
					got++
				}
			}
			if err := b.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got != 8 || !slices.Equal(credits, want) {
				t.Errorf("%d ahead: %d messages, credits %v, want %v", ahead, got, credits, want)
			}
		})
	}
}
