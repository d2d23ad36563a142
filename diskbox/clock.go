package diskbox

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/computer"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/store"
)

// A bootClock identifies the current boot of the machine, and returns the time since. It
// includes the time that the machine sleeps.
type bootClock interface {
	boot() string
	uptime() time.Duration
}

// kernelClock asks the kernel. Where the kernel does not tell, every start counts as a new
// boot, and deadlines come late.
type kernelClock struct{}

// simulatedClock asks a computer that is simulated.
type simulatedClock struct{ computer.Computer }

func (c simulatedClock) boot() string          { return c.Boot() }
func (c simulatedClock) uptime() time.Duration { return c.Uptime() }

// axis maps the time since boot to the time axis of deadlines.
type axis struct {
	clock  bootClock
	wall   func() time.Time
	bootID string
	offset time.Duration // what to add to the time since boot
	// skipped is by how much the axis has moved since the clock record because of the wall
	// clock, and isOld says that a version which records no wall time wrote the record.
	skipped time.Duration
	isOld   bool
	// running, once it is set, returns the current time on the axis. It may fall
	// behind the time since boot, because it stops while the machine sleeps, and the
	// clock record must match the deadlines that were computed with it.
	running func() engine.Instant
}

// newAxis continues from the clock record of the last commit. In the same boot the axis
// follows the time since boot; in another boot it continues from the time of the record, plus
// the time that has passed since then by the wall clock, if that has not gone back. So it
// does if the time since boot went back, as when a virtual machine is started from a snapshot.
func newAxis(clock bootClock, wall func() time.Time, record []byte) *axis {
	a := &axis{clock: clock, wall: wall, bootID: clock.boot()}
	if len(record) < 16 {
		a.offset = -clock.uptime()
		return a
	}
	offset := time.Duration(binary.BigEndian.Uint64(record))
	last := time.Duration(binary.BigEndian.Uint64(record[8:]))
	boot, then, _ := strings.Cut(string(record[16:]), wallMark)
	a.offset = last - clock.uptime()
	a.isOld = len(then) != 8
	if a.bootID != "" && boot == a.bootID && offset >= a.offset {
		a.offset = offset
		return a
	}
	if !a.isOld {
		a.skipped = max(time.Duration(wall().UnixNano()-int64(binary.BigEndian.Uint64([]byte(then)))), 0)
		a.offset += a.skipped
	}
	return a
}

// wallMark is between the boot id and the wall time in a clock record. Versions that do not
// record the wall time take it for another boot.
const wallMark = "\x00"

// moveLease lets a lease last as long as if the wall clock had not moved the axis.
func (a *axis) moveLease(e *engine.Entry) {
	e.Due = e.Due.Add(a.skipped)
	e.HoldUntil = max(e.HoldUntil, e.HoldUntil.Add(a.skipped)) // it may be the last instant of all
}

// readAxis is newAxis with the clock record of a store.
func readAxis(clock bootClock, wall func() time.Time, s *store.Store) (*axis, error) {
	value, err := s.Get(clockKey, nil)
	if errors.Is(err, driver.ErrNotFound) {
		if _, err := s.Get(metaKey, nil); err == nil { // both records are written together
			return nil, damagedError("the record of the clock")
		}
		return newAxis(clock, wall, nil), nil
	}
	if err != nil {
		return nil, err
	}
	record, ok := sealed(clockKey, value)
	if !ok {
		return nil, damagedError("the record of the clock")
	}
	return newAxis(clock, wall, record), nil
}

func (a *axis) now() engine.Instant {
	if a.running != nil {
		return a.running()
	}
	return engine.Instant(a.offset + a.clock.uptime())
}

// appendRecord appends a clock record of the current time.
func (a *axis) appendRecord(dst []byte) []byte {
	now := a.now()
	dst = binary.BigEndian.AppendUint64(dst, uint64(time.Duration(now)-a.clock.uptime()))
	dst = binary.BigEndian.AppendUint64(dst, uint64(now))
	dst = append(append(dst, a.bootID...), wallMark...)
	return binary.BigEndian.AppendUint64(dst, uint64(a.wall().UnixNano()))
}
