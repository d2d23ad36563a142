package pgbox

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// defaultMaxSlots is how many slots a reply store holds by default.
const defaultMaxSlots = 1_000_000

// A replyStore is a reply store in PostgreSQL, see Backend.Replies. A wait registers in this
// process and then looks; a write changes the slot and then wakes the waits of this process and, by
// the notices of queues, those of others.
type replyStore struct {
	backend  *Backend
	maxSlots int64
	room     atomic.Int64 // how many slots can be made before they are counted again
}

var (
	_ driver.ReplyStore = (*replyStore)(nil)
	_ driver.SlotLister = (*replyStore)(nil)
)

// Replies returns the reply store in the schema of the backend, for at most maxSlots slots; 0 means
// 1,000,000. It does no I/O. Clients and workers of all processes on the schema share the slots. Slots
// and answers are as durable as messages. Closing the backend closes the store.
func (b *Backend) Replies(maxSlots int) driver.ReplyStore {
	if maxSlots <= 0 {
		maxSlots = defaultMaxSlots
	}
	return &replyStore{backend: b, maxSlots: int64(maxSlots)}
}

// slotNumber is the number of a slot in notices, which those of queues do not have. Slots that
// share one are woken together.
func slotNumber(id string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return -1 - int32(h.Sum32()>>1)
}

// slotWaits are the waits of a process, by the numbers of their slots.
type slotWaits struct {
	mu      sync.Mutex // guards waiting
	waiting map[int32]map[chan struct{}]struct{}
}

// join registers a wait. leave ends it.
func (w *slotWaits) join(number int32) (signal chan struct{}, leave func()) {
	signal = make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = make(map[int32]map[chan struct{}]struct{})
	}
	if w.waiting[number] == nil {
		w.waiting[number] = make(map[chan struct{}]struct{})
	}
	w.waiting[number][signal] = struct{}{}
	return signal, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting[number], signal)
		if len(w.waiting[number]) == 0 {
			delete(w.waiting, number)
		}
	}
}

// wake makes the waits for a slot look again.
func (w *slotWaits) wake(number int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked(number)
}

// wakeAll makes all waits look again.
func (w *slotWaits) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for number := range w.waiting {
		w.wakeLocked(number)
	}
}

func (w *slotWaits) wakeLocked(number int32) {
	for signal := range w.waiting[number] {
		select {
		case signal <- struct{}{}:
		default: // it is going to look
		}
	}
}

// The names of operations in errors.
const (
	opCreate  = "create slot"
	opResolve = "resolve"
	opCancel  = "cancel"
	opGet     = "get"
	opWait    = "wait"
	opConsume = "consume"
	opDelete  = "delete slot"
	opExpired = "list expired slots"
	opSweep   = "sweep slots"
	opList    = "list slots"
)

// slotStates are the states by the codes of the functions.
var slotStates = map[string]driver.SlotState{"p": driver.SlotPending, "r": driver.SlotResolved, "c": driver.SlotCancelled, "e": driver.SlotExpired}

// call calls a function, unless the backend is closed.
func (r *replyStore) call(ctx context.Context, op, id, sql string, repeatable bool, args []any, read func(pgx.Rows) error) error {
	err := r.backend.checkClosed()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = r.backend.call(ctx, request{sql: r.backend.sql(sql), args: args, wide: -1, repeatable: repeatable}, read)
	}
	name := ""
	if id != "" {
		name = driver.SlotAddress(id)
	}
	return driver.Annotate(err, name, op)
}

// Create makes a pending slot; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Create(ctx context.Context, id string, ttl time.Duration) error {
	if err := driver.CheckSlot(id, ttl); err != nil {
		return err
	}
	var code string
	var slots *int64
	count := r.room.Add(-1) < 0
	err := r.call(ctx, opCreate, id, "SELECT * FROM mailbox.create_slot($1, $2, $3, $4)", false, []any{id, micros(ttl), r.maxSlots, count}, one(&code, &slots))
	if slots != nil {
		r.room.Store((r.maxSlots - *slots) / keyShare)
	}
	switch {
	case err != nil:
		return err
	case code == "t":
		return driver.SlotError(opCreate, id, driver.ErrConflict)
	case code == "f":
		full := driver.SlotError(opCreate, id, driver.ErrFull)
		full.Detail, full.RetryAfter = fmt.Sprintf("slot limit reached (%d)", r.maxSlots), retryAfter
		return full
	}
	return nil
}

