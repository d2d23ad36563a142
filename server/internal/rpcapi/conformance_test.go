package rpcapi_test

import (
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/pipenet"
	"github.com/mailboxmq/mailbox/internal/testing/sabotage"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is the generated client, HTTP/2 and the broker.
func wire(tenant string, options ...connect.ClientOption) sabotage.Wire {
	hides := sabotage.Merged(sabotage.NoFirings(), map[string]string{
		"paused-receives-do-not-wait": "the daemon receives again until the wait of its client is over",
	})
	return sabotage.Wire{ByName: true, Hides: hides, Open: func(t testing.TB, backend sabotage.Backend, ring *keyring.Ring) driver.Opener {
		pipes := pipenet.Listen()
		d := newDaemonOn(t, backend, broker.Limits{}, ring, pipes, pipes.Dial)
		return newRPCOpener(d, d.mint(t, tenant), options...)
	}}
}

// overMemory is the same in front of a memory backend, in virtual time.
func overMemory(tenant string, options ...connect.ClientOption) drivertest.Backend {
	return wire(tenant, options...).Backend()
}

// TestConformance runs the whole suite through gRPC.
func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, overMemory("", connect.WithGRPC()))
}

// TestFlowSaboteursAreCaughtThroughGRPC shows that the suite sees faults of time and flow through the
// wire.
func TestFlowSaboteursAreCaughtThroughGRPC(t *testing.T) {
	volume.InFull(t)
	sabotage.ExpectFlowCaught(t, wire("", connect.WithGRPC()))
}

// The other protocols share everything but the framing and the codec with gRPC,
// so that random programs are enough for them.
func TestEveryProtocolAgreesWithTheModel(t *testing.T) {
	for name, protocol := range map[string][]connect.ClientOption{
		"gRPC":         {connect.WithGRPC()},
		"gRPC-Web":     {connect.WithGRPCWeb()},
		"Connect":      {},
		"Connect JSON": {connect.WithProtoJSON()},
	} {
		t.Run(name, func(t *testing.T) { drivertest.RunRandom(t, overMemory("acme", protocol...), 60) })
	}
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunConcurrent(t, overMemory("", connect.WithGRPC()), drivertest.Load{
		Config: driver.Config{MaxDeliveries: 3}, Messages: volume.Of(2000),
	})
}

// overDisk is the same over TCP on loopback and a store on disk, on the real
// clock.
var overDisk = drivertest.Backend{
	ByName: true,
	Open: func(t testing.TB) driver.Opener {
		return startOnDisk(t, t.TempDir(), keyring.New(keyring.NewKey()))
	},
	Restart: func(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
		machine := old.(*onDisk)
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
		return startOnDisk(t, machine.dir, machine.daemon.ring)
	},
}

type onDisk struct {
	*rpcOpener
	dir string
}

func startOnDisk(t testing.TB, dir string, ring *keyring.Ring) *onDisk {
	t.Helper()
	disk, err := diskbox.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemonOnLoopback(t, disk, ring)
	return &onDisk{newRPCOpener(d, d.mint(t, ""), connect.WithGRPC()), dir}
}

func TestConformanceOverLoopbackAndDisk(t *testing.T) {
	t.Parallel() // it mostly waits
	volume.OnlyAtLength(t, "it takes minutes of real time")
	drivertest.Run(t, overDisk)
}

func TestKeepsItsPromisesUnderLoadOverLoopbackAndDisk(t *testing.T) {
	drivertest.RunConcurrent(t, overDisk, drivertest.Load{
		Producers: 8, Consumers: 8, Messages: 300, Restarts: 2, Config: driver.Config{MaxDeliveries: 20},
	})
}
