package remotebox

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// TestCallerThatLeavesBetweenPartsGivesMessagesBack cancels a receive whose answer has begun.
func TestCallerThatLeavesBetweenPartsGivesMessagesBack(t *testing.T) {
	var payload []byte
	for _, receipt := range []string{"first", "second"} {
		payload = oap.AppendDelivery(payload, &driver.Delivery{
			Message: driver.Message{ID: "id", Body: []byte(strings.Repeat("tea ", 1000)), EnqueuedAt: time.Now()},
			Receipt: driver.Receipt{Handle: receipt},
		})
	}
	for _, more := range []uint16{oap.StatusMore, oap.StatusPart} {
		var rest func()
		var back []string
		s := &script{answer: func(nc net.Conn, f *oap.Frame) bool {
			switch f.Code {
			case oap.OpReceive:
				asked := *f
				respond(nc, more, &asked, payload[:len(payload)/2+100])
				rest = func() { respond(nc, oap.StatusOK, &asked, payload[len(payload)/2+100:]) }
			case oap.OpExtend:
				_, extensions, err := oap.ParseExtend(f.Payload, nil)
				if err != nil {
					return false
				}
				for _, e := range extensions {
					back = append(back, e.Receipt.Handle)
				}
			}
			return true
		}}
		withScript(t, s, func(t *testing.T, b *Backend) {
			q, err := b.OpenQueue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := q.Receive(ctx, driver.ReceiveRequest{Max: 2, Wait: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
			rest()
			synctest.Wait()
			if !slices.Equal(back, []string{"first", "second"}) {
				t.Errorf("status %d: receipts %q were given back, want both", more, back)
			}
		})
	}
}

// TestAnswerWithoutEndIsRefused has a daemon that sends far more parts than a message can have.
func TestAnswerWithoutEndIsRefused(t *testing.T) {
	part := make([]byte, oap.MaxFrameBytes-oap.HeaderBytes)
	for name, receive := range map[string]func(*testing.T, driver.Queue) error{
		"receive": func(t *testing.T, q driver.Queue) error {
			_, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: time.Hour})
			return err
		},
		"subscribe": func(t *testing.T, q driver.Queue) error {
			for _, err := range q.(Subscriber).Subscribe(t.Context(), time.Minute, 1) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answer: func(nc net.Conn, f *oap.Frame) bool {
				switch f.Code {
				case oap.OpReceive, oap.OpSubscribe:
					asked := *f
					for range 2 + maxAnswerBytes/len(part) {
						respond(nc, oap.StatusPart, &asked, part)
					}
				case oap.OpPing:
					respond(nc, oap.StatusOK, f, nil)
				}
				return true
			}}
			withScript(t, s, func(t *testing.T, b *Backend) {
				q, err := b.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				if err := receive(t, q); !errors.Is(err, driver.ErrTooLarge) {
					t.Errorf("got %v", err)
				}
				if err := b.Ping(t.Context()); err != nil || s.dials != 1 {
					t.Errorf("%d connections, error %v; want that the connection goes on", s.dials, err)
				}
			})
		})
	}
}

// TestListingEndsWhileItsConnectionDoes cancels a listing in the moment in which its
// connection is lost. The race detector finds what both of them use.
func TestListingEndsWhileItsConnectionDoes(t *testing.T) {
	for range 200 {
		s := &script{answer: func(_ net.Conn, f *oap.Frame) bool {
			if f.Code != oap.OpPeek {
				return true
			}
			<-time.After(time.Second)
			return false
		}}
		withScript(t, s, func(t *testing.T, b *Backend) {
			q, err := b.OpenQueue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for _, err := range q.Peek(ctx, driver.Query{}) {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
			}
			<-time.After(time.Minute) // the daemon ends too
		})
	}
}
