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
	told := k.join(ctx, id)
	defer k.leave(id, told)
	for passed := false; ; {
		what := "w"
		if passed {
			what = "g"
		}
		found, err := k.look(ctx, what, id)
		if err != nil || found.State != driver.SlotPending || passed {
			return found.Slot, slotFailure(err, opWait, id)
		}
		news, err := k.doze(ctx, told, patience, found.left)
		switch {
		case err != nil:
			return driver.Slot{}, slotFailure(err, opWait, id)
		case news == lookAgain:
		case news == patienceIsOver:
			passed = true
		case news == "":
			return driver.Slot{}, driver.SlotError(opWait, id, driver.ErrNotFound)
		default:
			found, err := readSlot(id, news)
			return found.Slot, slotFailure(err, opWait, id)
		}
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
