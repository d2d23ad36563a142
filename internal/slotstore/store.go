package slotstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// DefaultMaxSlots is the default limit on the slots of a store.
const DefaultMaxSlots = 100_000

// DefaultMaxBytes is the default limit on the answers that a store without a journal keeps.
const DefaultMaxBytes = 256 << 20

// retryFull is the RetryAfter of that limit: most answers are read within a second.
const retryFull = time.Second

// LingerExpired is how long an expired slot is kept, so that calls return that it
// expired. After that, Create sweeps it.
const LingerExpired = time.Minute

// sweepPerCreate is how many expired slots one Create sweeps: more than one, so that
// sweeping outpaces creating.
const sweepPerCreate = 2

// Options configure a Store. The zero value means the defaults.
type Options struct {
	// MaxSlots bounds the slots. 0 means DefaultMaxSlots.
	MaxSlots int
	// MaxBodyBytes bounds the body of an answer, and the text of a failure. 0 means
	// driver.DefaultMaxBodyBytes.
	MaxBodyBytes int
	// MaxBytes bounds the answers of all slots in a store without a journal. 0 means DefaultMaxBytes.
	MaxBytes int64
	// Journal makes the slots durable. Nil means that they are in memory only.
	Journal Journal
	// Now returns the time on the axis of Record, and Wall the wall clock time. Both or
	// neither must be set; the default axis starts with the store.
	Now  func() time.Duration
	Wall func() time.Time
}

// A Store is a reply store. Each call first moves the slots whose time is over from the heap of
// living slots to the list of expired ones. While a caller waits, a timer does the same.
type Store struct {
	maxSlots     int
	maxBodyBytes int
	maxBytes     int64
	journal      Journal
	now          func() time.Duration
	wall         func() time.Time
	reads        chan struct{} // holds one for each answer that is being read from the journal

	mu      sync.Mutex // guards the fields below, and the slots
	slots   map[string]*slot
	bytes   int64 // of answers, without a journal
	living  slotHeap
	expired slotList
	waiting int         // callers that wait
	signals []signal    // unused ones; at most maxIdle
	spare   []*slot     // removed ones; at most maxIdle
	timer   *time.Timer // set for the first living slot while a caller waits
	armed   time.Duration
	closed  bool
}

// maxIdle bounds the signals and slots that are kept for reuse: allocating them for
// every request would be a good part of its cost.
const maxIdle = 64

// maxReads bounds the answers that are read from the journal at once: a slot can have thousands of
// waits, and each reads its own copy.
const maxReads = 16

var (
	_ driver.ReplyStore = (*Store)(nil)
	_ driver.SlotLister = (*Store)(nil)
)

// A slot is pending until it is written, or expires.
type slot struct {
	id       string
	state    driver.SlotState
	answer   driver.Answer
	wall     int64 // when it was created, in Unix nanoseconds
	created  time.Duration
	expires  time.Duration
	resolved time.Duration
	// waiter, and others if there are more, wait until the slot is resolved,
	// cancelled, expired or removed.
	waiter  signal
	others  []signal
	watches []*watch
	waiting int // callers that wait, woken ones included

	position   int   // in the heap; -1 if it is not in it
	prev, next *slot // in the list
	removed    bool

	// With a journal: how many writes are not durable, the calls that wait until none is, whether
	// the journal has an answer, and whether only the journal has it.
	undurable     int
	settling      []durable
	stored, apart bool
}

// New returns an empty store. It does no I/O.
func New(o Options) *Store {
	m := &Store{
		maxSlots: DefaultMaxSlots, maxBodyBytes: driver.DefaultMaxBodyBytes, maxBytes: DefaultMaxBytes,
		journal: o.Journal, now: o.Now, wall: o.Wall, slots: make(map[string]*slot),
		reads: make(chan struct{}, maxReads),
	}
	if o.MaxSlots > 0 {
		m.maxSlots = o.MaxSlots
	}
	if o.MaxBodyBytes > 0 {
		m.maxBodyBytes = o.MaxBodyBytes
	}
	if o.MaxBytes > 0 {
		m.maxBytes = o.MaxBytes
	}
	if m.now == nil {
		start := time.Now()
		m.now = func() time.Duration { return time.Since(start) }
		m.wall = func() time.Time { return start.Add(time.Since(start)) }
	}
	return m
}

// InMemory reports whether the store has no journal. Then no call but Wait blocks; with one,
// CreateWithSend does not.
func (m *Store) InMemory() bool { return m.journal == nil }

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
)

// check returns why an operation cannot start, or nil.
func (m *Store) check(ctx context.Context, op, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.usable(op, id)
}

// usable returns why no operation is possible, or nil.
func (m *Store) usable(op, id string) error {
	if m.journal == nil {
		return nil
	}
	if err := m.journal.Failed(); err != nil {
		return annotate(err, op, id)
	}
	return nil
}

func (m *Store) closedError(op, id string) error {
	closed := driver.SlotError(op, id, driver.ErrClosed)
	if id == "" {
		closed.Queue = ""
	}
	return closed
}

