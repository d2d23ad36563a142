package diskbox

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/store"
)

// A bootClock tells one run of the machine from another, and how long it has
// been up. It goes on while the machine sleeps.
type bootClock interface {
	boot() string
	uptime() time.Duration
}

// kernelClock reads what the kernel says. Where it says nothing, every start is
// a new boot: deadlines come late then.
type kernelClock struct{}

// axis maps the time since boot to the axis on which deadlines run.
type axis struct {
	clock  bootClock
	bootID string
	offset time.Duration // what to add to the time since boot
	// running, once it is set, is the present on the axis. It may fall behind
	// the time since boot, because it stands still while the machine sleeps, and
	// what is written down must fit the deadlines that were set by it.
	running func() engine.Instant
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

// readAxis is newAxis with the record that is in a store.
func readAxis(clock bootClock, s *store.Store) (*axis, error) {
	value, err := s.Get(clockKey, nil)
	if errors.Is(err, driver.ErrNotFound) {
		if _, err := s.Get(metaKey, nil); err == nil { // it was written together with that
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

// appendRecord appends the clock record of this moment.
func (a *axis) appendRecord(dst []byte) []byte {
	now := a.now()
	dst = binary.BigEndian.AppendUint64(dst, uint64(time.Duration(now)-a.clock.uptime()))
	dst = binary.BigEndian.AppendUint64(dst, uint64(now))
	return append(dst, a.bootID...)
}
