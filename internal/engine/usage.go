package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Usage is how much of its bounds the shard uses, as of now.
func (s *Shard) Usage(now Moment) driver.ShardUsage {
	s.Advance(now)
	usage := driver.ShardUsage{Stats: s.stats, Bytes: s.bytes}
	if s.config.RetainReady.Age > 0 && s.stats.Ready+s.stats.Delayed > 0 {
		if born, ok := s.oldestBorn(); ok {
			usage.OldestReady = max(time.Duration(now.At-born), 0)
		}
	}
	if s.stats.Dead > 0 && s.unseen == 0 {
		if oldest := s.oldestDead(); oldest != nil {
			usage.OldestDead = max(time.Duration(now.At-oldest.Born), 0)
		}
	}
	return usage
}
