package reply

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// defaultMaxSlots is the default limit on the slots of a store.
const defaultMaxSlots = 100_000

// lingerExpired is how long an expired slot is kept, so that calls return that it
// expired. After that, Create sweeps it.
const lingerExpired = time.Minute

// sweepPerCreate is how many expired slots one Create sweeps: more than one, so that
// sweeping outpaces creating.
const sweepPerCreate = 2

// MemoryOptions configure a store of NewMemory. The zero value, and nil, mean the defaults.
type MemoryOptions struct {
	// MaxSlots bounds the slots. 0 means 100,000.
	MaxSlots int
	// MaxBodyBytes bounds the body of an answer. 0 means
	// driver.DefaultMaxBodyBytes.
	MaxBodyBytes int
}

// memory is a reply store in memory. Each call first moves the slots whose time is over from the heap of living slots to
// the list of expired ones. While a caller waits, a timer does the same.
type memory struct {
	maxSlots     int
	maxBodyBytes int
	start        time.Time // instants are durations since then
	startUTC     time.Time // the same as wall clock time

	mu      sync.Mutex // guards the fields below, and the slots
	slots   map[string]*slot
	living  slotHeap
	expired slotList
	waiting int         // callers that wait
	signals []signal    // unused ones; at most maxIdle
	spare   []*slot     // removed ones; at most maxIdle
	timer   *time.Timer // set for the first living slot while a caller waits
	armed   time.Duration
}

// A signal wakes one waiting caller. It holds one wake-up.
type signal chan struct{}

// maxIdle bounds the signals and slots that are kept for reuse: allocating them for
// every request would be a good part of its cost.
const maxIdle = 64

var _ driver.ReplyStore = (*memory)(nil)

// A slot is pending until it is written, or expires.
type slot struct {
	id       string
	state    driver.SlotState
	answer   driver.Answer
	created  time.Duration
	expires  time.Duration
	resolved time.Duration
	// waiter, and others if there are more, wait until the slot is resolved,
	// cancelled, expired or removed.
	waiter  signal
	others  []signal
	waiting int // callers that wait, woken ones included

	position   int   // in the heap; -1 if it is not in it
	prev, next *slot // in the list
	removed    bool
}

// NewMemory returns an empty reply store in memory, for clients and workers of one
// process. It uses the monotonic clock, wakes waiting callers, and runs no goroutine;
// Create sweeps expired slots. It does no I/O, and only Wait blocks.
func NewMemory(options *MemoryOptions) driver.ReplyStore {
	m := &memory{
		maxSlots: defaultMaxSlots, maxBodyBytes: driver.DefaultMaxBodyBytes,
		start: time.Now(), slots: make(map[string]*slot),
	}
	m.startUTC = m.start.UTC()
	if options != nil {
		if options.MaxSlots > 0 {
			m.maxSlots = options.MaxSlots
		}
		if options.MaxBodyBytes > 0 {
			m.maxBodyBytes = options.MaxBodyBytes
		}
	}
	return m
}

// The names of operations in errors.
const (
	opCreate  = "create slot"
	opResolve = "resolve"
	opCancel  = "cancel"
	opGet     = "get"
	opWait    = "wait"
	opConsume = "consume"
)

// Create creates a pending slot that expires after ttl. It does not block. Codes:
// ErrConflict, ErrInvalid, ErrFull.
func (m *memory) Create(ctx context.Context, id string, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := driver.CheckSlot(id, ttl); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advanceLocked()
	m.sweepLocked(now-lingerExpired, sweepPerCreate)
	if m.slots[id] != nil {
		return driver.SlotError(opCreate, id, driver.ErrConflict)
	}
	if len(m.slots) >= m.maxSlots && m.sweepLocked(now, 1) == 0 {
		full := driver.SlotError(opCreate, id, driver.ErrFull)
		full.Detail = fmt.Sprintf("there are %d slots", len(m.slots))
		full.RetryAfter = max(m.living[0].expires-now, time.Millisecond)
		return full
	}
	s := m.newSlotLocked()
	s.id, s.state, s.created, s.expires = id, driver.SlotPending, now, now+ttl
	m.slots[id] = s
	m.living.push(s)
	m.armLocked(now) // it may be the first to expire
	return nil
}