// Resolve stores the answer; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if size, most := max(len(answer.Body), len(answer.Failure)), r.backend.options.MaxBodyBytes; size > most {
		large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
		large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed", size, most)
		return large
	}
	code, err := r.write(ctx, opResolve, id, "r", answer)
	if err != nil || code == "s" {
		return err
	}
	return slotStates[code].WriteError(opResolve, id)
}

// Cancel gives up the slot; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Cancel(ctx context.Context, id string) error {
	code, err := r.write(ctx, opCancel, id, "c", driver.Answer{})
	if err != nil || code == "s" || code == "c" {
		return err
	}
	return slotStates[code].WriteError(opCancel, id)
}

// write writes a slot, and wakes its waits.
func (r *replyStore) write(ctx context.Context, op, id, state string, answer driver.Answer) (code string, err error) {
	if !storable(id) {
		return "n", nil
	}
	args := []any{id, state, append([]byte{}, answer.Body...), []byte(answer.Failure), []byte(answer.FailureKind)}
	err = r.call(ctx, op, id, "SELECT mailbox.write_slot($1, $2, $3, $4, $5)", false, args, one(&code))
	if err == nil && code == "s" {
		r.changed(ctx, id)
	}
	return code, err
}

// storable reports whether there can be a slot with this id: the server refuses other texts.
func storable(id string) bool {
	return strings.ToValidUTF8(id, "") == id && !strings.Contains(id, "\x00")
}

// changed wakes the waits for a slot in all processes.
func (r *replyStore) changed(ctx context.Context, id string) {
	number := slotNumber(id)
	r.backend.slotWaits.wake(number)
	r.backend.notices.announce(ctx, number)
}

// Get returns the slot as it is; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, _, err := r.read(ctx, opGet, id, false)
	return slot, err
}

// Consume returns a slot that is not pending and removes it; see driver.ReplyStore. It blocks for a
// round trip.
func (r *replyStore) Consume(ctx context.Context, id string) (driver.Slot, error) {
	slot, _, err := r.read(ctx, opConsume, id, true)
	if err == nil && slot.State != driver.SlotPending {
		r.changed(ctx, id)
	}
	return slot, err
}

// read returns a slot, and the rest of its time.
func (r *replyStore) read(ctx context.Context, op, id string, take bool) (driver.Slot, time.Duration, error) {
	missing := driver.SlotError(op, id, driver.ErrNotFound)
	if !storable(id) {
		return driver.Slot{}, 0, missing
	}
	var state string
	var created, expires, resolved, life *int64
	var body, failure, kind []byte
	err := r.call(ctx, op, id, "SELECT * FROM mailbox.read_slot($1, $2)", !take, []any{id, take}, one(&state, &created, &expires, &resolved, &body, &failure, &kind, &life))
	switch {
	case err != nil:
		return driver.Slot{}, 0, err
	case state == "n":
		return driver.Slot{}, 0, missing
	}
	slot := driver.Slot{ID: id, State: slotStates[state], CreatedAt: wall(*created), ExpiresAt: wall(*expires)}
	if resolved != nil {
		slot.ResolvedAt = wall(*resolved)
		slot.Answer = driver.Answer{Body: body, Failure: string(failure), FailureKind: string(kind)}
	}
	return slot, time.Duration(*life) * time.Microsecond, nil
}

