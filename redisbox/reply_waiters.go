package redisbox

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Waiting for reply slots: a script publishes the answer of a slot on a channel of each
// waiting process, and the process passes it to the goroutines that wait for the slot.
// A process that has created a slot is registered as waiting by the creation.

// Wait returns the slot when it is not pending any more, or as it is when wait has
// passed. Resolve, Cancel and Delete in any process wake it, and so does the expiry of
// the slot. Codes: ErrNotFound, ErrUnavailable, ErrClosed.
func (r *replyStore) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if wait <= 0 {
		found, err := r.bucket(id).Look(ctx, "g", id)
		return found.Slot, slotFailure(err, opWait, id)
	}
	k := r.bucket(id)
	patience := time.NewTimer(wait)
	defer patience.Stop()
	news, found, known := k.await(ctx, id)
	defer k.removeWaiter(id, news)
	for passed, looking := false, false; ; known = false {
		what := "w"
		if passed {
			what = "g"
		}
		var err error
		if !known {
			found, err = k.Look(ctx, what, id)
		}
		if looking {
			<-r.looks
			looking = false
		}
		if err != nil || found.State != driver.SlotPending || passed {
			return found.Slot, slotFailure(err, opWait, id)
		}
		notice, err := k.waitForNotice(ctx, news, patience, found.Left)
		if err == nil && notice == lookAgain {
			notice, err = r.acquireLook(ctx, patience)
		}
		switch {
		case err != nil:
			return driver.Slot{}, slotFailure(err, opWait, id)
		case notice == lookAgain:
			looking = true
		case notice == waitIsOver:
			passed = true
		case notice == "": // this slot was removed, or an earlier one with the same id
		default:
			answered, err := shard.ReadSlot(id, notice)
			if err != nil || answered.CreatedAt.Equal(found.CreatedAt) {
				return answered.Slot, slotFailure(err, opWait, id)
			}
		}
	}
}

// await registers a waiter for a slot, see addWaiter. If this process has created the
// slot, and has been registered since, it returns the slot as it was created.
func (k *replyBucket) await(ctx context.Context, id string) (news chan string, slot shard.FoundSlot, known bool) {
	if ctx.Err() == nil && !k.replies.isClosed() { // otherwise look returns the error
		if created := k.takeCreated(id); created != nil {
			slot.ID, slot.State, slot.CreatedAt, slot.Left = id, driver.SlotPending, created.at, time.Until(created.expires)
			return created.news, slot, true
		}
	}
	return k.addWaiter(ctx, id), slot, false
}

// acquireLook waits until one more waiter may look at its slot. Many may want to at
// once, and their slots may be large; these come on the connection of the
// announcements, and a server cuts that if it is too far behind.
func (r *replyStore) acquireLook(ctx context.Context, patience *time.Timer) (notice string, err error) {
	select {
	case r.looks <- struct{}{}:
		return lookAgain, nil
	case <-patience.C:
		return waitIsOver, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.closing:
		return "", &driver.Error{Code: driver.ErrClosed}
	}
}

// Notices other than a slot.
const (
	lookAgain  = "\x00" // an announcement may have been missed
	waitIsOver = "\x01" // the wait of the caller has passed
)

// waitForNotice waits for a notice about a slot, at most until the slot expires. It
// returns lookAgain regularly, in case an announcement was lost.
func (k *replyBucket) waitForNotice(ctx context.Context, news <-chan string, patience *time.Timer, left time.Duration) (notice string, err error) {
	left = min(left, shard.FallbackInterval)
	if !k.announcements.Active.Load() {
		left = min(left, pollInterval)
	}
	look := time.NewTimer(left)
	defer look.Stop()
	select {
	case notice := <-news:
		return notice, nil
	case <-look.C:
		return lookAgain, nil
	case <-patience.C:
		return waitIsOver, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-k.replies.closing:
		return "", &driver.Error{Code: driver.ErrClosed}
	}
}

