package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHelloServesUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		var attempts []time.Duration
		err := serve(ctx, func(order Order) error {
			attempts = append(attempts, time.Since(start))
			if order.Drink != "tea" || order.Table != 4 {
				t.Errorf("the order is %+v", order)
			}
			if len(attempts) == 1 {
				return errors.New("the kettle is cold")
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("serve ended with %v", err)
		}
		if len(attempts) != 2 || attempts[0] != 0 || attempts[1] != 30*time.Second {
			t.Errorf("the order was tried at %v, want at once and 30 s later", attempts)
		}
	})
}
