package simulation_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/remotebox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A client is remotebox on a machine of its own, which ends with it.
type client struct {
	*remotebox.Backend
	machine *machine
	once    sync.Once
}

func (c *client) Close() error {
	err := c.Backend.Close()
	c.once.Do(func() {
		if d := c.machine.daemon.Swap(nil); d != nil {
			c.machine.end(d)
		}
	})
	return err
}

// The time that the power is on, in which RunConcurrent restarts the daemon every 3 seconds.
const (
	shortest = 2400 * time.Millisecond
	longest  = 3 * time.Second
	forever  = 10_000 * time.Hour
)

// simulated returns the daemon on a machine with faults. After a number of failures the power
// stays on.
func simulated(f *faults, failures int, spoil func(*machine)) drivertest.Backend {
	lasting := func() time.Duration {
		if failures--; failures < 0 {
			return forever
		}
		return shortest + f.upTo(longest-shortest)
	}
	return drivertest.Backend{
		Virtual: true,
		Open: func(t testing.TB) driver.Opener {
			f.calm = time.Now().Add(time.Second)
			m := newMachine(t, f)
			spoil(m)
			m.start(storetest.NewDisk(), lasting())
			return &client{Backend: remotebox.New([]string{"daemon"}, m.token, &remotebox.Options{Dial: m.dial}), machine: m}
		},
		Restart: func(_ testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
			m := old.(*client).machine
			m.start(m.fail(), lasting())
			return old
		},
		Crashes: []drivertest.Crash{drivertest.CrashPower},
	}
}

// simulate runs one simulation, and returns how often each fault happened.
func simulate(t *testing.T, seed uint64, config driver.Config, spoil func(*machine)) map[string]int {
	t.Helper()
	const restarts = 6
	f := &faults{rng: rand.New(rand.NewPCG(seed, 0)), count: make(map[string]int)}
	drivertest.RunConcurrent(t, simulated(f, restarts, spoil), drivertest.Load{
		Producers: 4, Consumers: 6, Messages: 600, Restarts: restarts, Config: config, Seed: seed,
	})
	return f.count
}

// The configurations of simulated queues take turns.
var configs = []driver.Config{
	{},
	{StrictGroups: true},
	{FairGroups: true},
	{Shards: 4},
	{Shards: 4, StrictGroups: true},
	{MaxMessages: 300, MaxInFlight: 60, MaxHold: 20 * time.Second},
	{MaxDeliveries: 3, MaxDead: 100},
	{DedupWindow: 5 * time.Second},
}

func TestDaemonKeepsItsPromises(t *testing.T) {
	volume.Repeats(t)
	total := make(map[string]int)
	first := volume.Seed(t)
	for n := range uint64(volume.Count(t, volume.Part(3*len(configs), 8), 10_000)) {
		seed := first + n
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			for what, count := range simulate(t, seed, configs[seed%uint64(len(configs))], func(*machine) {}) {
				total[what] += count
			}
		})
	}
	var summary []string
	for _, what := range slices.Sorted(maps.Keys(total)) {
		summary = append(summary, fmt.Sprint(total[what], " ", what))
	}
	t.Log(strings.Join(summary, ", "))
	for _, what := range []string{"refused connections", "cut requests", "cut answers", "late packets", "power failures during an operation"} {
		if total[what] == 0 {
			t.Errorf("there were no %s", what)
		}
	}
}

// lazyVariable is set in the child process in which the daemon answers before a sync.
const lazyVariable = "MAILBOX_SIMULATION_LAZY"

// TestSimulationOfLazyDaemon fails, as it must, in a child process.
func TestSimulationOfLazyDaemon(t *testing.T) {
	if os.Getenv(lazyVariable) == "" {
		t.Skipf("run by TestLazyDaemonIsCaught; to see it fail, set %s", lazyVariable)
	}
	for seed := uint64(1); seed <= 10 && !t.Failed(); seed++ {
		simulate(t, seed, driver.Config{}, func(m *machine) { m.sync = diskbox.SyncInterval })
	}
}

// A daemon that answers before a sync loses sends and acks, and the simulation sees it.
func TestLazyDaemonIsCaught(t *testing.T) {
	volume.InFull(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), executable, "-test.run=^TestSimulationOfLazyDaemon$")
	child.Env = append(os.Environ(), lazyVariable+"=1")
	output, err := child.CombinedOutput()
	if lost := regexp.MustCompile(`(SND|ACK)-1: message `); err == nil || !lost.Match(output) {
		t.Errorf("no lost send or ack was seen: %v\n%s", err, output)
	}
}