// addWaiter registers a waiter for a slot. Its channel holds the latest notice. The
// first waiter starts the subscription.
func (k *replyBucket) addWaiter(ctx context.Context, id string) chan string {
	news := make(chan string, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting[id] = append(k.waiting[id], news)
	if k.unsubscribe == nil && !k.stopped {
		ctx, k.unsubscribe = context.WithCancel(context.WithoutCancel(ctx))
		k.Server.Running.Start(func() { k.announcements.Run(ctx) })
	}
	return news
}

func (k *replyBucket) removeWaiter(id string, news chan string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := slices.DeleteFunc(k.waiting[id], func(other chan string) bool { return other == news })
	if len(left) == 0 {
		delete(k.waiting, id)
	} else {
		k.waiting[id] = left
	}
}

// stop ends the subscription.
func (k *replyBucket) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	if k.unsubscribe != nil {
		k.unsubscribe()
	}
}

// onAnnouncement passes an announcement to the waiters of the slot.
func (k *replyBucket) onAnnouncement(_ context.Context, message string) {
	if len(message) < 2 {
		return
	}
	n := int(binary.LittleEndian.Uint16(shard.BytesOf(message[:2])))
	if message = message[2:]; n > len(message) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, news := range k.waiting[message[:n]] {
		notifyWaiter(news, message[n:])
	}
}

// onSubscribed makes all waiters look again.
func (k *replyBucket) onSubscribed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, all := range k.waiting {
		for _, news := range all {
			notifyWaiter(news, lookAgain)
		}
	}
}

// notifyWaiter puts the latest notice into a channel. A slot that was written can only
// be removed after that, so its notice replaces an earlier lookAgain.
func notifyWaiter(news chan string, notice string) {
	select {
	case news <- notice:
	default:
		if notice != lookAgain {
			select {
			case <-news:
			default:
			}
			news <- notice
		}
	}
}

// A createdSlot is a slot that this process has created and has been registered for
// since: waiting for it needs no call.
type createdSlot struct {
	id      string
	news    chan string // see addWaiter
	at      time.Time   // by the server
	expires time.Time   // by our clock, at the earliest
}

// maxCreated is how many created slots of a bucket are remembered. Waiting for an
// earlier one takes a call.
const maxCreated = 128

// createdSlots are the latest slots of a bucket that this process has created and not
// waited for. The mutex of the bucket guards them.
type createdSlots struct {
	byID map[string]*createdSlot
	ring [maxCreated]*createdSlot
	next int
}

// add adds a slot, and returns the one that it replaces, if any.
func (c *createdSlots) add(added *createdSlot) (replaced *createdSlot) {
	if c.byID == nil {
		c.byID = make(map[string]*createdSlot)
	}
	if oldest := c.ring[c.next]; oldest != nil && c.byID[oldest.id] == oldest {
		replaced = c.take(oldest.id)
	}
	c.ring[c.next], c.byID[added.id] = added, added
	c.next = (c.next + 1) % maxCreated
	return replaced
}

// take removes a slot and returns it, or nil.
func (c *createdSlots) take(id string) *createdSlot {
	found := c.byID[id]
	delete(c.byID, id)
	return found
}

// prepare registers a waiter for a slot that is about to be created. It returns nil if
// there is no subscription yet: the first Wait starts it.
func (k *replyBucket) prepare(ctx context.Context, id string) chan string {
	if !k.announcements.Active.Load() {
		return nil
	}
	return k.addWaiter(ctx, id)
}

// rememberCreated records that this process has created a slot.
func (k *replyBucket) rememberCreated(created *createdSlot) {
	k.forgetCreated(created.id) // an earlier one with the same id
	k.mu.Lock()
	replaced := k.created.add(created)
	k.mu.Unlock()
	if replaced != nil {
		k.removeWaiter(replaced.id, replaced.news)
	}
}

// takeCreated removes and returns a slot that this process has created, or nil.
func (k *replyBucket) takeCreated(id string) *createdSlot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.created.take(id)
}

// forgetCreated forgets a slot before it is removed.
func (k *replyBucket) forgetCreated(id string) {
	if created := k.takeCreated(id); created != nil {
		k.removeWaiter(id, created.news)
	}
}
