package diskbox

import (
	"context"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
)

// inMemory is the backend that this one is compared with.
var inMemory = drivertest.Backend{
	Open: func(t testing.TB) driver.Opener {
		b := membox.New(nil)
		t.Cleanup(func() { _ = b.Close() })
		return b
	},
	Virtual: true,
}

// TestAgreesWithMemboxAcrossRestarts runs the same programs on both backends, and restarts this
// one in between.
func TestAgreesWithMemboxAcrossRestarts(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunAgainst(t, inMemory, virtual, volume.Of(10_000))
}

func TestAgreesWithMemboxWithoutRestarts(t *testing.T) {
	volume.Repeats(t)
	never := virtual
	never.Restart, never.Crashes = nil, nil
	drivertest.RunAgainst(t, inMemory, never, volume.Of(5_000))
}

// inEightShards gives every queue eight shards.
type inEightShards struct {
	driver.Opener
	driver.Admin
}

const eight = 8

// ConfigureQueue multiplies bounds, so that every shard has room for all of each.
func (b inEightShards) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	config.Shards = eight
	for _, bound := range []*int{
		&config.MaxMessages, &config.MaxBytes, &config.MaxInFlight, &config.MaxDead,
		&config.RetainReady.Count, &config.RetainDead.Count,
	} {
		if *bound > 0 {
			*bound *= eight
		}
	}
	return b.Admin.ConfigureQueue(ctx, name, config)
}

// aSecret is the same for both backends, so that groups go to the same shards.
var aSecret = [32]byte{1, 2, 3}

var eightInMemory = drivertest.Backend{
	Open: func(t testing.TB) driver.Opener {
		b := host.New(host.Options{Secret: aSecret})
		t.Cleanup(func() { _ = b.Close() })
		return inEightShards{b, b}
	},
	Virtual: true,
}

var eightOnDisk = drivertest.Backend{
	Open: func(t testing.TB) driver.Opener {
		m := start(t, storetest.NewDisk())
		return inEightShards{m, m}
	},
	Restart: func(t testing.TB, old driver.Opener, how drivertest.Crash) driver.Opener {
		m := old.(inEightShards).Opener.(*machine)
		turns := m.host.Turns()
		again := restart(t, m, how).(*machine)
		again.host.SetTurns(turns)
		return inEightShards{again, again}
	},
	// A crash may lose leases unless a send was accepted after them, and programs plan these
	// sends for one shard.
	Crashes: []drivertest.Crash{drivertest.CrashClean},
	Virtual: true,
}

func TestAgreesWithMemboxInEightShards(t *testing.T) {
	volume.Repeats(t)
	t.Run("with restarts", func(t *testing.T) { drivertest.RunAgainst(t, eightInMemory, eightOnDisk, volume.Of(5_000)) })
	t.Run("without restarts", func(t *testing.T) {
		never := eightOnDisk
		never.Restart, never.Crashes = nil, nil
		drivertest.RunAgainst(t, eightInMemory, never, volume.Of(5_000))
	})
}

var _ engine.Reader = (*backlog)(nil)
