package diskbox

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// A Listed message is one that List found.
type Listed struct {
	Queue string
	Shard int
	// State is "ready", "delayed", "in flight", "dead" or "damaged".
	State      string
	ID         string
	EnqueuedAt time.Time
	Deliveries int
	// DueIn is how long until a delayed or in-flight message is ready.
	DueIn                                    time.Duration
	Reason                                   driver.Reason // of a dead letter
	LastError, Group, ReplyTo, CorrelationID string
	Attributes                               map[string]string
	Size                                     int
	Body                                     []byte
}

// List calls yield for every message in dir, a directory that no process may have open
// or a backup in one file: by queue and shard, messages in the order of delivery, then dead
// letters. It changes nothing, and blocks until it is done or ctx ends. Codes: those of
// Check, and errors of yield.
func List(ctx context.Context, dir string, options *Options, yield func(*Listed) error) error {
	s, err := openForReading(ctx, dir, options)
	if err != nil {
		return err
	}
	l := &lister{ctx: ctx, store: s, yield: yield}
	err = l.run()
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

// list yields one message, unless an error has ended the list.
func (l *lister) list(queue string, shard int, state string, e *engine.Entry) {
	if l.err != nil {
		return
	}
	found := &Listed{
		Queue: queue, Shard: shard, State: state, ID: e.ID, EnqueuedAt: time.Unix(0, e.EnqueuedAt).UTC(),
		Deliveries: int(e.Deliveries), Size: int(e.Size), Body: e.Body,
	}
	if state == stateDelayed || state == stateInFlight {
		found.DueIn = l.dueIn(e)
	}
	if x := e.Extra; x != nil {
		found.Group, found.ReplyTo, found.CorrelationID, found.LastError, found.Attributes = x.Group, x.ReplyTo, x.CorrelationID, x.LastError, x.Attributes
		if state == stateDead {
			found.Reason = x.Reason
		}
	}
	l.err = l.yield(found)
}

// The states of listed messages.
const (
	stateReady    = "ready"
	stateDelayed  = "delayed"
	stateInFlight = "in flight"
	stateDead     = "dead"
	stateDamaged  = "damaged"
)

// A lister reads all messages of a store.
type lister struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call
	store *store.Store
	now   engine.Moment
	yield func(*Listed) error
	err   error
}

func (l *lister) run() error {
	axis, err := readAxis(kernelClock{}, time.Now, l.store)
	if err != nil {
		return err
	}
	l.now = engine.Moment{At: axis.now(), Wall: time.Now().UnixNano()}
	recovered, err := recoverAll(l.store, axis, l.now)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(recovered.queues)) {
		l.queue(id, recovered.queues[id])
	}
	return l.err
}

func (l *lister) queue(id uint32, q *host.RestoredQueue) {
	for n := range q.Shards {
		shard := &q.Shards[n]
		out := make(map[uint64]*engine.Entry)
		for _, e := range shard.InFlight {
			out[e.Seq] = e
		}
		reader := &backlog{store: l.store, shard: host.ShardID{Queue: id, Shard: uint16(n)}}
		for e := range reader.Waiting(0) {
			if leased := out[e.Seq]; leased != nil {
				l.list(q.Name, n, stateInFlight, leased)
			} else {
				l.list(q.Name, n, l.state(e), e)
			}
			if l.stopped() {
				return
			}
		}
		for e := range reader.Dead(0) {
			l.list(q.Name, n, stateDead, e)
			if l.stopped() {
				return
			}
		}
		if l.err == nil {
			l.err = reader.Err()
		}
	}
}

func (l *lister) stopped() bool {
	if l.err == nil {
		l.err = l.ctx.Err()
	}
	return l.err != nil
}

// dueIn returns when a message is due, from now.
func (l *lister) dueIn(e *engine.Entry) time.Duration {
	if e.Is(engine.Wall) {
		return time.Duration(int64(e.Due) - l.now.Wall)
	}
	return time.Duration(e.Due - l.now.At)
}

func (l *lister) state(e *engine.Entry) string {
	switch {
	case e.Is(engine.Damaged):
		return stateDamaged
	case l.dueIn(e) > 0:
		return stateDelayed
	}
	return stateReady
}
