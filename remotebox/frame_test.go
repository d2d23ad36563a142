package remotebox

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

func TestRequestsKeepToAnnouncedFrameLimit(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		name             string
		announced, large int // the limit of the daemon, and the longest frame of one message
		batch            int // the longest frame of several
	}{
		{"earlier daemon", oap.EarlierFrameBytes, oap.EarlierFrameBytes, mib},
		{"daemon that announces nothing", 0, oap.EarlierFrameBytes, mib},
		{"1 MiB", mib, 0, mib},
		{"less", mib / 2, 0, mib / 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			longest := 0
			s := &script{maxFrame: test.announced, answer: func(nc net.Conn, f *oap.Frame) bool {
				longest = max(longest, int(f.Length))
				_, msgs, err := oap.ParseSend(f.Payload, nil)
				if err != nil {
					return false
				}
				respond(nc, oap.StatusOK, f, oap.AppendSent(nil, make([]driver.Sent, len(msgs)), nil))
				return true
			}}
			withScript(t, s, func(t *testing.T, b *Backend) {
				q, err := b.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				batch := make([]driver.Outgoing, 40)
				for i := range batch {
					batch[i].Body = make([]byte, 100_000)
				}
				if _, err := q.Send(t.Context(), batch); err != nil || longest > test.batch || longest < test.batch-200_000 {
					t.Errorf("the longest frame of a batch has %d bytes; error %v", longest, err)
				}
				longest = 0
				_, err = q.Send(t.Context(), []driver.Outgoing{{Body: make([]byte, mib)}})
				if longest > test.large || (test.large > 0) != (err == nil) {
					t.Errorf("a frame of %d bytes; error %v", longest, err)
				}
				if err != nil && (!errors.Is(err, driver.ErrTooLarge) && !errors.Is(driver.At(err, 0), driver.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf("Body: %d bytes, at most %d are allowed", mib, q.Traits().MaxBodyBytes))) {
					t.Errorf("got %v", err)
				}
				attributes := map[string]string{"a": strings.Repeat("x", 60_000)}
				_, err = q.Send(t.Context(), []driver.Outgoing{{Body: make([]byte, q.Traits().MaxBodyBytes), Attributes: attributes}})
				if (test.large > 0) != (err == nil) || err != nil && !strings.Contains(err.Error(), "bytes that the daemon accepts in a frame") {
					t.Errorf("the largest body with attributes: %v", err)
				}
			})
		})
	}
}

func TestDeliveryInSeveralFramesIsJoined(t *testing.T) {
	large := driver.Delivery{
		Message: driver.Message{ID: "large", Body: []byte(strings.Repeat("tea ", 1000)), EnqueuedAt: time.Now()},
		Receipt: driver.Receipt{Handle: "receipt"},
	}
	payload := oap.AppendDelivery(oap.AppendDelivery(nil, &large), &large)
	for _, cuts := range [][]int{{1}, {len(payload) / 2}, {10, 4000, 4001, len(payload) - 1}} {
		s := &script{answer: func(nc net.Conn, f *oap.Frame) bool {
			from := 0
			for _, cut := range cuts {
				respond(nc, oap.StatusMore, f, payload[from:cut])
				from = cut
			}
			respond(nc, oap.StatusOK, f, payload[from:])
			return true
		}}
		withScript(t, s, func(t *testing.T, b *Backend) {
			q, err := b.OpenQueue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2})
			if err != nil || len(got) != 2 {
				t.Fatalf("%d deliveries, error %v", len(got), err)
			}
			for i := range got {
				if got[i].ID != "large" || string(got[i].Body) != string(large.Body) || got[i].Receipt != large.Receipt {
					t.Errorf("cut at %v: delivery %d is not what was sent", cuts, i)
				}
			}
		})
	}
}
