package diskbox

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// ownedKinds are the kinds of records that belong to a queue, besides the record of the
// queue itself.
var ownedKinds = slices.Concat(liveKinds, deadKinds, []byte{countKind, dedupKind, scheduleKind})

// orphans are records of queues that do not exist, counted by queue.
//
// The record of a queue is written before, or together with, the first record that
// belongs to it, and removed together with the last, so a crash leaves no orphans. If
// there are some, the store or a version that wrote it is faulty.
type orphans map[uint32]int

func (o orphans) records() (sum int) {
	for _, records := range o {
		sum += records
	}
	return sum
}

// findOrphans counts the records of queues that do not exist. It skips the records of
// existing queues.
func (r *recovery) findOrphans() error {
	r.orphans = make(orphans)
	for _, kind := range ownedKinds {
		it := r.store.Iterate([]byte{kind}, []byte{kind + 1})
		for more := it.Next(); more; {
			if len(it.Key()) < queueKeyLen {
				more = it.Next()
				continue
			}
			queue := binary.BigEndian.Uint32(it.Key()[1:])
			if r.queues[queue] != nil {
				more = it.Seek(successor(appendQueueKey(nil, kind, queue)))
				continue
			}
			r.orphans[queue]++
			more = it.Next()
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
	for queue := range r.orphans {
		if queue > r.lastID {
			return &driver.Error{
				Code: driver.ErrIntegrity, Op: "open",
				Detail: fmt.Sprintf("found records of queue %d, but the last queue number is %d; restore a backup", queue, r.lastID),
			}
		}
	}
	return nil
}

// log logs the orphans. They are left alone: they do no harm, and if the record of the
// queue itself was lost, they are all that remains of it.
func (o orphans) log(logger *slog.Logger) {
	if len(o) > 0 && logger != nil {
		logger.Warn("found records of queues that do not exist; Check counts them",
			"records", o.records(), "queues", len(o))
	}
}
