package diskbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Dump writes a readable listing of dir, a directory that no process may have open or a
// backup in one file: queues, messages in the order of delivery, and dead letters. Bodies
// are cut short. It changes nothing, and blocks until it is done or ctx ends. Codes: those
// of Check, and errors of w.
func Dump(ctx context.Context, w io.Writer, dir string, options *Options) error {
	return walk(ctx, dir, options, func(d *dumper) {
		t := &listing{dumper: d, w: w}
		d.beginQueue, d.beginShard, d.message = t.queue, t.shard, t.message
	})
}

// A listing writes the output of Dump.
type listing struct {
	*dumper
	w io.Writer
}

func (d *listing) printf(format string, args ...any) {
	if !d.stopped() {
		_, d.err = fmt.Fprintf(d.w, format, args...)
	}
}

func (d *listing) queue(q *host.RestoredQueue) {
	config, _ := json.Marshal(q.Config) // cannot fail for this type
	d.printf("queue %q, configured %s\n", q.Name, config)
	for i := range q.Schedules {
		s := &q.Schedules[i]
		d.printf("  schedule %q, dealt with through %s, %d runs kept: %.*q\n",
			s.Name, s.Through.Format(time.RFC3339), len(s.Runs), shownBytes, s.Definition)
	}
}

func (d *listing) shard(n int, shard *host.RestoredShard) {
	d.printf("  shard %d: %d messages of %d bytes, %d in flight, %d delayed; %d dead letters\n",
		n, shard.Totals.Messages, shard.Totals.Bytes, len(shard.InFlight), shard.Totals.Delayed, shard.Totals.Dead)
}

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
	return walk(ctx, dir, options, func(d *dumper) {
		var queue string
		shard := 0
		d.beginQueue = func(q *host.RestoredQueue) { queue = q.Name }
		d.beginShard = func(n int, _ *host.RestoredShard) { shard = n }
		d.message = func(state string, e *engine.Entry) {
			if d.err == nil {
				d.err = yield(d.listed(queue, shard, state, e))
			}
		}
	})
}

func (d *dumper) listed(queue string, shard int, state string, e *engine.Entry) *Listed {
	l := &Listed{
		Queue: queue, Shard: shard, State: state, ID: e.ID, EnqueuedAt: time.Unix(0, e.EnqueuedAt).UTC(),
		Deliveries: int(e.Deliveries), Size: int(e.Size), Body: e.Body,
	}
	if state == stateDelayed || state == stateInFlight {
		l.DueIn = d.dueIn(e)
	}
	if x := e.Extra; x != nil {
		l.Group, l.ReplyTo, l.CorrelationID, l.LastError, l.Attributes = x.Group, x.ReplyTo, x.CorrelationID, x.LastError, x.Attributes
		if state == stateDead {
			l.Reason = x.Reason
		}
	}
	return l
}

// The states of listed messages.
const (
	stateReady    = "ready"
	stateDelayed  = "delayed"
	stateInFlight = "in flight"
	stateDead     = "dead"
	stateDamaged  = "damaged"
)

// A dumper reads all messages of a store.
type dumper struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call
	store *store.Store
	now   engine.Moment
	err   error

	beginQueue func(q *host.RestoredQueue)
	beginShard func(n int, shard *host.RestoredShard)
	message    func(state string, e *engine.Entry)
}

// walk reads a directory or backup with a dumper that prepare completes.
func walk(ctx context.Context, dir string, options *Options, prepare func(*dumper)) error {
	s, err := openForReading(ctx, dir, options)
	if err != nil {
		return err
	}
	d := &dumper{ctx: ctx, store: s}
	prepare(d)
	err = d.run()
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (d *dumper) run() error {
	axis, err := readAxis(kernelClock{}, time.Now, d.store)
	if err != nil {
		return err
	}
	d.now = engine.Moment{At: axis.now(), Wall: time.Now().UnixNano()}
	recovered, err := recoverAll(d.store, axis, d.now)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(recovered.queues)) {
		d.queue(id, recovered.queues[id])
	}
	return d.err
}

func (d *dumper) queue(id uint32, q *host.RestoredQueue) {
	d.beginQueue(q)
	for n := range q.Shards {
		shard := &q.Shards[n]
		d.beginShard(n, shard)
		out := make(map[uint64]*engine.Entry)
		for _, e := range shard.InFlight {
			out[e.Seq] = e
		}
		reader := &backlog{store: d.store, shard: host.ShardID{Queue: id, Shard: uint16(n)}}
		for e := range reader.Waiting(0) {
			if leased := out[e.Seq]; leased != nil {
				d.message(stateInFlight, leased)
			} else {
				d.message(d.state(e), e)
			}
			if d.stopped() {
				return
			}
		}
		for e := range reader.Dead(0) {
			d.message(stateDead, e)
			if d.stopped() {
				return
			}
		}
		if d.err == nil {
			d.err = reader.Err()
		}
	}
}

func (d *dumper) stopped() bool {
	if d.err == nil {
		d.err = d.ctx.Err()
	}
	return d.err != nil
}

// dueIn returns when a message is due, from now.
func (d *dumper) dueIn(e *engine.Entry) time.Duration {
	if e.Is(engine.Wall) {
		return time.Duration(int64(e.Due) - d.now.Wall)
	}
	return time.Duration(e.Due - d.now.At)
}

func (d *dumper) state(e *engine.Entry) string {
	switch {
	case e.Is(engine.Damaged):
		return stateDamaged
	case d.dueIn(e) > 0:
		return stateDelayed
	}
	return stateReady
}

// shownBytes is how much of a body a listing shows.
const shownBytes = 64

func (d *listing) message(state string, e *engine.Entry) {
	if state == stateDead {
		state = "dead: " + string(e.Extra.Reason)
	}
	var about []string
	add := func(format string, args ...any) { about = append(about, fmt.Sprintf(format, args...)) }
	add("sent %s", time.Unix(0, e.EnqueuedAt).UTC().Format(time.RFC3339Nano))
	if e.Deliveries > 0 {
		add("%d deliveries", e.Deliveries)
	}
	if state == stateDelayed || state == stateInFlight {
		add("due in %v", d.dueIn(e).Round(time.Millisecond))
	}
	if x := e.Extra; x != nil {
		for _, field := range []struct{ name, value string }{
			{"group", x.Group}, {"reply to", x.ReplyTo}, {"correlation", x.CorrelationID}, {"error", x.LastError},
		} {
			if field.value != "" {
				add("%s %q", field.name, field.value)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(x.Attributes)) {
			add("%s=%q", key, x.Attributes[key])
		}
	}
	body := e.Body
	more := ""
	if len(body) > shownBytes {
		body, more = body[:shownBytes], "…"
	}
	d.printf("    %s %s, %s, %d bytes %q%s\n", e.ID, state, strings.Join(about, ", "), e.Size, body, more)
}
