package diskbox

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// ownedKinds are the kinds of records that belong to a queue, beside the one that
// says that it is there.
var ownedKinds = slices.Concat(liveKinds, deadKinds, []byte{countKind, dedupKind})

// orphans are records of queues that are not there, counted by queue.
//
// The record of a queue is written before, or together with, the first record
// that belongs to it, and goes together with the last, so a crash leaves none. If
// there are some all the same, something is wrong with the store, or with a version
// that wrote it.
type orphans map[uint32]int

func (o orphans) records() (sum int) {
	for _, records := range o {
		sum += records
	}
	return sum
}

// findOrphans notes the records of queues that are not there. It steps over those
// of queues that are.
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
				Detail: fmt.Sprintf("there are records of queue %d, and the last that was made is %d; restore a backup", queue, r.lastID),
			}
		}
	}
	return nil
}

// tell says that there are some. They are left alone: they do no harm, and if it
// is the queue's own record that was lost, they are all that is left of it.
func (o orphans) tell(logger *slog.Logger) {
	if len(o) > 0 && logger != nil {
		logger.Warn("there are records of queues that are not there; Check counts them",
			"records", o.records(), "queues", len(o))
	}
}
