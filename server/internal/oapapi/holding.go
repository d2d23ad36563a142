package oapapi

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A holding is what a client was handed on a connection and has not settled there,
// as far as that is known: enough to tell a client that works from one that is
// idle.
type holding struct {
	leases atomic.Int64
	until  atomic.Int64 // Unix nanoseconds: when the last of them ends
}

// took counts deliveries that were handed out.
func (h *holding) took(deliveries int, visibility time.Duration) {
	if deliveries > 0 && visibility > 0 {
		h.lasts(visibility)
		h.leases.Add(int64(deliveries))
	}
}

// lasts notes that a lease ends so long from now.
func (h *holding) lasts(visibility time.Duration) {
	at := time.Now().Add(visibility).UnixNano()
	for {
		until := h.until.Load()
		if at <= until || h.until.CompareAndSwap(until, at) {
			return
		}
	}
}

// settled counts deliveries that are out no more. Some of them may have been
// handed out on other connections.
func (h *holding) settled(deliveries int) {
	for {
		leases := h.leases.Load()
		if h.leases.CompareAndSwap(leases, max(0, leases-int64(deliveries))) {
			return
		}
	}
}

// any reports whether something is held.
func (h *holding) any(now time.Time) bool {
	return h.leases.Load() > 0 && now.UnixNano() < h.until.Load()
}

// ending counts what a settlement ends.
func ending[T any](h *holding, do func(context.Context, string, []T) error) func(context.Context, string, []T) error {
	return func(ctx context.Context, topic string, elements []T) error {
		err := do(ctx, topic, elements)
		h.settled(len(elements) - stillHeld(err, len(elements)))
		return err
	}
}

// extending counts extensions, of which those by nothing end a lease.
func (h *holding) extending(do func(context.Context, string, []driver.Extension) ([]time.Duration, error)) func(context.Context, string, []driver.Extension) ([]time.Duration, error) {
	return func(ctx context.Context, topic string, extensions []driver.Extension) ([]time.Duration, error) {
		granted, err := do(ctx, topic, extensions)
		if stillHeld(err, len(extensions)) == len(extensions) {
			return granted, err // or there is nothing to count
		}
		var longest time.Duration
		ended := 0
		for i := range extensions {
			longest = max(longest, extensions[i].Visibility)
			if extensions[i].Visibility == 0 {
				ended++
			}
		}
		h.lasts(longest)
		h.settled(ended)
		return granted, err
	}
}

// stillHeld is how many of the deliveries that were to be settled are still out.
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
