package redisbox

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// defaultMaxSlots is how many slots a reply store holds by default.
const defaultMaxSlots = 1_000_000

// How many slots are discarded concurrently, and how long that may take.
const (
	maxDiscards   = 64
	discardWithin = time.Second
)

// maxLooks is how many waiters look at their slots concurrently.
const maxLooks = 8

// A replyStore is a reply store in Redis, see Backend.Replies.
type replyStore struct {
	backend      *Backend
	process      string // the name of this process as a waiter
	maxPerBucket int    // slots
	buckets      []*replyBucket
	looks        chan struct{} // see acquireLook
	// discards holds one for each slot that is being discarded.
	discards chan struct{}

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
}

var (
	_ driver.ReplyStore = (*replyStore)(nil)
	_ driver.SlotLister = (*replyStore)(nil)
)

// Replies returns the reply store in the servers of the backend, for at most maxSlots
// slots; 0 means 1,000,000. It does no I/O. Closing the backend closes the store.
//
// Clients and workers of any number of processes that use the same prefix share the
// slots. Redis pushes an answer to the waiting client, or a notice to fetch it if it is
// large; waiting sends no commands. Times are those of the server, kept from jumping when
// another takes over; the options of the backend about replicas and retries apply.
func (b *Backend) Replies(maxSlots int) driver.LinkedReplyStore { return b.newReplyStore(maxSlots) }

func (b *Backend) newReplyStore(maxSlots int) *replyStore {
	if maxSlots <= 0 {
		maxSlots = defaultMaxSlots
	}
	r := &replyStore{
		backend: b, process: fmt.Sprintf("w%016x", rand.Uint64()), // all of one length, so that none is part of another
		maxPerBucket: (maxSlots + shard.Buckets - 1) / shard.Buckets, closing: make(chan struct{}),
		looks: make(chan struct{}, maxLooks), discards: make(chan struct{}, maxDiscards),
	}
	for i := range shard.Buckets {
		r.buckets = append(r.buckets, newReplyBucket(r, i))
	}
	b.answers.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		r.stop()
	} else {
		b.replies = append(b.replies, r)
	}
	return r
}

// Close wakes waiters with ErrClosed, and ends the subscriptions. Slots stay on the
// server. Closing twice is fine.
func (r *replyStore) Close() error {
	r.stop()
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	r.backend.replies = slices.DeleteFunc(r.backend.replies, func(other *replyStore) bool { return other == r })
	return nil
}

