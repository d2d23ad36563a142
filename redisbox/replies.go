package redisbox

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// DefaultMaxSlots is how many slots Replies hold unless told otherwise.
const DefaultMaxSlots = 1_000_000

// buckets is how many parts slots are spread over, each in one slot of a cluster.
const buckets = 16

// How many slots are discarded at a time, and how long that may take.
const (
	maxDiscards   = 64
	discardWithin = time.Second
)

// maxTurns is how many who wait look again at a time.
const maxTurns = 8

// Replies is a reply store in Redis, for clients and workers of any number of
// processes that use the same prefix. Who waits for an answer is sent it by the
// server, or told to fetch it if it is large, and asks nothing meanwhile. Times are those of the server, kept from
// jumping when another takes over; the options of the backend about replicas and
// trying again apply. Get one from Backend.Replies.
type Replies struct {
	backend *Backend
	process string // what those are called who wait in this process
	most    int    // slots of one bucket
	buckets []*bucket
	turns   chan struct{} // holds one for each who looks again, see takeTurn
	// discards holds one for each slot that is being discarded.
	discards chan struct{}

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
}

var _ driver.ReplyStore = (*Replies)(nil)

// Replies returns the reply store that is, or will be, in the servers of the
// backend, for maxSlots slots at a time; 0 means DefaultMaxSlots. It does no I/O.
// The store ends with the backend, or when it is closed.
func (b *Backend) Replies(maxSlots int) *Replies {
	if maxSlots <= 0 {
		maxSlots = DefaultMaxSlots
	}
	r := &Replies{
		backend: b, process: fmt.Sprintf("w%016x", rand.Uint64()), // all as long, so that none is part of another
		most: (maxSlots + buckets - 1) / buckets, closing: make(chan struct{}),
		turns: make(chan struct{}, maxTurns), discards: make(chan struct{}, maxDiscards),
	}
	for i := range buckets {
		r.buckets = append(r.buckets, newBucket(r, i))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		r.stop()
	} else {
		b.replies = append(b.replies, r)
	}
	return r
}

// Close wakes who waits, with ErrClosed, and ends the listening. Slots stay where
// they are. Closing twice is fine.
func (r *Replies) Close() error {
	r.stop()
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	r.backend.replies = slices.DeleteFunc(r.backend.replies, func(other *Replies) bool { return other == r })
	return nil
}

func (r *Replies) stop() {
	r.closeOnce.Do(func() {
		close(r.closing)
		for _, k := range r.buckets {
			k.rest()
		}
	})
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
)

// Create makes a pending slot that expires after ttl. It blocks for a round trip.
// Codes: ErrConflict, ErrInvalid, ErrFull, ErrUnavailable, ErrClosed.
func (r *Replies) Create(ctx context.Context, id string, ttl time.Duration) error {
	if err := driver.CheckSlot(id, ttl); err != nil {
		return err
	}
	k, req := r.bucket(id), slotRequest{what: "c", id: id, life: ttl}
	told := k.prepare(ctx, id)
	if told != nil {
		req.waiter = r.process
	}
	asked := time.Now()
	letter, detail, err := k.write(ctx, createSlotScript, req)
	if told != nil {
		if err == nil && letter == "s" && len(detail) == 8 {
			k.expect(&expectation{id: id, told: told, created: wallTime(doubleAt(detail, 0)), ends: asked.Add(ttl)})
		} else {
			k.leave(id, told)
		}
	}
	switch {
	case err != nil:
		return slotFailure(err, opCreate, id)
	case letter == "t":
		return driver.SlotError(opCreate, id, driver.ErrConflict)
	case letter == "f":
		full := driver.SlotError(opCreate, id, driver.ErrFull)
		full.Detail = fmt.Sprintf("there are %d slots in its part of the store", r.most)
		full.RetryAfter = max(time.Duration(number(detail))*time.Microsecond, time.Millisecond)
		return full
	}
	return nil
}

// Resolve stores the answer and has it sent to who waits for it. It blocks for a
// round trip. Codes: ErrReplyAlreadySent, ErrReplyCancelled, ErrReplyExpired,
// ErrNotFound, ErrTooLarge, ErrUnavailable, ErrClosed.
func (r *Replies) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if size, most := len(answer.Body), r.backend.options.MaxBodyBytes; size > most {
		large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
		large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed", size, most)
		return large
	}
	letter, _, err := r.bucket(id).write(ctx, slotScript, slotRequest{what: "r", id: id, answer: answer})
	return r.written(err, opResolve, id, letter)
}

// Cancel says that nobody waits any more, and wakes who does. It blocks for a round
// trip. Codes: ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound, ErrUnavailable,
// ErrClosed.
func (r *Replies) Cancel(ctx context.Context, id string) error {
	letter, _, err := r.bucket(id).write(ctx, slotScript, slotRequest{what: "a", id: id})
	return r.written(err, opCancel, id, letter)
}

// written is the error of having written to a slot; see slot.lua for the letters.
func (r *Replies) written(err error, op, id, letter string) error {
	if err != nil || letter == "s" {
		return slotFailure(err, op, id)
	}
	return slotStates[letter].WriteError(op, id)
}