// Resolve stores the answer and wakes the callers that wait. It does not block.
// Codes: ErrReplyAlreadySent, ErrReplyCancelled, ErrReplyExpired, ErrNotFound,
// ErrTooLarge.
func (m *memory) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if size := len(answer.Body); size > m.maxBodyBytes {
		large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
		large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed", size, m.maxBodyBytes)
		return large
	}
	answer.Body = bytes.Clone(answer.Body) // the caller may reuse it
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advanceLocked()
	s := m.slots[id]
	if s == nil {
		return driver.SlotError(opResolve, id, driver.ErrNotFound)
	}
	if s.state != driver.SlotPending { // a slot is written once
		return s.state.WriteError(opResolve, id)
	}
	s.state, s.answer, s.resolved = driver.SlotResolved, answer, now
	s.wakeLocked()
	return nil
}

// Cancel cancels the slot and wakes the callers that wait. It does not block. Codes:
// ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound.
func (m *memory) Cancel(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advanceLocked()
	s := m.slots[id]
	switch {
	case s == nil:
		return driver.SlotError(opCancel, id, driver.ErrNotFound)
	case s.state == driver.SlotCancelled:
		return nil
	case s.state != driver.SlotPending:
		return s.state.WriteError(opCancel, id)
	}
	s.state = driver.SlotCancelled
	s.wakeLocked()
	return nil
}

