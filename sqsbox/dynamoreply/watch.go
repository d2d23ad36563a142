package dynamoreply

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// batchMax is how many slots one BatchGetItem reads.
	batchMax = 100
	// lastRead is how long before its expiry a slot is read once more, so that
	// a late answer is not missed.
	lastRead = 100 * time.Millisecond
)

// Wait returns the slot as soon as it is not pending, or as it is when wait has
// passed. It polls, and shares its reads with the other waits of this process; the
// package comment says how often. Codes: as Get.
func (s *store) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	start := time.Now()
	found, err := s.fetch(ctx, opWait, id)
	if err != nil || found.slot.State != driver.SlotPending || wait <= 0 {
		return found.slot, err
	}
	timeout := time.NewTimer(wait - time.Since(start))
	defer timeout.Stop()
	w := s.watcher.join(ctx, found)
	defer s.watcher.leave(w)
	select {
	case <-w.decided:
		return w.slot, w.err
	case <-ctx.Done():
		return driver.Slot{}, ctx.Err()
	case <-timeout.C:
	}
	found, err = s.fetch(ctx, opWait, id)
	return found.slot, err
}

// A watcher polls the slots that callers wait for. It runs a goroutine while there
// are any.
type watcher struct {
	store              *store
	pauseMin, pauseMax time.Duration
	pace               time.Duration // least time per slot read
	nudged             chan struct{} // holds one wake-up for the goroutine

	mu      sync.Mutex // guards the fields below, and the watches
	watches map[string]*watch
	stop    context.CancelFunc // ends the goroutine; nil if there is none
}

// A watch polls one slot for all callers that wait for it.
type watch struct {
	id      string
	seen    record // as last read; it was pending then
	waiting int    // callers
	pause   time.Duration
	due     time.Time // for the next read

	// The result. It is written before decided is closed, and not after.
	decided chan struct{}
	slot    driver.Slot
	err     error
}

// join adds a caller that waits for a slot, which was just read as pending.
func (r *watcher) join(ctx context.Context, found record) *watch {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := found.slot.ID
	w := r.watches[id]
	if w != nil && w.seen.maker != found.maker {
		r.decideLocked(w, driver.Slot{}, gone(id)) // the slot was created again
		w = nil
	}
	if w == nil {
		w = &watch{id: id, decided: make(chan struct{})}
		r.watches[id] = w
	}
	w.seen = found
	w.waiting++
	w.pause = r.pauseMin
	w.due = earlier(w.due, time.Now().Add(w.pause))
	if r.stop == nil {
		// The goroutine polls for other callers too, so it outlives this one's ctx.
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		r.stop = stop
		go r.run(running)
	}
	r.wake()
	return w
}

func gone(id string) error { return driver.SlotError(opWait, id, driver.ErrNotFound) }

// earlier returns the earlier of two times, and b if a is zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// leave removes a caller that has stopped waiting.
func (r *watcher) leave(w *watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.waiting--; w.waiting == 0 && r.watches[w.id] == w {
		r.removeLocked(w)
	}
}

// nudge makes the goroutine read a slot at once, because this process changed it.
func (r *watcher) nudge(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watches[id]; w != nil {
		w.due = time.Now()
		r.wake()
	}
}