// Wait returns the slot when it is pending no more; see driver.ReplyStore.
func (r *replyStore) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if wait > 0 {
		r.backend.notices.listen()
	}
	signal, leave := r.backend.slotWaits.join(slotNumber(id))
	defer leave()
	for until := time.Now().Add(wait); ; {
		slot, life, err := r.read(ctx, opWait, id, false)
		left := time.Until(until)
		if err != nil || slot.State != driver.SlotPending || left <= 0 {
			return slot, err
		}
		again := pollInterval
		if r.backend.notices.active() {
			again = lookInterval
		}
		timer := time.NewTimer(min(left, again, life+time.Millisecond))
		select {
		case <-signal:
		case <-timer.C:
		case <-r.backend.ctx.Done(): // the next look says so
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Delete removes the slot; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Delete(ctx context.Context, id string) error {
	if !storable(id) {
		return nil
	}
	var there bool
	err := r.call(ctx, opDelete, id, "SELECT mailbox.delete_slot($1)", true, []any{id}, one(&there))
	if there {
		r.changed(ctx, id)
	}
	return err
}

// Expired lists slots whose time is over; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Expired(ctx context.Context, limit int) (ids []string, err error) {
	if err := checkLimit(opExpired, limit); err != nil {
		return nil, err
	}
	err = r.call(ctx, opExpired, "", "SELECT mailbox.expired_slots($1)", true, []any{int32(min(limit, maxSlotsListed))}, func(rows pgx.Rows) error {
		ids = nil
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// slotsListed is how many slots one statement lists.
const slotsListed = 1000

// listSlots is the statement that lists up to $3 slots behind the slot $2, which expires at $1. It goes from slot to slot, so that
// the server looks each up in the index even if statistics say that there are few.
var listSlots = "WITH RECURSIVE walk AS ((" + nextSlot("$1, $2") + ") UNION ALL " +
	"SELECT n.* FROM walk w CROSS JOIN LATERAL (" + nextSlot("w.expires, w.id") + ") n) " +
	"SELECT id, CASE WHEN expires <= mailbox.clock() THEN 'e' ELSE state::text END, created, expires, resolved FROM walk LIMIT $3"

func nextSlot(after string) string {
	return "SELECT a.id, a.state, a.created, a.expires, a.resolved FROM mailbox.slot a WHERE (a.expires, a.id) > (" + after + ") ORDER BY a.expires, a.id LIMIT 1"
}

// Slots yields the slots, without answers, in the order in which they expire. It blocks for a round trip for each thousand.
// Codes: ErrUnavailable, ErrClosed.
func (r *replyStore) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		from, id := int64(math.MinInt64), ""
		for page := make([]driver.Slot, slotsListed); len(page) == slotsListed; {
			err := r.call(ctx, opList, "", listSlots, true, []any{from, id, slotsListed}, func(rows pgx.Rows) (err error) {
				page, err = listedSlots(rows, page[:0], &from)
				return err
			})
			if err != nil {
				yield(driver.Slot{}, err)
				return
			}
			for _, slot := range page {
				if id = slot.ID; !yield(slot, nil) {
					return
				}
			}
		}
	}
}

// listedSlots reads the rows of listSlots, and notes when the last slot expires.
func listedSlots(rows pgx.Rows, page []driver.Slot, last *int64) ([]driver.Slot, error) {
	for rows.Next() {
		var id, state string
		var created, resolved int64
		if err := rows.Scan(&id, &state, &created, last, &resolved); err != nil {
			return nil, err
		}
		slot := driver.Slot{ID: id, State: slotStates[state], CreatedAt: wall(created), ExpiresAt: wall(*last)}
		if slot.State == driver.SlotResolved {
			slot.ResolvedAt = wall(resolved)
		}
		page = append(page, slot)
	}
	return page, rows.Err()
}

// Sweep removes slots whose time is over; see driver.ReplyStore. It blocks for a round trip.
func (r *replyStore) Sweep(ctx context.Context, limit int) (removed int, err error) {
	if err := checkLimit(opSweep, limit); err != nil {
		return 0, err
	}
	err = r.call(ctx, opSweep, "", "SELECT mailbox.sweep_slots(mailbox.clock(), $1)", false, []any{int32(min(limit, maxSlotsListed))}, one(&removed))
	return removed, err
}

// maxSlotsListed is how many slots one call lists or sweeps at most.
const maxSlotsListed = 1 << 20

func checkLimit(op string, limit int) error {
	if limit < 1 {
		return &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "limit", Detail: fmt.Sprintf("%d; want at least 1", limit)}
	}
	return nil
}
