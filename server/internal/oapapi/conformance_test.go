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
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// wire is remotebox, OAP/1 frames and the broker.
var wire = sabotage.Wire{
	Open: func(t testing.TB, backend sabotage.Backend, ring *keyring.Ring) driver.Opener {
		d := newDaemonWith(t, backend, oapapi.Options{}, ring, mint(t, ring))
		return newRemote(t, d, d.client())
	},
	Hides: map[string]string{
		"denies-that-it-releases": "the client refuses what the traits of the backend deny",
		"throttles-for-any-time":  "the client checks the time of a throttle",
		"races-on-a-unique-key":   "sends that come at once share a call of the backend",
	},
}

// overMemory is the same in front of a memory backend, in virtual time.
var overMemory = wire.Backend()

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, overMemory)
}

// TestFlowSaboteursAreCaughtThroughFrames shows that the suite sees faults of time and flow through
// the wire.
func TestFlowSaboteursAreCaughtThroughFrames(t *testing.T) {
	volume.InFull(t)
	sabotage.ExpectFlowCaught(t, wire)
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
