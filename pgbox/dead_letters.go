package pgbox

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

func (h *handle) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		for seen, err := range h.look(ctx, "dead-letters", driver.Query{States: []driver.State{driver.StateDead}}) {
			if !yield(seen.DeadLetter, err) {
				return
			}
		}
	}
}

// page is how many messages are moved, redriven or read in one call.
const page = 256

func (h *handle) Redrive(ctx context.Context, ids []string, limit int) (moved int, err error) {
	if err := h.check(ctx, "redrive"); err != nil {
		return 0, err
	}
	if limit < 0 {
		return 0, h.negativeLimit("redrive", limit)
	}
	if limit == 0 {
		limit = math.MaxInt
	}
	var wanted [][16]byte // nil: all
	if ids != nil {
		if wanted = packIDs(ids); len(wanted) == 0 {
			return 0, nil
		}
	}
	var until *int64
	var held error // why a dead letter stays whose unique key another message holds
	for after, more := int64(0), true; more && moved < limit; {
		var n *int
		var stopped bool
		var woken, endings *string
		var stays, heldBy pgtype.UUID
		r := request{
			sql:  "SELECT * FROM mailbox.redrive($1, $2, $3, $4, $5, $6)",
			args: []any{wanted, int32(min(page, limit-moved)), false, until, after}, wide: 3,
		}
		if err := h.call(ctx, r, one(&until, &after, &n, &stopped, &more, &stays, &heldBy, &woken, &endings)); err != nil {
			return moved, h.outcome(err, "redrive")
		}
		h.backend.happened(ctx, endings, woken)
		if n == nil {
			more = true
			continue
		}
		moved += *n
		h.queue.changed(ctx, *n)
		if stays.Valid && held == nil {
			held = h.keyHeld("redrive", stays.Bytes, heldBy.Bytes)
		}
		if stopped {
			return moved, &driver.Error{Code: driver.ErrFull, Op: "redrive", Queue: h.name, Detail: "the queue is full", RetryAfter: retryAfter}
		}
	}
	return moved, held
}

// keyHeld returns why a message cannot arrive: another one holds its unique key.
func (h *handle) keyHeld(op string, id, holder ulid.ULID) error {
	return &driver.Error{
		Code: driver.ErrConflict, Op: op, Queue: h.name, MessageID: holder.String(), Field: "UniqueKey",
		Detail: "is held by this message, so message " + id.String() + " stays where it is",
	}
}

func (h *handle) negativeLimit(op string, limit int) error {
	return &driver.Error{
		Code: driver.ErrInvalid, Op: op, Queue: h.name, Field: "limit", Detail: fmt.Sprintf("%d is negative; 0 means no limit", limit),
	}
}

// packIDs returns ids as the database has them. Those that no message can have are left out.
func packIDs(ids []string) [][16]byte {
	packed := make([][16]byte, 0, len(ids))
	for _, text := range ids {
		if id, ok := packedID(text); ok {
			packed = append(packed, id)
		}
	}
	return packed
}

func (h *handle) Discard(ctx context.Context, ids []string) (removed int, err error) {
	if err := h.check(ctx, "discard"); err != nil {
		return 0, err
	}
	wanted := packIDs(ids)
	for len(wanted) > 0 {
		chunk := wanted[:min(page, len(wanted))]
		var n *int
		var woken, endings *string
		r := request{sql: "SELECT * FROM mailbox.discard($1, $2, $3)", args: []any{chunk, false}, wide: 2}
		if err := h.call(ctx, r, one(&n, &woken, &endings)); err != nil {
			return removed, h.outcome(err, "discard")
		}
		h.backend.happened(ctx, endings, woken)
		if n == nil {
			continue
		}
		removed, wanted = removed+*n, wanted[len(chunk):]
	}
	return removed, nil
}

// Move moves ready messages to another queue; see driver.Queue. It blocks for a round trip per
// 256 messages; each page is one transaction. It moves the messages that were ready when it
// began, so that it ends although more arrive.
func (h *handle) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if err := h.check(ctx, "move"); err != nil {
		return 0, err
	}
	switch {
	case limit < 0:
		return 0, h.negativeLimit("move", limit)
	case to == h.name:
		return 0, &driver.Error{Code: driver.ErrInvalid, Op: "move", Queue: h.name, Field: "to", Detail: "is this queue"}
	case limit == 0:
		limit = math.MaxInt
	}
	names, target := []string{to}, &to
	if to == "" {
		target = nil
		if names, err = h.homes(ctx); err != nil || len(names) == 0 {
			return 0, h.outcome(err, "move")
		}
	}
	after, until, more := int64(0), (*int64)(nil), true
	var held error // why a message stays whose unique key another one holds in the target
	for more && moved < limit {
		if err := h.check(ctx, "move"); err != nil {
			return moved, err
		}
		var n *int
		var failed string
		var woken, endings *string
		r := request{
			sql:  "SELECT * FROM mailbox.move($1, $2, $3, $4, $5, $6)",
			args: []any{target, names, int32(min(page, limit-moved)), after, until}, wide: -1,
		}
		if err := h.call(ctx, r, one(&after, &until, &n, &more, &failed, &woken, &endings)); err != nil {
			return moved, h.outcome(err, "move")
		}
		h.backend.happened(ctx, endings, woken)
		switch {
		case failed == "gone":
			return moved, &driver.Error{Code: driver.ErrNotFound, Op: "move", Queue: h.name, Field: "to", Detail: fmt.Sprintf("queue %q does not exist", to)}
		case n == nil:
			more = true
			continue
		}
		moved += *n
		if failed == "full" {
			return moved, &driver.Error{Code: driver.ErrFull, Op: "move", Queue: h.name, Detail: "a target is full", RetryAfter: retryAfter}
		}
		if ids, ok := strings.CutPrefix(failed, "held "); ok && held == nil {
			first, second, _ := strings.Cut(ids, " ")
			stays, _ := parseUUID(first)
			holder, _ := parseUUID(second)
			held = h.keyHeld("move", stays, holder)
		}
	}
	return moved, held
}

// homes returns the queues that messages of this one died in, as far as they exist.
func (h *handle) homes(ctx context.Context) (names []string, err error) {
	r := request{
		sql: "SELECT q.name FROM mailbox.queue q WHERE q.qid <> $1 AND convert_to(q.name, 'UTF8') IN " +
			"(SELECT DISTINCT m.from_queue FROM mailbox.message m WHERE m.qid = $1 AND m.state IN ('r', 'b', 's', 'p', 'h') AND m.from_queue IS NOT NULL)",
		wide: -1, repeatable: true,
	}
	return names, h.call(ctx, r, readTexts(&names))
}