func annotate(err error, op, id string) error {
	if id == "" {
		return driver.Annotate(err, "", op)
	}
	return driver.Annotate(err, driver.SlotAddress(id), op)
}

// Create creates a pending slot that expires after ttl. It blocks until the slot is durable.
// Codes: ErrConflict, ErrInvalid, ErrFull.
func (m *Store) Create(ctx context.Context, id string, ttl time.Duration) error {
	durable, err := m.create(ctx, id, ttl)
	return m.finish(opCreate, id, durable, err)
}

// create is Create without waiting.
func (m *Store) create(ctx context.Context, id string, ttl time.Duration) (durable, error) {
	if err := m.check(ctx, opCreate, id); err != nil {
		return nil, err
	}
	if err := driver.CheckSlot(id, ttl); err != nil {
		return nil, err
	}
	if err := m.admit(opCreate, id); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, m.closedError(opCreate, id)
	}
	now := m.advanceLocked()
	m.sweepLocked(now-LingerExpired, sweepPerCreate)
	if s := m.slots[id]; s != nil {
		return m.settledLocked(s), driver.SlotError(opCreate, id, driver.ErrConflict)
	}
	if len(m.slots) >= m.maxSlots && m.sweepLocked(now, 1) == 0 {
		full := driver.SlotError(opCreate, id, driver.ErrFull)
		full.Detail = fmt.Sprintf("slot limit reached (%d)", m.maxSlots)
		full.RetryAfter = max(m.living[0].expires-now, time.Millisecond)
		return nil, full
	}
	s := m.newSlotLocked()
	s.id, s.state, s.created, s.expires, s.wall = id, driver.SlotPending, now, now+ttl, m.wall().UnixNano()
	m.slots[id] = s
	m.living.push(s)
	m.armLocked(now) // it may be the first to expire
	return m.writtenLocked(s), nil
}

// Resolve stores the answer and wakes the callers that wait. It blocks until the answer is
// durable. Codes: ErrReplyAlreadySent, ErrReplyCancelled, ErrReplyExpired, ErrNotFound,
// ErrTooLarge; with a journal also ErrFull.
func (m *Store) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	durable, err := m.resolve(ctx, id, answer)
	return m.finish(opResolve, id, durable, err)
}

// resolve is Resolve without waiting.
func (m *Store) resolve(ctx context.Context, id string, answer driver.Answer) (durable, error) {
	if err := m.check(ctx, opResolve, id); err != nil {
		return nil, err
	}
	if err := m.checkAnswer(id, &answer); err != nil {
		return nil, err
	}
	if err := m.admit(opResolve, id); err != nil {
		return nil, err
	}
	answer.Body = bytes.Clone(answer.Body) // the caller may reuse it
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, m.closedError(opResolve, id)
	}
	now := m.advanceLocked()
	s := m.slots[id]
	if s == nil {
		return nil, driver.SlotError(opResolve, id, driver.ErrNotFound)
	}
	if s.state != driver.SlotPending { // a slot is written once
		return m.settledLocked(s), s.state.WriteError(opResolve, id)
	}
	if m.bytes+answerBytes(&answer) > m.maxBytes && m.journal == nil {
		full := driver.SlotError(opResolve, id, driver.ErrFull)
		full.Detail, full.RetryAfter = fmt.Sprintf("the answers that wait to be read have %d bytes, at most %d are allowed", m.bytes, m.maxBytes), retryFull
		return nil, full
	}
	s.state, s.resolved = driver.SlotResolved, now
	m.setAnswerLocked(s, answer)
	s.stored = m.journal != nil
	return m.writtenLocked(s), nil
}

// setAnswerLocked sets the answer of a slot that is in memory.
func (m *Store) setAnswerLocked(s *slot, answer driver.Answer) {
	m.countLocked(answerBytes(&answer) - answerBytes(&s.answer))
	s.answer = answer
}

// countLocked counts bytes of answers. A journal has its own bounds, and keeps large ones on disk.
func (m *Store) countLocked(bytes int64) {
	if m.journal == nil {
		m.bytes += bytes
	}
}

func answerBytes(a *driver.Answer) int64 {
	return int64(len(a.Body) + len(a.Failure) + len(a.FailureKind))
}

// checkAnswer refuses an answer that is too large.
func (m *Store) checkAnswer(id string, answer *driver.Answer) error {
	field, size := "Body", len(answer.Body)
	if texts := len(answer.Failure) + len(answer.FailureKind); texts > size {
		field, size = "Failure", texts
	}
	if size <= m.maxBodyBytes {
		return nil
	}
	large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
	large.Field, large.Detail = field, fmt.Sprintf("%d bytes, at most %d are allowed", size, m.maxBodyBytes)
	return large
}

// Cancel cancels the slot and wakes the callers that wait. It blocks until that is durable.
// Codes: ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound.
func (m *Store) Cancel(ctx context.Context, id string) error {
	durable, err := m.cancel(ctx, id)
	return m.finish(opCancel, id, durable, err)
}

