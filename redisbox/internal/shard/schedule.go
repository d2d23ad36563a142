package shard

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// ShardOfSchedule returns the shard that the messages of a schedule go to, and that stores it.
func (q *Queue) ShardOfSchedule(name string) *Shard {
	if q.Settings.Load().Config.StrictGroups {
		name = "" // messages without a group are one group
	}
	return q.ShardOf(name)
}

// Fire calls fire.lua, and returns its code and the schedule.
func (s *Shard) Fire(ctx context.Context, f *driver.Firing) (code string, now driver.Schedule, err error) {
	script, what := FireScript, "k"
	switch {
	case f.Remove:
		script, what = FireFullScript, "r"
	case f.Definition != nil:
		what = "d"
	case len(f.Messages) == 0: // it needs no memory
		script = FireFullScript
	}
	args := []string{
		f.Name, strconv.FormatUint(f.Revision, 10), strconv.FormatUint(rand.Uint64N(1<<53-1)+1, 10),
		strconv.FormatInt(milliseconds(f.Through), 10), what, string(f.Definition), "",
	}
	dues, wall := make([]float64, len(f.Messages)), s.Clock.wallNow()
	for i := range f.Messages {
		msg := &f.Messages[i]
		dues[i] = float64(milliseconds(msg.Due))
		id, extra := s.NewID(), s.Queue.Special(&msg.Outgoing)
		args = append(args, id, packRecord(id, wall, &msg.Outgoing), extra.pack())
	}
	args[len(args)-3*len(f.Messages)-1] = PackDoubles(dues...)
	a, err := s.CallDurably(ctx, script, false, args...)
	if err != nil {
		return "", now, err
	}
	if code, err = a.Rest[0].ToString(); err != nil {
		return "", now, UnreadableAnswer(err)
	}
	now, err = a.schedule(f.Name, a.Rest[1])
	return code, now, err
}

// ScheduleNames calls schedules.lua, and returns the names of all schedules in the shard.
func (s *Shard) ScheduleNames(ctx context.Context) ([]string, error) {
	a, err := s.call(ctx, SchedulesScript, CallOptions{})
	if err != nil {
		return nil, err
	}
	return a.Rest[0].AsStrSlice()
}

// Schedules calls schedules.lua, and returns those of the schedules that exist.
func (s *Shard) Schedules(ctx context.Context, names []string) (all []driver.Schedule, err error) {
	a, err := s.call(ctx, SchedulesScript, CallOptions{}, names...)
	if err != nil {
		return nil, err
	}
	stored, err := a.Rest[0].ToArray()
	if err != nil || len(stored) != len(names) {
		return nil, UnreadableAnswer(err)
	}
	for i, name := range names {
		found, err := a.schedule(name, stored[i])
		if err != nil {
			return nil, err
		}
		if found.Revision != 0 {
			all = append(all, found)
		}
	}
	return all, nil
}

// schedule reads a schedule as fire.lua packs it.
func (a *Answer) schedule(name string, message rueidis.RedisMessage) (driver.Schedule, error) {
	const head, run = 17, 16 + ident.TextLen
	found := driver.Schedule{Name: name, Now: WallTime(a.wall).Truncate(time.Millisecond)}
	packed, err := message.ToString()
	if err != nil || packed == "" {
		return found, err
	}
	if len(packed) < head || len(packed) < head+int(packed[head-1])*run {
		return found, UnreadableAnswer(nil)
	}
	found.Revision, found.Through = uint64(DoubleAt(packed, 0)), millisecondTime(DoubleAt(packed, 1))
	rest := packed[head:]
	for range packed[head-1] {
		found.Runs = append(found.Runs, driver.Run{
			Due: millisecondTime(DoubleAt(rest, 0)), At: millisecondTime(DoubleAt(rest, 1)), MessageID: rest[16:run],
		})
		rest = rest[run:]
	}
	found.Definition = []byte(rest)
	return found, nil
}

// milliseconds returns a time since 1970, and 0 for the zero time.
func milliseconds(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

func millisecondTime(n float64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(n)).UTC()
}
