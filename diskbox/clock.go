package diskbox

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
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

// axis maps the time since boot to the time axis of deadlines.
type axis struct {
	clock  bootClock
	bootID string
	offset time.Duration // what to add to the time since boot
	// running, once it is set, returns the current time on the axis. It may fall
	// behind the time since boot, because it stops while the machine sleeps, and the
	// clock record must match the deadlines that were computed with it.
	running func() engine.Instant
}

// newAxis continues from the clock record of the last commit. In the same boot the axis
// follows the time since boot; in another boot it continues from the time of the record. So it
// does if the time since boot went back, as when a virtual machine is started from a snapshot.
func newAxis(clock bootClock, record []byte) *axis {
	a := &axis{clock: clock, bootID: clock.boot()}
	if len(record) < 16 {
		a.offset = -clock.uptime()
		return a
	}
	offset := time.Duration(binary.BigEndian.Uint64(record))
	last := time.Duration(binary.BigEndian.Uint64(record[8:]))
	a.offset = last - clock.uptime()
	if a.bootID != "" && string(record[16:]) == a.bootID {
		a.offset = max(a.offset, offset)
	}
	return a
}

// readAxis is newAxis with the clock record of a store.
func readAxis(clock bootClock, s *store.Store) (*axis, error) {
	value, err := s.Get(clockKey, nil)
	if errors.Is(err, driver.ErrNotFound) {
		if _, err := s.Get(metaKey, nil); err == nil { // both records are written together
			return nil, damagedError("the record of the clock")
		}
		return newAxis(clock, nil), nil
	}
	if err != nil {
		return nil, err
	}
	record, ok := sealed(clockKey, value)
	if !ok {
		return nil, damagedError("the record of the clock")
	}
	return newAxis(clock, record), nil
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
	return append(dst, a.bootID...)
}