// Get returns the slot. It does not block. Codes: ErrNotFound.
func (m *memory) Get(ctx context.Context, id string) (driver.Slot, error) {
	if err := ctx.Err(); err != nil {
		return driver.Slot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advanceLocked()
	s := m.slots[id]
	if s == nil {
		return driver.Slot{}, driver.SlotError(opGet, id, driver.ErrNotFound)
	}
	return m.record(s), nil
}

// record returns the slot as callers see it.
func (m *memory) record(s *slot) driver.Slot {
	record := driver.Slot{
		ID: s.id, State: s.state,
		CreatedAt: m.startUTC.Add(s.created), ExpiresAt: m.startUTC.Add(s.expires),
	}
	if s.state == driver.SlotResolved {
		record.Answer, record.ResolvedAt = s.answer, m.startUTC.Add(s.resolved)
	}
	return record
}

// Wait returns the slot when it is not pending any more, or after wait. Resolve, Cancel
// and the end of the slot's time wake it. Codes: ErrNotFound.
func (m *memory) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if err := ctx.Err(); err != nil {
		return driver.Slot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advanceLocked()
	s := m.slots[id]
	if s == nil {
		return driver.Slot{}, driver.SlotError(opWait, id, driver.ErrNotFound)
	}
	if s.state != driver.SlotPending || wait <= 0 {
		return m.record(s), nil
	}
	if err := m.awaitLocked(ctx, s, now, wait); err != nil {
		return driver.Slot{}, err
	}
	if s.state == driver.SlotPending {
		m.advanceLocked()
	}
	if s.removed && s.state == driver.SlotPending {
		return driver.Slot{}, driver.SlotError(opWait, id, driver.ErrNotFound)
	}
	// Every waiting caller gets the answer, also if one of them has removed the slot
	// since.
	return m.record(s), nil
}

// awaitLocked blocks, without the lock, until the slot has changed or wait has
// passed.
func (m *memory) awaitLocked(ctx context.Context, s *slot, now, wait time.Duration) error {
	wake := m.joinLocked(s)
	m.armLocked(now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.leaveLocked(s, wake)
	}()
	// Most callers wait for as long as the slot lives; the store's timer ends that.
	var timeout <-chan time.Time
	if wait < s.expires-now {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-wake:
	case <-timeout:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// joinLocked adds a waiting caller to a slot, and returns its signal.
func (m *memory) joinLocked(s *slot) signal {
	m.waiting++
	s.waiting++
	var wake signal
	if last := len(m.signals) - 1; last >= 0 {
		wake, m.signals = m.signals[last], m.signals[:last]
	} else {
		wake = make(signal, 1)
	}
	if s.waiter == nil {
		s.waiter = wake
	} else {
		s.others = append(s.others, wake)
	}
	return wake
}

// leaveLocked removes a waiting caller, woken or not.
func (m *memory) leaveLocked(s *slot, wake signal) {
	m.waiting--
	s.waiting--
	if s.waiter == wake {
		s.waiter = nil
	} else {
		s.others = slices.DeleteFunc(s.others, func(other signal) bool { return other == wake })
	}
	select {
	case <-wake: // woken after it stopped waiting
	default:
	}
	if len(m.signals) < maxIdle {
		m.signals = append(m.signals, wake)
	}
}

// Consume returns a slot that is not pending and removes it. It does not block.
// Codes: ErrNotFound.
func (m *memory) Consume(ctx context.Context, id string) (driver.Slot, error) {
	if err := ctx.Err(); err != nil {
		return driver.Slot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advanceLocked()
	s := m.slots[id]
	if s == nil {
		return driver.Slot{}, driver.SlotError(opConsume, id, driver.ErrNotFound)
	}
	found := m.record(s)
	if s.state != driver.SlotPending {
		m.removeLocked(s)
	}
	return found, nil
}

// Delete removes the slot. It does not block.
func (m *memory) Delete(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.slots[id]; s != nil {
		m.removeLocked(s)
	}
	return nil
}

// Expired lists up to limit ids of expired slots, oldest first. It does not block. Codes: ErrInvalid.
func (m *memory) Expired(ctx context.Context, limit int) ([]string, error) {
	if err := checkLimit(ctx, "list expired slots", limit); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advanceLocked()
	var ids []string
	for s := m.expired.first; s != nil && len(ids) < limit; s = s.next {
		ids = append(ids, s.id)
	}
	return ids, nil
}

// Sweep removes up to limit expired slots. It does not block. Codes:
// ErrInvalid.
func (m *memory) Sweep(ctx context.Context, limit int) (removed int, err error) {
	if err := checkLimit(ctx, "sweep slots", limit); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sweepLocked(m.advanceLocked(), limit), nil
}

// Len returns the number of slots, in any state.
func (m *memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.slots)
}

func checkLimit(ctx context.Context, op string, limit int) error {
	if limit < 1 {
		return &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "limit", Detail: fmt.Sprintf("%d, at least 1 is needed", limit)}
	}
	return ctx.Err()
}

// advanceLocked expires the slots whose time is over, and returns the time.
func (m *memory) advanceLocked() (now time.Duration) {
	now = time.Since(m.start)
	for len(m.living) > 0 && m.living[0].expires <= now {
		s := m.living[0]
		m.living.remove(s)
		m.expired.push(s)
		s.state, s.answer = driver.SlotExpired, driver.Answer{}
		s.wakeLocked()
	}
	return now
}

// armLocked sets the timer for the first slot to expire, if a caller waits. It never
// moves the timer to a later time: firing early is cheap.
func (m *memory) armLocked(now time.Duration) {
	if m.waiting == 0 || len(m.living) == 0 {
		return
	}
	first := m.living[0].expires
	switch {
	case m.timer == nil:
		m.timer = time.AfterFunc(first-now, m.fire)
	case m.armed == 0 || m.armed > first:
		m.timer.Reset(first - now)
	default:
		return
	}
	m.armed = first
}

func (m *memory) fire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = 0
	m.armLocked(m.advanceLocked())
}

// sweepLocked removes up to limit slots that had expired at an instant.
func (m *memory) sweepLocked(at time.Duration, limit int) (removed int) {
	for removed < limit && m.expired.first != nil && m.expired.first.expires <= at {
		m.removeLocked(m.expired.first)
		removed++
	}
	return removed
}

// removeLocked removes a slot, which must not be used after that.
func (m *memory) removeLocked(s *slot) {
	delete(m.slots, s.id)
	if s.position >= 0 {
		m.living.remove(s)
	} else {
		m.expired.remove(s)
	}
	s.removed = true
	s.wakeLocked()
	if s.waiting == 0 && len(m.spare) < maxIdle { // no caller uses it any more
		*s = slot{}
		m.spare = append(m.spare, s)
	}
}

// newSlotLocked returns an empty slot, reusing a removed one if possible.
func (m *memory) newSlotLocked() *slot {
	last := len(m.spare) - 1
	if last < 0 {
		return new(slot)
	}
	s := m.spare[last]
	m.spare = m.spare[:last]
	return s
}

// wakeLocked wakes all callers that wait for the slot.
func (s *slot) wakeLocked() {
	if s.waiter != nil {
		s.waiter <- struct{}{}
		s.waiter = nil
	}
	for _, wake := range s.others {
		wake <- struct{}{}
	}
	s.others = nil
}
