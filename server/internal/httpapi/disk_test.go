package httpapi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// durableClient is a client of a daemon with durable messages.
type durableClient struct {
	*client
	dir string
}

// openDisk returns a client of a daemon in front of the disk backend, with real
// files.
func openDisk(t testing.TB, dir string, ring *keyring.Ring) *durableClient {
	t.Helper()
	backend, err := diskbox.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newServiceWith(t, backend, broker.Limits{}, ring)
	c := &durableClient{dir: dir}
	c.client = newClient(s.client, "http://mailbox", s.mint(t, ""), func() error { return errors.Join(s.close(), backend.Close()) })
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestConformanceOnDisk runs the suite through HTTP in front of the disk backend,
// in virtual time. Restarts cannot be tested so: they depend on the uptime of the
// machine, which is not virtual.
func TestConformanceOnDisk(t *testing.T) {
	volume.OnlyAtLength(t, "it takes a minute and a half")
	drivertest.Run(t, drivertest.Backend{
		ByName: true,
		Open: func(t testing.TB) driver.Opener {
			return &unrestarted{openDisk(t, t.TempDir(), keyring.New(keyring.NewKey()))}
		},
		Virtual: true,
	})
}

// unrestarted is a client without the ability to restart.
type unrestarted struct{ *durableClient }

type unrestartedQueue struct{ *clientQueue }

func (u *unrestarted) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := u.durableClient.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &unrestartedQueue{q.(*clientQueue)}, nil
}

func (q *unrestartedQueue) Traits() driver.Traits {
	traits := q.clientQueue.Traits()
	traits.Durability = driver.DurabilityNone
	return traits
}

// TestConformanceOnDiskInRealTime is the same with restarts.
func TestConformanceOnDiskInRealTime(t *testing.T) {
	volume.OnlyAtLength(t, "it takes three minutes of real time")
	ring := keyring.New(keyring.NewKey()) // it outlives the daemon, as its file does
	drivertest.Run(t, drivertest.Backend{
		ByName: true,
		Open:   func(t testing.TB) driver.Opener { return openDisk(t, t.TempDir(), ring) },
		Restart: func(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
			if err := old.(*durableClient).Close(); err != nil {
				t.Error(err)
			}
			return openDisk(t, old.(*durableClient).dir, ring)
		},
		Tick: 100 * time.Millisecond,
	})
}
