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
