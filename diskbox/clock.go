package diskbox

import (
	"encoding/binary"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// A bootClock tells one run of the machine from another, and how long it has
// been up. It goes on while the machine sleeps.
type bootClock interface {
	boot() string
	uptime() time.Duration
}

// linuxClock reads what the kernel says. Where it says nothing, every start is
// a new boot: deadlines come late then.
type linuxClock struct{}

func (linuxClock) boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

func (linuxClock) uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// axis maps the time since boot to the axis on which deadlines run.
type axis struct {
	clock  bootClock
	bootID string
	offset time.Duration // what to add to the time since boot
}

// newAxis goes on from the clock record of the last commit. In the same boot
// the axis goes on as if nothing had happened; in another one it goes on where
// it was left.
func newAxis(clock bootClock, record []byte) *axis {
	a := &axis{clock: clock, bootID: clock.boot()}
	if len(record) < 16 {
		a.offset = -clock.uptime()
		return a
	}
	offset := time.Duration(binary.BigEndian.Uint64(record))
	last := time.Duration(binary.BigEndian.Uint64(record[8:]))
	if a.bootID != "" && string(record[16:]) == a.bootID {
		a.offset = offset
		return a
	}
	a.offset = last - clock.uptime()
	return a
}

func (a *axis) now() engine.Instant { return engine.Instant(a.offset + a.clock.uptime()) }

// appendRecord appends the clock record of this moment.
func (a *axis) appendRecord(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.offset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.now()))
	return append(dst, a.bootID...)
}
