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

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Dump writes a listing of everything in dir, which nobody may have open, for
// people to read: queues, messages in the order in which they would go, and
// dead letters. Bodies are cut short. It changes nothing, and blocks for as long
// as it takes or until ctx ends. Codes: those of Check, and whatever w returns.
func Dump(ctx context.Context, w io.Writer, dir string, options *Options) error {
	s, err := openForReading(ctx, dir, options)
	if err != nil {
		return err
	}
	d := &dumper{ctx: ctx, store: s, w: w}
	err = d.run()
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

type dumper struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call
	store *store.Store
	w     io.Writer
	now   engine.Instant
	err   error
}

func (d *dumper) run() error {
	axis, err := readAxis(kernelClock{}, d.store)
	if err != nil {
		return err
	}
	d.now = axis.now()
	recovered, err := recoverAll(d.store, d.now)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(recovered.queues)) {
		d.queue(id, recovered.queues[id])
	}
	return d.err
}

func (d *dumper) printf(format string, args ...any) {
	if d.err == nil {
		d.err = d.ctx.Err()
	}
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format, args...)
	}
}

func (d *dumper) queue(id uint32, q *host.RestoredQueue) {
	config, _ := json.Marshal(q.Config) // has no part that can fail
	d.printf("queue %q, configured %s\n", q.Name, config)
	for n, shard := range q.Shards {
		d.printf("  shard %d: %d messages of %d bytes, %d in flight, %d delayed; %d dead letters\n",
			n, shard.Totals.Messages, shard.Totals.Bytes, len(shard.Out), shard.Totals.Delayed, shard.Totals.Dead)
		out := make(map[uint64]*engine.Entry)
		for _, e := range shard.Out {
			out[e.Seq] = e
		}
		reader := &shelf{store: d.store, shard: host.ShardID{Queue: id, Shard: uint16(n)}}
		for e := range reader.Waiting(0) {
			if leased := out[e.Seq]; leased != nil {
				d.message("in flight", leased)
			} else {
				d.message(d.state(e), e)
			}
			if d.err != nil {
				return
			}
		}
		for e := range reader.Dead(0) {
			d.message("dead: "+string(e.Extra.Reason), e)
			if d.err != nil {
				return
			}
		}
		if d.err == nil {
			d.err = reader.Err()
		}
	}
}

func (d *dumper) state(e *engine.Entry) string {
	switch {
	case e.Is(engine.Damaged):
		return "damaged"
	case e.Due > d.now:
		return "delayed"
	}
	return "ready"
}

// shownBytes is how much of a body a listing shows.
const shownBytes = 64

func (d *dumper) message(state string, e *engine.Entry) {
	var about []string
	add := func(format string, args ...any) { about = append(about, fmt.Sprintf(format, args...)) }
	add("sent %s", time.Unix(0, e.EnqueuedAt).UTC().Format(time.RFC3339Nano))
	if e.Deliveries > 0 {
		add("%d deliveries", e.Deliveries)
	}
	if state == "delayed" || state == "in flight" {
		add("due in %v", time.Duration(e.Due-d.now).Round(time.Millisecond))
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
