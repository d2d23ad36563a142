package remotebox

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// deadLetters is what a queue can do if the backend behind the daemon keeps dead
// letters. Its methods block until the daemon has answered.
type deadLetters struct{ of *queue }

var _ driver.DeadLetterer = deadLetters{}

// DeadLetter moves leased messages to the dead letters.
func (d deadLetters) DeadLetter(ctx context.Context, burials []driver.Burial) error {
	return settle(ctx, d.of, "dead-letter", oap.OpBury, burials, oap.AppendBury, oap.ParseFailures, func(b *driver.Burial) int {
		return textOverhead + len(b.Receipt.Handle) + len(b.Reason) +
			min(len(b.Error), driver.MaxCauseBytes) + min(len(b.ErrorType), driver.MaxCauseBytes)
	})
}

// DeadLetters lists the dead letters, a page at a time.
func (d deadLetters) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return pages(ctx, d.of.backend, &listing{
		name: "list dead letters", code: oap.OpDeadLetters, queue: d.of, fill: oap.AppendTarget,
	}, oap.ParseDeadLetters)
}

// maxIDs is how many ids go into one request.
const maxIDs = 8192

// Redrive makes dead letters ready again. More ids than fit in one request are
// several requests.
func (d deadLetters) Redrive(ctx context.Context, ids []string, limit int) (moved int, err error) {
	for {
		some := ids[:min(len(ids), maxIDs)]
		n, err := d.redriveSome(ctx, ids == nil, some, limit)
		moved += n
		ids = ids[len(some):]
		if err != nil || len(ids) == 0 || (limit > 0 && n == limit) {
			return moved, err
		}
		if limit > 0 { // 0 stays what it is: no bound
			limit -= n
		}
	}
}

func (d deadLetters) redriveSome(ctx context.Context, all bool, ids []string, limit int) (moved int, err error) {
	c := d.of.backend.newCall(oap.OpRedrive, func(dst []byte, t oap.Target) []byte {
		return oap.AppendRedrive(dst, &oap.Redrive{Target: t, All: all, IDs: ids, Limit: limit})
	})
	o := operation{name: "redrive", queue: d.of, call: c, numbered: true}
	if err := d.of.backend.roundTrip(ctx, &o); err != nil {
		return 0, err
	}
	defer d.of.backend.free(c)
	moved, failure, err := oap.ParseMoved(c.payload)
	if err != nil {
		return 0, o.unknown(err.Error())
	}
	if failure != nil {
		return moved, failure
	}
	return moved, nil
}

// Discard removes dead letters for ever.
func (d deadLetters) Discard(ctx context.Context, ids []string) (removed int, err error) {
	if len(ids) == 0 {
		return 0, d.of.ready(ctx, "discard")
	}
	for len(ids) > 0 {
		some := ids[:min(len(ids), maxIDs)]
		n, err := d.of.count(ctx, "discard", oap.OpDiscard, func(dst []byte, t oap.Target) []byte {
			return oap.AppendDiscard(dst, t, some)
		})
		if removed += n; err != nil {
			return removed, err
		}
		ids = ids[len(some):]
	}
	return removed, nil
}

// PurgeDead removes all dead letters.
func (d deadLetters) PurgeDead(ctx context.Context) (removed int, err error) {
	return d.of.count(ctx, "purge dead letters", oap.OpPurgeDead, oap.AppendTarget)
}

// peeker is what a queue can do if the backend behind the daemon can be looked
// into.
type peeker struct{ of *queue }

var _ driver.Peeker = peeker{}

// Peek yields messages without touching them, a page at a time.
func (p peeker) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return pages(ctx, p.of.backend, &listing{
		name: "peek", code: oap.OpPeek, queue: p.of,
		fill: func(dst []byte, t oap.Target) []byte { return oap.AppendPeek(dst, t, &query) },
	}, oap.ParsePeeked)
}
