package slotstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Expired lists up to limit ids of expired slots, oldest first. It does not block. Codes: ErrInvalid.
func (m *Store) Expired(ctx context.Context, limit int) ([]string, error) {
	if err := m.checkLimit(ctx, opExpired, limit); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, m.closedError(opExpired, "")
	}
	m.advanceLocked()
	var ids []string
	for s := m.expired.first; s != nil && len(ids) < limit; s = s.next {
		ids = append(ids, s.id)
	}
	return ids, nil
}

// Sweep removes up to limit expired slots. It does not block. Codes: ErrInvalid.
func (m *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	if err := m.checkLimit(ctx, opSweep, limit); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, m.closedError(opSweep, "")
	}
	return m.sweepLocked(m.advanceLocked(), limit), nil
}

// Slots yields the slots, without answers, in the order in which they expire. It does not block.
func (m *Store) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		m.mu.Lock()
		m.advanceLocked()
		all := make([]driver.Slot, 0, len(m.slots))
		for _, s := range m.slots {
			record := s.record()
			record.Answer = driver.Answer{}
			all = append(all, record)
		}
		m.mu.Unlock()
		slices.SortFunc(all, func(a, b driver.Slot) int {
			return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), strings.Compare(a.ID, b.ID))
		})
		for i := range all {
			if err := ctx.Err(); err != nil {
				yield(driver.Slot{}, err)
				return
			}
			if !yield(all[i], nil) {
				return
			}
		}
	}
}

// Len returns the number of slots, in any state.
func (m *Store) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.slots)
}

func (m *Store) checkLimit(ctx context.Context, op string, limit int) error {
	if limit < 1 {
		return &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "limit", Detail: fmt.Sprintf("%d, at least 1 is needed", limit)}
	}
	return m.check(ctx, op, "")
}

// sweepLocked removes up to limit slots that had expired at an instant.
func (m *Store) sweepLocked(at time.Duration, limit int) (removed int) {
	for removed < limit && m.expired.first != nil && m.expired.first.expires <= at {
		s := m.expired.first
		m.removeLocked(s)
		m.forgetLocked(s)
		removed++
	}
	return removed
}
