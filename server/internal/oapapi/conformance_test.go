package oapapi_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/sabotage"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// overMemory is remotebox, OAP/1 frames, the broker and membox, in virtual time.
var overMemory = inFrontOf(func() driver.Opener { return membox.New(nil) })

// inFrontOf is the same with another backend in memory.
func inFrontOf(backend func() driver.Opener) drivertest.Backend {
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			d := newDaemon(t, backend(), oapapi.Options{})
			return newRemote(t, d, d.client())
		},
		Virtual: true,
	}
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, overMemory)
}

// TestLimitSaboteursAreCaughtThroughFrames shows that the suite sees faults of limits by group through
// the wire.
func TestLimitSaboteursAreCaughtThroughFrames(t *testing.T) {
	volume.InFull(t)
	sabotage.ExpectLimitsCaught(t, func(spoil func(sabotage.Backend) sabotage.Backend) drivertest.Backend {
		return inFrontOf(func() driver.Opener { return spoil(membox.New(nil)) })
	})
}

func TestAgreesWithTheModel(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunRandom(t, overMemory, volume.Of(20_000))
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	for _, test := range []struct {
		name   string
		config driver.Config
	}{
		{"defaults", driver.Config{}},
		{"several shards of strict groups", driver.Config{Shards: 4, StrictGroups: true}},
		{"tight bounds", driver.Config{MaxMessages: 500, MaxInFlight: 50, MaxHold: 20 * time.Second}},
		{"few deliveries", driver.Config{MaxDeliveries: 3, MaxDead: 100}},
	} {
		t.Run(test.name, func(t *testing.T) {
			drivertest.RunConcurrent(t, overMemory, drivertest.Load{Config: test.config, Messages: volume.Of(3000)})
		})
	}
}

// overDisk is the same over TCP on loopback and a store on disk, on the real
// clock.
var overDisk = drivertest.Backend{
	Open: func(t testing.TB) driver.Opener {
		return startOnDisk(t, t.TempDir(), keyring.New(keyring.NewKey()))
	},
	Restart: func(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
		machine := old.(*onDisk)
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
		return startOnDisk(t, machine.dir, machine.ring)
	},
}

type onDisk struct {
	*remote
	dir  string
	ring *keyring.Ring
}

func startOnDisk(t testing.TB, dir string, ring *keyring.Ring) *onDisk {
	t.Helper()
	disk, err := diskbox.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemonWith(t, disk, oapapi.Options{}, ring, mint(t, ring))
	client := remotebox.New([]string{d.listen(t)}, d.token, nil)
	return &onDisk{newRemote(t, d, client), dir, ring}
}

func TestConformanceOverLoopbackAndDisk(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	drivertest.Run(t, overDisk)
}

func TestKeepsItsPromisesUnderLoadOverLoopbackAndDisk(t *testing.T) {
	drivertest.RunConcurrent(t, overDisk, drivertest.Load{
		Producers: 8, Consumers: 8, Messages: 500, Restarts: 2, Config: driver.Config{MaxDeliveries: 20},
	})
}
