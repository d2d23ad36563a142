package oap

import (
	"bytes"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Bits of a firing.
const (
	fireDefinition = 1 << iota
	fireRemove
	fireThrough

	fireKnown = fireThrough<<1 - 1
)

// AppendFire writes the payload of OpFire.
func AppendFire(dst []byte, t Target, f *driver.Firing) []byte {
	dst = appendText(AppendTarget(dst, t), f.Name)
	dst = appendNumber(dst, f.Revision)
	bits := byte(0)
	if f.Definition != nil {
		bits |= fireDefinition
	}
	if f.Remove {
		bits |= fireRemove
	}
	if !f.Through.IsZero() {
		bits |= fireThrough
	}
	dst = append(dst, bits)
	if f.Definition != nil {
		dst = appendText(dst, f.Definition)
	}
	if !f.Through.IsZero() {
		dst = appendDueTime(dst, f.Through)
	}
	dst = appendNumber(dst, uint64(len(f.Messages)))
	for i := range f.Messages {
		dst = appendTimeOrNone(dst, f.Messages[i].Due)
		dst = AppendOutgoing(dst, &f.Messages[i].Outgoing)
	}
	return dst
}

// FireBytes returns how long the payload of OpFire is at most, without its target.
func FireBytes(f *driver.Firing) int {
	const times, lengths = 2 + 3*10, 10
	n := lengths + len(f.Name) + 10 + 1 + lengths + len(f.Definition) + times + lengths
	for i := range f.Messages {
		n += times + OutgoingBytes(&f.Messages[i].Outgoing)
	}
	return n
}

// ParseFire reads the payload of OpFire. The firing does not keep the payload.
func ParseFire(payload []byte) (t Target, f driver.Firing, err error) {
	r := reader{rest: payload}
	t = r.target()
	f.Name, f.Revision = r.text(), r.number()
	bits := r.byte()
	if bits > fireKnown {
		r.fail("a firing has unknown fields")
	}
	if bits&fireDefinition != 0 {
		f.Definition = append([]byte{}, r.bytes()...)
	}
	f.Remove = bits&fireRemove != 0
	if bits&fireThrough != 0 {
		f.Through = r.dueTime()
	}
	const leastMessage = 3 // no due time, no optional fields, an empty body
	if n := r.count(leastMessage); n > 0 {
		f.Messages = make([]driver.DueMessage, n)
	}
	for i := range f.Messages {
		m := &f.Messages[i]
		m.Due = r.timeOrNone()
		r.outgoing(&m.Outgoing)
		m.Body = bytes.Clone(m.Body)
	}
	return t, f, r.end()
}

// appendTimeOrNone writes a flag, and then a time of any year, to the nanosecond.
func appendTimeOrNone(dst []byte, at time.Time) []byte {
	if dst = appendFlag(dst, !at.IsZero()); at.IsZero() {
		return dst
	}
	return appendDueTime(dst, at)
}

func (r *reader) timeOrNone() time.Time {
	if !r.flag() {
		return time.Time{}
	}
	return r.dueTime()
}

// AppendSchedule writes a schedule. Schedules follow each other to the end of a payload, which is
// an answer to OpSchedules.
func AppendSchedule(dst []byte, s *driver.Schedule) []byte {
	dst = appendText(dst, s.Name)
	dst = appendText(dst, s.Definition)
	dst = appendNumber(dst, s.Revision)
	dst = appendTimeOrNone(dst, s.Through)
	dst = appendTimeOrNone(dst, s.Now)
	dst = appendNumber(dst, uint64(len(s.Runs)))
	for i := range s.Runs {
		dst = appendTimeOrNone(dst, s.Runs[i].Due)
		dst = appendTimeOrNone(dst, s.Runs[i].At)
		dst = appendText(dst, s.Runs[i].MessageID)
	}
	return dst
}

func (r *reader) schedule() (s driver.Schedule) {
	s.Name, s.Definition = r.text(), bytes.Clone(r.bytes())
	s.Revision, s.Through, s.Now = r.number(), r.timeOrNone(), r.timeOrNone()
	const leastRun = 3
	if n := r.count(leastRun); n > 0 {
		s.Runs = make([]driver.Run, n)
	}
	for i := range s.Runs {
		s.Runs[i] = driver.Run{Due: r.timeOrNone(), At: r.timeOrNone(), MessageID: r.text()}
	}
	return s
}

// ParseSchedules reads schedules.
func ParseSchedules(payload []byte) (all []driver.Schedule, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 && r.err == nil {
		all = append(all, r.schedule())
	}
	return all, r.end()
}

// AppendFired writes the answer to OpFire: whether the firing is done, and the schedule.
func AppendFired(dst []byte, done bool, s *driver.Schedule) []byte {
	return AppendSchedule(appendFlag(dst, done), s)
}

// ParseFired reads the answer to OpFire.
func ParseFired(payload []byte) (done bool, s driver.Schedule, err error) {
	r := reader{rest: payload}
	done = r.flag()
	s = r.schedule()
	return done, s, r.end()
}

// AppendSchedules writes the payload of OpSchedules. An empty name stands for all schedules.
func AppendSchedules(dst []byte, t Target, name string) []byte {
	return appendText(AppendTarget(dst, t), name)
}

// ParseSchedulesRequest reads the payload of OpSchedules.
func ParseSchedulesRequest(payload []byte) (t Target, name string, err error) {
	r := reader{rest: payload}
	t, name = r.target(), r.text()
	return t, name, r.end()
}