func (m *Store) cancel(ctx context.Context, id string) (durable, error) {
	if err := m.check(ctx, opCancel, id); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, m.closedError(opCancel, id)
	}
	m.advanceLocked()
	s := m.slots[id]
	switch {
	case s == nil:
		return nil, driver.SlotError(opCancel, id, driver.ErrNotFound)
	case s.state == driver.SlotCancelled:
		return m.settledLocked(s), nil
	case s.state != driver.SlotPending:
		return m.settledLocked(s), s.state.WriteError(opCancel, id)
	}
	s.state = driver.SlotCancelled
	return m.writtenLocked(s), nil
}

// errApart says that only the journal has the answer of a slot.
var errApart = errors.New("the answer is not in memory")

// Consume returns a slot that is not pending and removes it. It blocks until that is durable.
// Codes: ErrNotFound; with a journal also ErrIntegrity.
func (m *Store) Consume(ctx context.Context, id string) (driver.Slot, error) {
	var read driver.Slot
	for {
		found, durable, err := m.consume(ctx, id, &read)
		if errors.Is(err, errApart) {
			if read, err = m.Get(ctx, id); err == nil {
				continue
			}
			return driver.Slot{}, annotate(err, opConsume, id)
		}
		if err := m.finish(opConsume, id, durable, err); err != nil {
			return driver.Slot{}, err
		}
		return found, nil
	}
}

// consume is Consume without waiting. read is the slot as it was read before, with its answer.
func (m *Store) consume(ctx context.Context, id string, read *driver.Slot) (driver.Slot, durable, error) {
	if err := m.check(ctx, opConsume, id); err != nil {
		return driver.Slot{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return driver.Slot{}, nil, m.closedError(opConsume, id)
	}
	m.advanceLocked()
	s := m.slots[id]
	if s == nil {
		return driver.Slot{}, nil, driver.SlotError(opConsume, id, driver.ErrNotFound)
	}
	found := s.record()
	if s.state == driver.SlotPending {
		return found, m.settledLocked(s), nil
	}
	if s.state == driver.SlotResolved && s.apart {
		if read.State != driver.SlotResolved || !read.CreatedAt.Equal(found.CreatedAt) {
			return driver.Slot{}, nil, errApart
		}
		found.Answer = read.Answer
	}
	return found, m.deletedLocked(s), nil
}

// Delete removes the slot. It blocks until that is durable.
func (m *Store) Delete(ctx context.Context, id string) error {
	if err := m.check(ctx, opDelete, id); err != nil {
		return err
	}
	m.mu.Lock()
	var gone durable
	var err error
	if m.closed {
		err = m.closedError(opDelete, id)
	} else if s := m.slots[id]; s != nil {
		gone = m.deletedLocked(s)
	}
	m.mu.Unlock()
	return m.finish(opDelete, id, gone, err)
}

// Discard removes a resolved slot that is not needed any more, and whose id is not used again.
// It does not block. After a crash the slot may be there again, until it expires.
func (m *Store) Discard(_ context.Context, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.slots[id]; s != nil && !m.closed {
		m.removeLocked(s)
		m.forgetLocked(s)
	}
}

// advanceLocked expires the slots whose time is over, and returns the time.
func (m *Store) advanceLocked() (now time.Duration) {
	now = m.now()
	for len(m.living) > 0 && m.living[0].expires <= now {
		s := m.living[0]
		m.living.remove(s)
		m.expired.push(s)
		m.setAnswerLocked(s, driver.Answer{})
		s.state, s.apart = driver.SlotExpired, false
		s.wakeLocked()
	}
	return now
}

// removeLocked removes a slot from memory. Recording that must follow.
func (m *Store) removeLocked(s *slot) {
	delete(m.slots, s.id)
	m.countLocked(-answerBytes(&s.answer)) // callers that were woken may still read it
	if s.position >= 0 {
		m.living.remove(s)
	} else {
		m.expired.remove(s)
	}
	s.removed = true
}

// freeLocked keeps a removed slot for reuse, if nothing uses it any more.
func (m *Store) freeLocked(s *slot) {
	if s.waiting == 0 && s.undurable == 0 && len(m.spare) < maxIdle {
		*s = slot{}
		m.spare = append(m.spare, s)
	}
}

// newSlotLocked returns an empty slot, reusing a removed one if possible.
func (m *Store) newSlotLocked() *slot {
	last := len(m.spare) - 1
	if last < 0 {
		return new(slot)
	}
	s := m.spare[last]
	m.spare = m.spare[:last]
	return s
}

// record returns the slot as callers see it, without an answer that only the journal has.
func (s *slot) record() driver.Slot {
	created := time.Unix(0, s.wall).UTC()
	record := driver.Slot{ID: s.id, State: s.state, CreatedAt: created, ExpiresAt: created.Add(s.expires - s.created)}
	if s.state == driver.SlotResolved {
		record.Answer, record.ResolvedAt = s.answer, created.Add(s.resolved-s.created)
	}
	return record
}
