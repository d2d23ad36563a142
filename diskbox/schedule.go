package diskbox

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Schedules on disk. A record has the key r, the number of the queue and the name:
//
//	version definition revision through runs, and for each run: due at message-id
//
// Times are Unix milliseconds; 0 stands for none. Versions before ignore these records, so
// that nothing is sent for the schedules of a directory while one of them has it open.

func appendScheduleKey(dst []byte, queue uint32, name string) []byte {
	return append(appendQueueKey(dst, scheduleKind, queue), name...)
}

// Scheduled records a schedule, or its removal.
func (j *journal) Scheduled(queue uint32, s *driver.Schedule) {
	if !j.knows(queue) {
		return
	}
	j.key = appendScheduleKey(j.key[:0], queue, s.Name)
	if s.Revision == 0 {
		j.batch.Delete(j.key)
		return
	}
	w := j.begin()
	w.number(recordVersion)
	w.bytes(s.Definition)
	w.number(s.Revision)
	w.milliseconds(s.Through)
	w.number(uint64(len(s.Runs)))
	for i := range s.Runs {
		w.milliseconds(s.Runs[i].Due)
		w.milliseconds(s.Runs[i].At)
		w.text(s.Runs[i].MessageID)
	}
	j.end()
}

func (w *writer) milliseconds(at time.Time) {
	if at.IsZero() {
		w.signed(0)
		return
	}
	w.signed(at.UnixMilli())
}

func (r *reader) milliseconds() time.Time {
	n := r.signed()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// readSchedule reads a record; ok is false if it is damaged.
func readSchedule(key, value []byte) (s driver.Schedule, ok bool) {
	if len(key) <= queueKeyLen {
		return s, false
	}
	r := open(key, value)
	s.Name, s.Definition = string(key[queueKeyLen:]), []byte(r.text())
	s.Revision, s.Through = r.number(), r.milliseconds()
	for range min(r.number(), driver.MaxRuns) {
		s.Runs = append(s.Runs, driver.Run{Due: r.milliseconds(), At: r.milliseconds(), MessageID: r.text()})
	}
	return s, !r.damaged && s.Revision != 0 && len(r.buf) == 0
}

// readSchedules reads the schedules of all queues.
func (r *recovery) readSchedules() error {
	return r.each(scheduleKind, func(key, value []byte) error {
		q := r.queueOf(key)
		if q == nil {
			return nil
		}
		s, ok := readSchedule(key, value)
		if !ok {
			return damagedError("the record of a schedule")
		}
		q.Schedules = append(q.Schedules, s)
		return nil
	})
}

// schedule removes a damaged record.
func (r *repair) schedule(key, value []byte) error {
	if r.found.queueOf(key) == nil { // an orphan
		return nil
	}
	if _, ok := readSchedule(key, value); !ok {
		return r.remove(key)
	}
	return nil
}
