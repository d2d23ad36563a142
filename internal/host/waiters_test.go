package host_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReceiveEndsWithItsHandleOrQueue lets receives begin to wait while their handle is
// closed, or their queue ends. One that missed it would wait for an hour, or for the
// test to be ended.
func TestReceiveEndsWithItsHandleOrQueue(t *testing.T) {
	const rounds, receivers = 300, 4
	for name, test := range map[string]struct {
		end  func(b *host.Backend, q driver.Queue) error
		want driver.Code
	}{
		"closed handle":  {func(_ *host.Backend, q driver.Queue) error { return q.Close() }, driver.ErrClosed},
		"deleted queue":  {func(b *host.Backend, _ driver.Queue) error { return b.DeleteQueue(t.Context(), "orders") }, driver.ErrNotFound},
		"closed backend": {func(b *host.Backend, _ driver.Queue) error { return b.Close() }, driver.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				b := host.New(host.Options{})
				q, err := b.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				ends := make(chan error, receivers)
				for range receivers {
					go func() {
						_, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
						ends <- err
					}()
				}
				for range rand.N(20) { // some wait by now, and some do not
					runtime.Gosched()
				}
				if err := test.end(b, q); err != nil {
					t.Fatal(err)
				}
				for range receivers {
					if err := <-ends; !errors.Is(err, test.want) {
						t.Fatalf("got %v, want %s", err, test.want)
					}
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
