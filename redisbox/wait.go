package redisbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Wait returns the slot when it is pending no more, or as it is when wait has
// passed. It is woken by Resolve, Cancel and Delete, in whatever process, and by the
// end of the slot's time. Codes: ErrNotFound, ErrUnavailable, ErrClosed.
func (r *Replies) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if wait <= 0 {
		found, err := r.bucket(id).look(ctx, "g", id)
		return found.Slot, slotFailure(err, opWait, id)
	}
	k := r.bucket(id)
	patience := time.NewTimer(wait)
	defer patience.Stop()
	told, found, expected := k.await(ctx, id)
	defer k.leave(id, told)
	for passed, inTurn := false, false; ; expected = false {
		what := "w"
		if passed {
			what = "g"
		}
		var err error
		if !expected {
			found, err = k.look(ctx, what, id)
		}
		if inTurn {
			<-r.turns
			inTurn = false
		}
		if err != nil || found.State != driver.SlotPending || passed {
			return found.Slot, slotFailure(err, opWait, id)
		}
		news, err := k.doze(ctx, told, patience, found.left)
		if err == nil && news == lookAgain {
			news, err = r.takeTurn(ctx, patience)
		}
		switch {
		case err != nil:
			return driver.Slot{}, slotFailure(err, opWait, id)
		case news == lookAgain:
			inTurn = true
		case news == patienceIsOver:
			passed = true
		case news == "": // removed, or one of the same id was, before this one
		default:
			told, err := readSlot(id, news)
			if err != nil || told.CreatedAt.Equal(found.CreatedAt) {
				return told.Slot, slotFailure(err, opWait, id)
			}
		}
	}
}

// await registers one who waits for a slot, see join. If this process has made the
// slot, and has been told about it since, it returns what that was like.
func (k *bucket) await(ctx context.Context, id string) (told chan string, made foundSlot, expected bool) {
	if ctx.Err() == nil && !k.replies.isClosed() { // otherwise looking tells what is wrong
		if found := k.expectation(id); found != nil {
			made.ID, made.State, made.CreatedAt, made.left = id, driver.SlotPending, found.created, time.Until(found.ends)
			return found.told, made, true
		}
	}
	return k.join(ctx, id), made, false
}

// takeTurn waits until one more may look again. Many may want to at a time, and what
// they find may be large; it comes on the connection of the announcements, and a
// server cuts that if too much is on its way.
func (r *Replies) takeTurn(ctx context.Context, patience *time.Timer) (news string, err error) {
	select {
	case r.turns <- struct{}{}:
		return lookAgain, nil
	case <-patience.C:
		return patienceIsOver, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.closing:
		return "", &driver.Error{Code: driver.ErrClosed}
	}
}

// patienceIsOver is what doze returns when nothing was told in time.
const patienceIsOver = "\x01"

// doze waits for news of a slot, for as long as the slot has left, and has it
// looked at now and then all the same.
func (k *bucket) doze(ctx context.Context, told <-chan string, patience *time.Timer, left time.Duration) (news string, err error) {
	left = min(left, lookEvery)
	if !k.ear.listens.Load() {
		left = min(left, lookAlone) // nobody will tell
	}
	look := time.NewTimer(left)
	defer look.Stop()
	select {
	case news := <-told:
		return news, nil
	case <-look.C:
		return lookAgain, nil
	case <-patience.C:
		return patienceIsOver, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-k.replies.closing:
		return "", &driver.Error{Code: driver.ErrClosed}
	}
}