func (r *watcher) wake() {
	select {
	case r.nudged <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// removeLocked ends a watch, and the goroutine with the last one.
func (r *watcher) removeLocked(w *watch) {
	delete(r.watches, w.id)
	if len(r.watches) == 0 && r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// decideLocked ends a watch and gives its result to all callers that wait.
func (r *watcher) decideLocked(w *watch, slot driver.Slot, err error) {
	r.removeLocked(w)
	w.slot, w.err = slot, err
	close(w.decided)
}

// run reads slots when they are due, until no caller waits.
func (r *watcher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for notBefore := time.Now(); ctx.Err() == nil; {
		due, next := r.due(ctx)
		if now := time.Now(); len(due) > 0 && !now.Before(notBefore) {
			r.look(ctx, due)
			notBefore = now.Add(time.Duration(len(due)) * r.pace)
			continue
		}
		if len(due) > 0 {
			next = notBefore
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-r.nudged:
		case <-ctx.Done():
		}
	}
}

// due ends the watches on expired slots, and returns those that are due for a
// read, earliest first and at most a batch, and the time of the next event if there
// are none. If any slot is due, those that are due soon come along: slots that are
// read together stay together.
func (r *watcher) due(ctx context.Context) (due []*watch, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil { // another goroutine may have taken over
		return nil, next
	}
	now, slotTime := time.Now(), r.store.clock.now()
	dueNow := false
	for _, w := range r.watches {
		seen := w.seen.at(slotTime)
		if seen.slot.State == driver.SlotExpired {
			r.decideLocked(w, seen.slot, nil)
			continue
		}
		ends := now.Add(seen.slot.ExpiresAt.Sub(slotTime))
		if last := ends.Add(-lastRead); w.due.After(last) && last.After(now) {
			w.due = last
		}
		next = earlier(next, earlier(w.due, ends))
		dueNow = dueNow || !w.due.After(now)
		if w.due.Sub(now) <= w.pause/4 {
			due = append(due, w)
		}
	}
	if !dueNow {
		return nil, next
	}
	slices.SortFunc(due, func(a, b *watch) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id)) })
	return due[:min(len(due), batchMax)], next
}

// look reads slots, and ends the watches on those that are decided.
func (r *watcher) look(ctx context.Context, watches []*watch) {
	found, err := r.read(ctx, watches)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	answered := false
	now := time.Now()
	for _, w := range watches {
		if r.watches[w.id] != w {
			continue // no caller waits any more
		}
		shown, looked := found[w.id]
		switch {
		case err != nil:
			r.decideLocked(w, driver.Slot{}, err)
			continue
		case looked:
			answered = r.updateLocked(w, shown) || answered
		}
		w.pause = min(w.pause+w.pause/2, r.pauseMax)
		w.due = now.Add(w.pause)
	}
	if answered {
		r.hurryLocked(now)
	}
}

// updateLocked applies an item that was read to its watch, and reports whether the
// item holds an answer.
func (r *watcher) updateLocked(w *watch, shown item) (answered bool) {
	seen, err := r.store.read(opWait, w.id, shown, r.store.clock.now())
	switch {
	case err != nil:
		r.decideLocked(w, driver.Slot{}, err)
	case seen.maker != w.seen.maker:
		r.decideLocked(w, driver.Slot{}, gone(w.id))
	case seen.slot.State != driver.SlotPending:
		r.decideLocked(w, seen.slot, nil)
		return seen.slot.State == driver.SlotResolved
	}
	return false
}

// hurryLocked makes every slot due soon.
func (r *watcher) hurryLocked(now time.Time) {
	for _, w := range r.watches {
		w.pause = r.pauseMin
		w.due = earlier(w.due, now.Add(w.pause))
	}
}

// read reads the items of slots. An item that does not exist is nil in the result,
// one that DynamoDB left unprocessed is missing from it.
func (r *watcher) read(ctx context.Context, watches []*watch) (map[string]item, error) {
	s := r.store
	found := make(map[string]item, len(watches))
	if len(watches) == 1 {
		id := watches[0].id
		out, err := call(ctx, s, request{op: opWait, id: id}, s.client.GetItem, &dynamodb.GetItemInput{
			TableName: &s.table, Key: keyOf(id), ConsistentRead: aws.Bool(true),
		})
		if err == nil {
			found[id] = out.Item
		}
		return found, err
	}
	keys := make([]item, len(watches))
	for i, w := range watches {
		keys[i] = keyOf(w.id)
		found[w.id] = nil
	}
	out, err := call(ctx, s, request{op: opWait}, s.client.BatchGetItem, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{s.table: {Keys: keys, ConsistentRead: aws.Bool(true)}},
	})
	if err != nil {
		return nil, err
	}
	for _, shown := range out.Responses[s.table] {
		if id, ok := shown[attributeID].(*types.AttributeValueMemberS); ok {
			found[id.Value] = shown
		}
	}
	for _, key := range out.UnprocessedKeys[s.table].Keys {
		if id, ok := key[attributeID].(*types.AttributeValueMemberS); ok {
			delete(found, id.Value)
		}
	}
	return found, nil
}