// slotStates are the states by the letters that scripts use.
var slotStates = map[string]driver.SlotState{
	"p": driver.SlotPending, "r": driver.SlotResolved, "c": driver.SlotCancelled, "x": driver.SlotExpired,
}

// slotFailure adds the slot and the operation to an error.
func slotFailure(err error, op, id string) error { return named(err, driver.SlotAddress(id), op) }

// Get returns the slot as it is. It blocks for a round trip. Codes: ErrNotFound,
// ErrUnavailable, ErrClosed.
func (r *Replies) Get(ctx context.Context, id string) (driver.Slot, error) {
	found, err := r.bucket(id).look(ctx, "g", id)
	if err != nil {
		return driver.Slot{}, slotFailure(err, opGet, id)
	}
	return found.Slot, nil
}

// Consume returns a slot that is not pending and removes it. It blocks for a round
// trip, or two if the answer is large. Codes: ErrNotFound, ErrUnavailable, ErrClosed.
func (r *Replies) Consume(ctx context.Context, id string) (driver.Slot, error) {
	k := r.bucket(id)
	letter, text, err := k.write(ctx, slotScript, slotRequest{what: "t", id: id})
	if err != nil {
		return driver.Slot{}, slotFailure(err, opConsume, id)
	}
	if letter == "n" {
		return driver.Slot{}, driver.SlotError(opConsume, id, driver.ErrNotFound)
	}
	found, err := readSlot(id, text)
	if err == nil && found.State != driver.SlotPending {
		k.unexpect(id)
	}
	return found.Slot, slotFailure(err, opConsume, id)
}

// Delete removes the slot, whatever its state. It blocks for a round trip. Codes:
// ErrUnavailable, ErrClosed.
func (r *Replies) Delete(ctx context.Context, id string) error {
	k := r.bucket(id)
	k.unexpect(id)
	_, _, err := k.write(ctx, slotScript, slotRequest{what: "d", id: id})
	return slotFailure(err, opDelete, id)
}

// Discard removes a slot that was resolved, that nobody needs any more, and whose id
// will not be used again. It does not wait until that is done, unless many are on
// their way; Backend.Close waits. If it fails, the end of the slot's time removes the
// slot. The end of ctx does not keep it from being done.
//
// It takes no script: nobody is told of a slot that was resolved before, and what is
// left if only the first half is done is an end without a slot, which is swept.
func (r *Replies) Discard(ctx context.Context, id string) {
	k, client := r.bucket(id), r.backend.client
	k.unexpect(id)
	if r.isClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardWithin)
	discard := func() {
		defer cancel()
		client.DoMulti(ctx,
			client.B().Hdel().Key(k.key("slots")).Field(id).Build(),
			client.B().Zrem().Key(k.key("ends")).Member(id).Build())
	}
	select {
	case r.discards <- struct{}{}:
		r.backend.running.start(func() {
			defer func() { <-r.discards }()
			discard()
		})
	default:
		discard()
	}
}

// isClosed reports whether Close was called.
func (r *Replies) isClosed() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// Expired lists up to limit ids whose time is over, those that expired first first.
// It blocks for a round trip. Codes: ErrInvalid, ErrUnavailable, ErrClosed.
func (r *Replies) Expired(ctx context.Context, limit int) ([]string, error) {
	if err := checkLimit(opExpired, limit); err != nil {
		return nil, err
	}
	parts := make([][]endedSlot, len(r.buckets))
	errs := make([]error, len(r.buckets))
	var group sync.WaitGroup
	for i, k := range r.buckets {
		group.Go(func() { parts[i], errs[i] = k.sweep(ctx, "l", limit) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, named(err, "", opExpired)
		}
	}
	all := slices.Concat(parts...)
	slices.SortFunc(all, func(a, b endedSlot) int { return cmp.Compare(a.ended, b.ended) })
	var ids []string
	for _, slot := range all[:min(limit, len(all))] {
		ids = append(ids, slot.id)
	}
	return ids, nil
}

// Sweep removes up to limit slots whose time is over. It blocks for several round
// trips. Codes: ErrInvalid, ErrUnavailable, ErrClosed.
func (r *Replies) Sweep(ctx context.Context, limit int) (removed int, err error) {
	if err := checkLimit(opSweep, limit); err != nil {
		return 0, err
	}
	first := rand.IntN(len(r.buckets)) // none is always the last
	for i := range r.buckets {
		if removed == limit {
			break
		}
		swept, err := r.buckets[(first+i)%len(r.buckets)].sweep(ctx, "s", limit-removed)
		removed += len(swept)
		if err != nil {
			return removed, named(err, "", opSweep)
		}
	}
	return removed, nil
}

func checkLimit(op string, limit int) error {
	if limit < 1 {
		return &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "limit", Detail: fmt.Sprintf("%d, at least 1 is needed", limit)}
	}
	return nil
}

// bucket is the one that a slot is in. All processes must agree on that.
func (r *Replies) bucket(id string) *bucket { return r.buckets[hash(id)%uint64(len(r.buckets))] }