func (r *replyStore) stop() {
	r.closeOnce.Do(func() {
		close(r.closing)
		for _, k := range r.buckets {
			k.stop()
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
	opList    = "list slots"
)

// Create makes a pending slot that expires after ttl. It blocks for a round trip.
// Codes: ErrConflict, ErrInvalid, ErrFull, ErrUnavailable, ErrClosed.
func (r *replyStore) Create(ctx context.Context, id string, ttl time.Duration) error {
	if err := driver.CheckSlot(id, ttl); err != nil {
		return err
	}
	k, req := r.bucket(id), shard.SlotRequest{What: "c", ID: id, Life: ttl}
	news := k.prepare(ctx, id)
	if news != nil {
		req.Waiter = r.process
	}
	asked := time.Now()
	code, detail, err := k.Write(ctx, shard.CreateReplySlotScript, req)
	if news != nil {
		if err == nil && code == "s" && len(detail) == 8 {
			k.rememberCreated(&createdSlot{id: id, news: news, at: shard.WallTime(shard.DoubleAt(detail, 0)), expires: asked.Add(ttl)})
		} else {
			k.removeWaiter(id, news)
		}
	}
	switch {
	case err != nil:
		return slotFailure(err, opCreate, id)
	case code == "t":
		return driver.SlotError(opCreate, id, driver.ErrConflict)
	case code == "f":
		full := driver.SlotError(opCreate, id, driver.ErrFull)
		full.Detail = fmt.Sprintf("slot limit reached (%d in its bucket)", r.maxPerBucket)
		full.RetryAfter = max(time.Duration(shard.Number(detail))*time.Microsecond, time.Millisecond)
		return full
	}
	return nil
}

// Resolve stores the answer and wakes the waiters of the slot. It blocks for a round
// trip. Codes: ErrReplyAlreadySent, ErrReplyCancelled, ErrReplyExpired,
// ErrNotFound, ErrTooLarge, ErrUnavailable, ErrClosed.
func (r *replyStore) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if err := r.checkAnswer(id, answer); err != nil {
		return err
	}
	code, _, err := r.bucket(id).Write(ctx, shard.ReplySlotScript, shard.SlotRequest{What: "r", ID: id, Answer: answer})
	return r.written(err, opResolve, id, code)
}

// checkAnswer returns ErrTooLarge for an answer that is too large.
func (r *replyStore) checkAnswer(id string, answer driver.Answer) error {
	size, most := len(answer.Body), r.backend.options.MaxBodyBytes
	if size <= most {
		return nil
	}
	large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
	large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed", size, most)
	return large
}

// Cancel says that the answer is not needed any more, and wakes waiters. It blocks for a
// round trip. Codes: ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound, ErrUnavailable,
// ErrClosed.
func (r *replyStore) Cancel(ctx context.Context, id string) error {
	code, _, err := r.bucket(id).Write(ctx, shard.ReplySlotScript, shard.SlotRequest{What: "a", ID: id})
	return r.written(err, opCancel, id, code)
}

// written returns the error of a write to a slot; see reply_slot.lua for the codes.
func (r *replyStore) written(err error, op, id, code string) error {
	if err != nil || code == "s" {
		return slotFailure(err, op, id)
	}
	return shard.SlotStates[code].WriteError(op, id)
}

// slotFailure adds the slot and the operation to an error.
func slotFailure(err error, op, id string) error {
	return driver.Annotate(err, driver.SlotAddress(id), op)
}

// Get returns the slot as it is. It blocks for a round trip. Codes: ErrNotFound,
// ErrUnavailable, ErrClosed.
func (r *replyStore) Get(ctx context.Context, id string) (driver.Slot, error) {
	found, err := r.bucket(id).Look(ctx, "g", id)
	if err != nil {
		return driver.Slot{}, slotFailure(err, opGet, id)
	}
	return found.Slot, nil
}

// Consume returns a slot that is not pending and removes it. It blocks for a round
// trip, or two if the answer is large. Codes: ErrNotFound, ErrUnavailable, ErrClosed.
func (r *replyStore) Consume(ctx context.Context, id string) (driver.Slot, error) {
	k := r.bucket(id)
	code, text, err := k.Write(ctx, shard.ReplySlotScript, shard.SlotRequest{What: "t", ID: id})
	if err != nil {
		return driver.Slot{}, slotFailure(err, opConsume, id)
	}
	if code == "n" {
		return driver.Slot{}, driver.SlotError(opConsume, id, driver.ErrNotFound)
	}
	found, err := shard.ReadSlot(id, text)
	if err == nil && found.State != driver.SlotPending {
		k.forgetCreated(id)
	}
	return found.Slot, slotFailure(err, opConsume, id)
}

// Delete removes the slot, whatever its state. It blocks for a round trip. Codes:
// ErrUnavailable, ErrClosed.
func (r *replyStore) Delete(ctx context.Context, id string) error {
	k := r.bucket(id)
	k.forgetCreated(id)
	_, _, err := k.Write(ctx, shard.ReplySlotScript, shard.SlotRequest{What: "d", ID: id})
	return slotFailure(err, opDelete, id)
}

// Discard removes a resolved slot that is not needed any more, and whose id is not used
// again. It does not wait for the server, unless many are being discarded; Backend.Close
// waits. If it fails, the slot goes when it expires. The end of ctx does not stop it.
//
// It needs no script: a slot that was resolved has no waiters, and if only the first
// command is done, a member of ends without a slot remains, which is swept.
func (r *replyStore) Discard(ctx context.Context, id string) {
	k, client := r.bucket(id), r.backend.server.Client
	k.forgetCreated(id)
	if r.isClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardWithin)
	discard := func() {
		defer cancel()
		client.DoMulti(ctx,
			client.B().Hdel().Key(k.Key("slots")).Field(id).Build(),
			client.B().Zrem().Key(k.Key("ends")).Member(id).Build())
	}
	select {
	case r.discards <- struct{}{}:
		r.backend.server.Running.Start(func() {
			defer func() { <-r.discards }()
			discard()
		})
	default:
		discard()
	}
}

// isClosed reports whether Close was called.
func (r *replyStore) isClosed() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// Expired lists the ids of up to limit expired slots, in the order of their expiry. It
// blocks for a round trip. Codes: ErrInvalid, ErrUnavailable, ErrClosed.
func (r *replyStore) Expired(ctx context.Context, limit int) ([]string, error) {
	if err := checkLimit(opExpired, limit); err != nil {
		return nil, err
	}
	parts := make([][]shard.EndedSlot, len(r.buckets))
	errs := make([]error, len(r.buckets))
	var group sync.WaitGroup
	for i, k := range r.buckets {
		group.Go(func() { parts[i], errs[i] = k.Sweep(ctx, "l", limit) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, driver.Annotate(err, "", opExpired)
		}
	}
	all := slices.Concat(parts...)
	slices.SortFunc(all, func(a, b shard.EndedSlot) int { return cmp.Compare(a.Ended, b.Ended) })
	var ids []string
	for _, slot := range all[:min(limit, len(all))] {
		ids = append(ids, slot.ID)
	}
	return ids, nil
}

// Slots yields the slots, without answers, in the order in which they expire. It blocks for a round trip for each
// 256 slots of a bucket. Codes: ErrUnavailable, ErrClosed.
func (r *replyStore) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		lists := make([]*shard.SlotList, len(r.buckets))
		pages := make([][]shard.ListedSlot, len(r.buckets))
		errs := make([]error, len(r.buckets))
		var group sync.WaitGroup
		for i, k := range r.buckets {
			lists[i] = k.List()
			group.Go(func() { pages[i], errs[i] = lists[i].Next(ctx) })
		}
		group.Wait()
		err := cmp.Or(errs...)
		for err == nil {
			first := -1
			for i, page := range pages {
				if len(page) > 0 && (first < 0 || page[0].Ends < pages[first][0].Ends) {
					first = i
				}
			}
			if first < 0 || !yield(pages[first][0].Slot, nil) {
				return
			}
			if pages[first] = pages[first][1:]; len(pages[first]) == 0 {
				pages[first], err = lists[first].Next(ctx)
			}
		}
		yield(driver.Slot{}, driver.Annotate(err, "", opList))
	}
}

