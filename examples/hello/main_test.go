package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mailboxmq/mailbox"
	_ "github.com/mailboxmq/mailbox/membox"
)

func TestHelloAcksEveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const url = "memory://orders"
		orders, err := mailbox.OpenURL[Order](t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer orders.Close()
		if _, err := orders.Send(t.Context(), Order{Drink: "coffee"}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- serve(ctx, url) }()
		synctest.Wait()
		if stats, err := orders.Stats(t.Context()); err != nil || stats != (mailbox.Stats{}) {
			t.Errorf("orders are left: %+v, %v", stats, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
