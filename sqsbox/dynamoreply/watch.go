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
	// batchMax is how many slots DynamoDB shows in one answer.
	batchMax = 100
	// lastLook is how long before a slot's end it is looked at once more, so
	// that an answer that came late is not missed.
	lastLook = 100 * time.Millisecond
)

// Wait returns the slot when it is pending no more, or as it is when wait has
// passed. It looks again and again, together with all who wait in this process;
// see the package for how often. Codes: as Get.
func (s *Store) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	start := time.Now()
	found, err := s.fetch(ctx, opWait, id)
	if err != nil || found.slot.State != driver.SlotPending || wait <= 0 {
		return found.slot, err
	}
	patience := time.NewTimer(wait - time.Since(start))
	defer patience.Stop()
	w := s.watcher.join(ctx, found)
	defer s.watcher.leave(w)
	select {
	case <-w.decided:
		return w.slot, w.err
	case <-ctx.Done():
		return driver.Slot{}, ctx.Err()
	case <-patience.C:
	}
	found, err = s.fetch(ctx, opWait, id)
	return found.slot, err
}

// A watcher looks at the slots that somebody waits for. While there are any, it
// runs a goroutine.
type watcher struct {
	store              *Store
	pauseMin, pauseMax time.Duration
	pace               time.Duration // of looking at one slot
	nudged             chan struct{} // holds one wake-up for the goroutine

	mu      sync.Mutex // guards the fields below, and the watches
	watches map[string]*watch
	stop    context.CancelFunc // ends the goroutine; nil if there is none
}

// A watch is kept on one slot, by all who wait for it.
type watch struct {
	id      string
	seen    record // when it was last looked at; it was pending then
	waiting int
	pause   time.Duration
	due     time.Time // for the next look

	// What became of the slot. It is written before decided is closed, and not
	// after.
	decided chan struct{}
	slot    driver.Slot
	err     error
}

// join adds one who waits for a slot, which was pending a moment ago.
func (r *watcher) join(ctx context.Context, found record) *watch {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := found.slot.ID
	w := r.watches[id]
	if w != nil && w.seen.maker != found.maker {
		r.decideLocked(w, driver.Slot{}, gone(id)) // this is another one
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
		// It looks for others too, and so outlives who starts it.
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		r.stop = stop
		go r.run(running)
	}
	r.wake()
	return w
}

func gone(id string) error { return driver.SlotError(opWait, id, driver.ErrNotFound) }

// earlier returns the earlier of two times, where a zero a is no time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// leave removes one who waits no more.
func (r *watcher) leave(w *watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.waiting--; w.waiting == 0 && r.watches[w.id] == w {
		r.removeLocked(w)
	}
}

// nudge has a slot looked at as soon as may be, because it was changed.
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
	default: // somebody has done so
	}
}

// removeLocked ends a watch, and with the last one the goroutine.
func (r *watcher) removeLocked(w *watch) {
	delete(r.watches, w.id)
	if len(r.watches) == 0 && r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// decideLocked tells everybody who waits for a slot what became of it.
func (r *watcher) decideLocked(w *watch, slot driver.Slot, err error) {
	r.removeLocked(w)
	w.slot, w.err = slot, err
	close(w.decided)
}

// run looks at slots when they are due, until nobody waits.
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

// due ends the watches on slots whose time is over, and returns those that are
// due for a look, the first first and at most a batch, and when there will be
// something to do if there is nothing now. It takes some that are due soon too:
// slots that are looked at together stay together.
func (r *watcher) due(ctx context.Context) (due []*watch, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil { // another goroutine may run since
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
		if last := ends.Add(-lastLook); w.due.After(last) && last.After(now) {
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

// look looks at slots, and tells those who wait what it has found.
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
			continue // nobody waits any more
		}
		shown, looked := found[w.id]
		switch {
		case err != nil:
			r.decideLocked(w, driver.Slot{}, err)
			continue
		case looked:
			answered = r.judgeLocked(w, shown) || answered
		}
		w.pause = min(w.pause+w.pause/2, r.pauseMax)
		w.due = now.Add(w.pause)
	}
	if answered {
		r.hurryLocked(now)
	}
}

// judgeLocked takes note of what a look has shown, and reports whether it was an
// answer.
func (r *watcher) judgeLocked(w *watch, shown item) (answered bool) {
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

// hurryLocked has everything looked at soon.
func (r *watcher) hurryLocked(now time.Time) {
	for _, w := range r.watches {
		w.pause = r.pauseMin
		w.due = earlier(w.due, now.Add(w.pause))
	}
}

// read reads the items of slots. One that is not there is nil, and one that
// DynamoDB was too busy for is missing.
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
