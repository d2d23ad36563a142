package diskbox

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// bubbleClock is the clock of a machine that booted at the start of a bubble, and is never
// rebooted.
type bubbleClock struct{}

func (bubbleClock) boot() string          { return "one boot" }
func (bubbleClock) uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// machine is a backend with its disk.
type machine struct {
	*Backend
	disk *storetest.Disk
	wall func() time.Time
}

func start(t testing.TB, disk *storetest.Disk) *machine { return startWithClock(t, disk, nil) }

func startWithClock(t testing.TB, disk *storetest.Disk, wall func() time.Time) *machine {
	t.Helper()
	b, err := Open(t.Context(), "queues", &Options{
		fs: disk.FS(), boot: bubbleClock{}, wall: wall, small: true, secret: aSecret,
		OnFail: func(err error) { t.Errorf("the store has failed: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return &machine{Backend: b, disk: disk, wall: wall}
}

// sound fails the test if Check finds a problem on the disk.
func sound(t testing.TB, disk *storetest.Disk) {
	t.Helper()
	report, err := Check(t.Context(), "queues", &Options{fs: disk.FS(), small: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range report.Problems {
		t.Error(problem)
	}
	if report.Orphans > 0 {
		t.Errorf("%d records belong to no queue", report.Orphans)
	}
}

// everything is the image of a crash that loses no write, synced or not.
func everything() vfs.CrashCloneCfg {
	return vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
}

// restart takes the machine down and up again, with the remains of its disk.
func restart(t testing.TB, old driver.Opener, how drivertest.Crash) driver.Opener {
	m := old.(*machine)
	disk := m.disk
	switch how {
	case drivertest.CrashKill: // all writes survive, synced or not
		disk = storetest.DiskFrom(disk.Mem().CrashClone(everything()))
	case drivertest.CrashPower:
		disk = storetest.DiskFrom(disk.Image(rand.New(rand.NewPCG(3, 4))))
	case drivertest.CrashClean:
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	sound(t, disk)
	return startWithClock(t, disk, m.wall)
}

var virtual = drivertest.Backend{
	Open: func(t testing.TB) driver.Opener { return start(t, storetest.NewDisk()) },
	OpenWithClock: func(t testing.TB, wall func() time.Time) driver.Opener {
		return startWithClock(t, storetest.NewDisk(), wall)
	},
	Restart: restart,
	Crashes: []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill, drivertest.CrashPower},
	Virtual: true,
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, virtual)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