// Sweep removes up to limit expired slots. It blocks for several round trips. Codes:
// ErrInvalid, ErrUnavailable, ErrClosed.
func (r *replyStore) Sweep(ctx context.Context, limit int) (removed int, err error) {
	if err := checkLimit(opSweep, limit); err != nil {
		return 0, err
	}
	first := rand.IntN(len(r.buckets)) // so that no bucket is always the last
	for i := range r.buckets {
		if removed == limit {
			break
		}
		swept, err := r.buckets[(first+i)%len(r.buckets)].Sweep(ctx, "s", limit-removed)
		removed += len(swept)
		if err != nil {
			return removed, driver.Annotate(err, "", opSweep)
		}
	}
	return removed, nil
}

func checkLimit(op string, limit int) error {
	if limit < 1 {
		return &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "limit", Detail: fmt.Sprintf("%d; want at least 1", limit)}
	}
	return nil
}

// bucket returns the bucket of a slot.
func (r *replyStore) bucket(id string) *replyBucket { return r.buckets[shard.BucketOf(id)] }

// A replyBucket is one part of the reply slots, as this process sees it.
type replyBucket struct {
	*shard.Bucket
	replies       *replyStore
	announcements *shard.Subscription

	mu          sync.Mutex               // guards the fields below
	waiting     map[string][]chan string // by slot id
	created     createdSlots
	unsubscribe context.CancelFunc // ends the subscription, which the first waiter starts
	stopped     bool               // permanently
}

func newReplyBucket(r *replyStore, number int) *replyBucket {
	k := &replyBucket{replies: r, waiting: make(map[string][]chan string)}
	k.Bucket = shard.NewBucket(r.backend.server, number, r.process, r.maxPerBucket, r.isClosed)
	k.announcements = shard.NewSubscription(r.backend.server, shard.BucketTag(r.backend.server.Prefix, number)+r.process, k.onAnnouncement, k.onSubscribed)
	return k
}
