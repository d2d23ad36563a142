package broker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestHistoryTellsLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.RunHistory(ctx)
		}()
		c := b.as("")
		b.send(c, "orders", "x")
		b.send(c, "orders", "y")
		time.Sleep(broker.HistoryEvery + time.Second)
		got, err := c.Receive(ctx, "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if err == nil {
			err = c.Ack(ctx, "orders", []string{got[0].Receipt})
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(broker.HistoryEvery)
		points, err := c.History(ctx, "orders")
		if err != nil || len(points) != 2 {
			t.Fatalf("%+v, %v", points, err)
		}
		if p := points[0]; p.Ready != 2 || p.Acked != 0 {
			t.Errorf("first %+v", p)
		}
		if p := points[1]; p.Ready != 1 || p.Delivered != 1 || p.Acked != 1 || !p.At.After(points[0].At) {
			t.Errorf("second %+v", p)
		}
		if points, err := b.as("other").History(ctx, "orders"); err != nil || len(points) > 0 {
			t.Errorf("another tenant gets %v, %v", points, err)
		}
		cancel()
		<-ended
	})
}

// TestTotalKeepsDeadLettersOfIdleQueue is CON-2: a queue that is not used is not measured, and keeps its dead letters.
func TestTotalKeepsDeadLettersOfIdleQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "emails", "x")
		b.send(c, "orders", "x")
		got, err := c.Receive(t.Context(), "emails", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if err == nil {
			err = c.DeadLetter(t.Context(), "emails", []broker.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}})
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if i > 0 {
				time.Sleep(broker.HistoryEvery)
			}
			b.Sample(t.Context(), time.Now())
		}
		var total broker.HistoryTotal
		for _, queue := range []string{"emails", "orders"} {
			if err := c.AddHistory(t.Context(), &total, queue); err != nil {
				t.Fatal(err)
			}
		}
		points := total.Points()
		if len(points) != 4 {
			t.Errorf("%d points, want 4", len(points))
		}
		for i, p := range points {
			if p.Dead != 1 || p.Ready != 1 {
				t.Errorf("point %d has %d ready and %d dead messages, want 1 and 1", i, p.Ready, p.Dead)
			}
		}
	})
}
