package oapapi

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// held counts the deliveries that a client got on a connection and has not settled there, as
// far as that is known: enough to tell a client that works from one that is idle.
type held struct {
	leases atomic.Int64
	until  atomic.Int64 // Unix nanoseconds: when the last of them ends
}

// took counts deliveries.
func (h *held) took(deliveries int, visibility time.Duration) {
	if deliveries > 0 && visibility > 0 {
		h.lasts(visibility)
		h.leases.Add(int64(deliveries))
	}
}

// lasts notes that a lease ends this long from now.
func (h *held) lasts(visibility time.Duration) {
	at := time.Now().Add(visibility).UnixNano()
	for {
		until := h.until.Load()
		if at <= until || h.until.CompareAndSwap(until, at) {
			return
		}
	}
}

// settled counts deliveries that have ended. Some of them may have been made on other
// connections.
func (h *held) settled(deliveries int) {
	for {
		leases := h.leases.Load()
		if h.leases.CompareAndSwap(leases, max(0, leases-int64(deliveries))) {
			return
		}
	}
}

// any reports whether the client holds deliveries.
func (h *held) any(now time.Time) bool {
	return h.leases.Load() > 0 && now.UnixNano() < h.until.Load()
}

// stillHeld returns how many of the deliveries that a call was to settle are still in flight.
func stillHeld(err error, deliveries int) (held int) {
	if err == nil {
		return 0
	}
	batch, ok := errors.AsType[*driver.BatchError](err)
	if !ok {
		return deliveries
	}
	for _, failure := range batch.Errs {
		if failure != nil && !errors.Is(failure, driver.ErrReceiptExpired) {
			held++
		}
	}
	return held
}
