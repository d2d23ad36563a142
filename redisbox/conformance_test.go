package redisbox

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A place is a backend under test, and where it has its queues.
type place struct {
	*Backend
	client rueidis.Client
	prefix string
}

// tick is long enough for a call on a machine that is busy with other tests.
const tick = 300 * time.Millisecond

func connect(t testing.TB, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// open opens a backend whose keys begin with prefix.
func open(t testing.TB, client rueidis.Client, options *Options) *Backend {
	t.Helper()
	b, err := Open(t.Context(), client, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// beside runs a case beside others, because they mostly wait. Those that restart the server
// have it for themselves: they run before the others.
func beside(t testing.TB) {
	if t, ok := t.(*testing.T); ok && !strings.Contains(t.Name(), "/after_") {
		t.Parallel()
	}
}

// restartable is a backend on a server of its own, which writes everything to
// its file before it answers: what was written survives the end of the process.
func restartable(t *testing.T) drivertest.Backend {
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncNo))
	begin := func(t testing.TB, prefix string) driver.Opener {
		client := connect(t, server.ClientOption())
		return &place{Backend: open(t, client, &Options{Prefix: prefix}), client: client, prefix: prefix}
	}
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			beside(t)
			return begin(t, redistest.Prefix(t))
		},
		Restart: func(t testing.TB, old driver.Opener, how drivertest.Crash) driver.Opener {
			p := old.(*place)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			p.client.Close()
			if how == drivertest.CrashKill {
				server.Kill()
				if err := server.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return begin(t, p.prefix)
		},
		Crashes: []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill},
		Tick:    tick,
	}
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	t.Parallel() // it mostly waits
	drivertest.Run(t, restartable(t))
}

func TestConformanceWithSentinels(t *testing.T) {
	volume.InFull(t)
	t.Parallel()
	conform(t, redistest.SharedSentinel(t).ClientOption())
}

func TestConformanceInACluster(t *testing.T) {
	volume.Repeats(t)
	t.Parallel()
	conform(t, redistest.SharedCluster(t).ClientOption())
}

// conform runs the suite on servers that tests share.
func conform(t *testing.T, option rueidis.ClientOption) {
	shared := sharing(t, option)
	open := shared.Open
	shared.Open = func(t testing.TB) driver.Opener {
		beside(t)
		return open(t)
	}
	drivertest.Run(t, shared)
}

// sharing is a backend on servers that tests share.
func sharing(t *testing.T, option rueidis.ClientOption) drivertest.Backend {
	client := connect(t, option)
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Opener { return open(t, client, &Options{Prefix: redistest.Prefix(t)}) },
		Tick: tick,
	}
}

func TestAgreesWithTheModel(t *testing.T) {
	volume.Repeats(t)
	t.Parallel()
	drivertest.RunRandom(t, sharing(t, redistest.SharedServer(t).ClientOption()), volume.Of(5_000))
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	t.Parallel()
	for _, test := range []struct {
		name   string
		config driver.Config
	}{
		{"defaults", driver.Config{}},
		{"strict groups", driver.Config{StrictGroups: true}},
		{"several shards", driver.Config{Shards: 4}},
		{"several shards of strict groups", driver.Config{Shards: 4, StrictGroups: true}},
		{"tight bounds", driver.Config{MaxMessages: 500, MaxInFlight: 50, MaxHold: 20 * time.Second}},
		{"few deliveries", driver.Config{MaxDeliveries: 3, MaxDead: 100}},
		{"a short memory", driver.Config{DedupWindow: 5 * time.Second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			drivertest.RunConcurrent(t, sharing(t, redistest.SharedServer(t).ClientOption()), drivertest.Load{Config: test.config, Messages: volume.Of(1_000)})
		})
	}
}
