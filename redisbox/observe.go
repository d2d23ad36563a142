package redisbox

import (
	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// Observe calls f for every ending in a call of this process, until
// stop is called; see driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) { return b.observers.Add(f) }

// headBytes is the length of the head of an answer; endings follow it.
const headBytes = 8 * 6

// tellObservers tells observers which messages ended in a call.
func (s *shard) tellObservers(reply []rueidis.RedisMessage) {
	observers := &s.queue.backend.observers
	if len(reply) < 2 || !observers.Any() {
		return
	}
	status, _ := reply[0].ToString()
	told, err := reply[1].ToString()
	if err != nil {
		return
	}
	switch {
	case status == "again":
	case status == "ok" && len(told) > headBytes:
		told = told[headBytes:]
	default:
		return
	}
	for told != "" {
		var ending driver.Ending
		var ok bool
		if ending, told, ok = readEnding(told); !ok {
			return
		}
		ending.Queue = s.queue.name
		observers.Tell(ending)
	}
}

// readEnding reads an ending as engine.ended in shard.lua packs it.
func readEnding(told string) (ending driver.Ending, rest string, ok bool) {
	const fixed = 1 + 8 + 8
	if len(told) < fixed {
		return ending, "", false
	}
	switch told[0] {
	case 'd':
		ending.Kind = driver.EndingDied
	case 'r':
		ending.Kind = driver.EndingRemoved
	case 'x':
		ending.Kind = driver.EndingDropped
	}
	ending.Count, ending.Deliveries = int(doubleAt(told[1:], 0)), int(doubleAt(told[1:], 1))
	rest = told[fixed:]
	var reason string
	for _, field := range []struct {
		text *string
		size int // of the length
	}{{&ending.ID, 1}, {&reason, 1}, {&ending.LastError, 2}} {
		if len(rest) < field.size {
			return ending, "", false
		}
		n := int(rest[0])
		if field.size == 2 {
			n |= int(rest[1]) << 8
		}
		if rest = rest[field.size:]; len(rest) < n {
			return ending, "", false
		}
		*field.text, rest = rest[:n], rest[n:]
	}
	ending.Reason = driver.Reason(reason)
	return ending, rest, true
}
