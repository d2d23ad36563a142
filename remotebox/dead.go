package remotebox

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// DeadLetter moves leased messages to the dead letters.
func (q *queue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return settle(ctx, q, "dead-letter", oap.OpDeadLetter, requests, filledBy(oap.AppendDeadLetterRequests), oap.ParseFailures, func(r *driver.DeadLetterRequest) int {
		return textOverhead + len(r.Receipt.Handle) + len(r.Reason) +
			min(len(r.Error), driver.MaxCauseBytes) + min(len(r.ErrorType), driver.MaxCauseBytes)
	})
}

// DeadLetters lists the dead letters, a page at a time.
func (q *queue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return pages(ctx, q.backend, &listing{
		name: "list dead letters", code: oap.OpDeadLetters, queue: q, fill: oap.AppendTarget,
	}, oap.ParseDeadLetters)
}

// maxIDs is how many ids go into one request.
const maxIDs = 8192

// someIDs returns the first ids, as many as fit in a request.
func (b *Backend) someIDs(ids []string) []string {
	return ids[:b.fitting(0, min(len(ids), maxIDs), func(i int) int { return binary.MaxVarintLen64 + len(ids[i]) })]
}

// Redrive makes dead letters ready again. More ids than fit in one request are
// several requests; a dead letter whose unique key is held does not end them.
func (q *queue) Redrive(ctx context.Context, ids []string, limit int) (moved int, err error) {
	var held error
	for {
		some := q.backend.someIDs(ids)
		n, err := q.redriveSome(ctx, ids == nil, some, limit)
		moved += n
		ids = ids[len(some):]
		if errors.Is(err, driver.ErrConflict) {
			held, err = cmp.Or(held, err), nil
		}
		if err != nil || len(ids) == 0 || (limit > 0 && n == limit) {
			return moved, cmp.Or(err, held)
		}
		if limit > 0 { // 0 stays what it is: no bound
			limit -= n
		}
	}
}

func (q *queue) redriveSome(ctx context.Context, all bool, ids []string, limit int) (moved int, err error) {
	c := q.backend.newCall(oap.OpRedrive, func(dst []byte, t oap.Target) []byte {
		return oap.AppendRedrive(dst, &oap.Redrive{Target: t, All: all, IDs: ids, Limit: limit})
	})
	o := operation{name: "redrive", queue: q, call: c, numbered: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return 0, err
	}
	defer q.backend.free(c)
	moved, failure, err := oap.ParseMoved(c.payload)
	if err != nil {
		return 0, o.unknown(err.Error())
	}
	if failure != nil {
		return moved, failure
	}
	return moved, nil
}

// Discard removes dead letters permanently.
func (q *queue) Discard(ctx context.Context, ids []string) (removed int, err error) {
	if len(ids) == 0 {
		return 0, q.ready(ctx, "discard")
	}
	for len(ids) > 0 {
		some := q.backend.someIDs(ids)
		n, err := q.count(ctx, "discard", oap.OpDiscard, func(dst []byte, t oap.Target) []byte {
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
func (q *queue) PurgeDead(ctx context.Context) (removed int, err error) {
	return q.count(ctx, "purge dead letters", oap.OpPurgeDead, oap.AppendTarget)
}

// Peek yields messages without touching them, a page at a time. The protocol has no cursors.
func (q *queue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if query.Cursor != nil || query.Last > 0 {
		return func(yield func(driver.Peeked, error) bool) {
			yield(driver.Peeked{}, &driver.Error{Code: driver.ErrUnsupported, Op: "peek", Queue: q.name, Detail: "the protocol of the daemon has neither Cursor nor Last; its HTTP API has a cursor"})
		}
	}
	return pages(ctx, q.backend, &listing{
		name: "peek", code: oap.OpPeek, queue: q,
		fill: func(dst []byte, t oap.Target) []byte { return oap.AppendPeek(dst, t, &query) },
	}, oap.ParsePeeked)
}
