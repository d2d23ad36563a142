package store

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// A Store is an ordered map from keys to values, on disk. It is safe for concurrent use. Keys
// are compared byte by byte; they must not be empty or start with a zero byte, which is
// reserved for the store.
type Store struct {
	dir     string
	options Options
	id      storeID

	db      *pebble.DB
	lock    io.Closer
	guard   *guardFS
	fuse    *fuse
	space   *space
	watch   *diskWatch
	damage  *damage
	misuse  *misuse
	tracker *logTracker
	logs    *logList
	sealer  *sealer
	gate    *gate

	backups   sync.Mutex // one at a time
	archive   *Archive   // the archive of the store; nil if it is in a directory
	closeOnce sync.Once
	closeErr  error
}

// bootKey holds the store's id. It is written when the store is created.
var bootKey = []byte("\x00boot")

// lowestKey is the first key that is not reserved.
var lowestKey = []byte{1}

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.dir }

// enter returns nil if a call may proceed; leave must follow then.
func (s *Store) enter() error {
	if err := s.fuse.blown(); err != nil {
		return err
	}
	if !s.gate.enter() {
		return driver.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.gate.leave() }

// Failed returns why the store has stopped, or nil.
func (s *Store) Failed() error { return s.fuse.blown() }

// outcome returns the error of a call that the engine ended with err. A blown fuse takes
// precedence: then the engine's success means nothing.
func (s *Store) outcome(op string, err error) error {
	if failure := s.fuse.blown(); failure != nil {
		return failure
	}
	return ioError(op, s.dir, err)
}

// Commit applies all operations of b, or none, and empties b for its next use.
// If durable, and the store's policy is SyncEach, it returns only when they are
// on stable storage; concurrent commits share one sync. With another policy it
// returns when the operating system has them. If not durable it returns when
// they are in the log's memory, and they become durable with the next durable
// commit, or at most a second later.
//
// Operations can be read before they are durable, even while a durable Commit still waits. A
// caller whose answers must survive a crash publishes them only after Commit has returned nil.
//
// Commit blocks while the disk does, and while memory tables wait to be written. Codes:
// ErrUnavailable (wrapping ErrFailed: the store has stopped, the outcome is unknown),
// ErrInvalid (a key that is not allowed, or a batch of another store; nothing was done),
// ErrTooLarge (nothing was done), ErrUnsupported (ReadOnly), ErrClosed.
func (s *Store) Commit(b *Batch, durable bool) error {
	return s.commit(b, durable, nil)
}

// CommitThen is Commit, and calls readable once the operations can be read, which is before
// they are durable. Commits whose order matters wait for that instead of the disk. If it
// returns an error, readable may not have been called.
func (s *Store) CommitThen(b *Batch, durable bool, readable func()) error {
	return s.commit(b, durable, readable)
}

// commit is CommitThen; readable may be nil.
func (s *Store) commit(b *Batch, durable bool, readable func()) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	switch {
	case b.store != s:
		return &driver.Error{Code: driver.ErrInvalid, Op: "commit", Field: "batch", Detail: "belongs to another store"}
	case b.err != nil:
		return b.err
	case s.options.ReadOnly:
		return &driver.Error{Code: driver.ErrUnsupported, Op: "commit", Detail: "the store is open for reading only"}
	case b.Len() == 0:
		if readable != nil {
			readable()
		}
		return s.fuse.blown()
	}
	size := b.Size()
	earlier := s.sealer.begin()
	var err error
	if readable == nil {
		err = s.apply(b, durable)
	} else {
		err = s.applyThen(b, durable, readable)
	}
	if err := s.outcome("commit", err); err != nil {
		s.sealer.abandon()
		return err
	}
	b.Reset()
	now := time.Now()
	s.sealer.end(earlier, durable && s.options.Sync.mode == syncEach, now)
	s.space.note(size, now)
	s.reclaim(now, reclaimEvery)
	return nil
}

// reclaim makes the engine write deletions to disk while new data is refused for lack of space.
// Deletions free space only when they are compacted, and deletions in memory are not compacted:
// a store that was full and is drained would stay full. It repeats that after every, and does
// not block.
func (s *Store) reclaim(now time.Time, every time.Duration) {
	s.space.reclaimDeleted(now, every, s.db.AsyncFlush)
}

// Fail stops the store permanently, as a failed write does: every call in flight, and every
// later one, returns an error that wraps ErrFailed and cause, nothing more is written, and
// Options.OnFail is called. It is for a caller whose promises no longer match the stored data.
// It does not block.
func (s *Store) Fail(cause error) { s.fuse.blow(s.dir, "commit", cause) }

// apply passes the operations to the engine and, if durable, waits for the disk.
func (s *Store) apply(b *Batch, durable bool) error {
	if !durable {
		return s.db.Apply(b.batch, pebble.NoSync)
	}
	if mark := b.watermark(s); mark != nil {
		b.keep(b.batch.LogData(mark, nil))
	}
	return s.db.Apply(b.batch, pebble.Sync)
}

// applyThen is apply, and calls readable in between. The operations go into the log without
// waiting, followed by an empty record that is synced: that syncs everything before it, in this
// log or, since a log is synced before the next one is started, in an earlier one.
//
// The engine has an experimental call that does the same with one record, ApplyNoSyncWait.
// Until SyncWait has returned, the engine's log holds pointers into the batch, to report the
// outcome of the sync; a batch that is reused too early gets the outcome of another. And
// SyncWait would never return for a commit that the engine gave up before it was in the log. In
// v2.1.7 that does not happen, but it is not documented. The cost of the second record is not
// measurable beside a sync.
func (s *Store) applyThen(b *Batch, durable bool, readable func()) error {
	if err := s.db.Apply(b.batch, pebble.NoSync); err != nil {
		return err
	}
	readable()
	if !durable {
		return nil
	}
	return s.db.LogData(b.watermark(s), pebble.Sync)
}

// Sync makes all commits durable, whatever the policy. It blocks while the disk does. Codes:
// ErrUnavailable, ErrClosed.
func (s *Store) Sync() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.options.ReadOnly {
		return nil
	}
	return s.syncLog()
}

// syncLog syncs the log with a record that holds the previous watermark.
func (s *Store) syncLog() error { return s.logData("sync", s.watermark(nil)) }

// markLog ends the log with a watermark that covers all durable bytes, written twice because a
// frame of the engine may split one.
func (s *Store) markLog() error { return s.logData("seal", s.watermark(s.watermark(nil))) }

// sealIdle seals the log of an idle store.
func (s *Store) sealIdle() error {
	err := s.markLog()
	s.reclaim(time.Now(), 0)
	return err
}

// sealLog makes the whole log durable and ends it with a watermark.
func (s *Store) sealLog() error {
	if err := s.syncLog(); err != nil {
		return err
	}
	return s.markLog()
}

// noteLog records in the list of logs how far the current log is durable, so that a log that
// was truncated since is not taken for one that a crash has torn.
func (s *Store) noteLog() error {
	if s.options.forgetWatermarks {
		return nil
	}
	return s.outcome("note", s.logs.note(s.tracker.get()))
}

// logData adds a record to the log that the engine ignores, and syncs the log, even a lazy one.
func (s *Store) logData(op string, record []byte) error {
	s.tracker.forced.Add(1)
	defer s.tracker.forced.Add(-1)
	err := s.db.LogData(record, pebble.Sync)
	return s.outcome(op, err)
}

// watermark appends the latest watermark to dst.
func (s *Store) watermark(dst []byte) []byte {
	if s.options.forgetWatermarks {
		return dst
	}
	return s.tracker.get().append(dst, s.id)
}

// Get appends the value of key to dst, and returns the result. It blocks while
// the disk does. Codes: ErrNotFound, ErrIntegrity (the stored bytes are
// damaged), ErrUnavailable, ErrClosed.
func (s *Store) Get(key, dst []byte) ([]byte, error) {
	if err := s.enter(); err != nil {
		return dst, err
	}
	defer s.leave()
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		if failure := s.fuse.blown(); failure != nil {
			return dst, failure
		}
		return dst, driver.ErrNotFound
	}
	if err == nil { // even if the fuse has blown: Close would wait for it
		defer func() { _ = closer.Close() }() // only releases memory
	}
	if err := s.outcome("get", err); err != nil {
		return dst, err
	}
	return append(dst, value...), nil
}

// DropRange removes all keys from lo up to, but not including, hi, durably when it returns. It
// costs about the same for ten keys and for ten million, but more than a commit with a
// DeleteRange: use it to drop a whole queue, not to trim one. It is not atomic with any commit;
// there must be no commit to the range at the same time. It blocks while the disk does, and
// checks ctx once, before it starts. Codes: ErrInvalid, ErrUnavailable, ErrUnsupported
// (ReadOnly), ErrClosed.
func (s *Store) DropRange(ctx context.Context, lo, hi []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	switch {
	case s.options.ReadOnly:
		return &driver.Error{Code: driver.ErrUnsupported, Op: "drop", Detail: "the store is open for reading only"}
	case badKey(lo) || string(lo) >= string(hi):
		return &driver.Error{Code: driver.ErrInvalid, Op: "drop", Field: "range", Detail: "lo must be a key that is allowed, and below hi"}
	}
	return s.outcome("drop", s.db.Excise(ctx, pebble.KeyRange{Start: lo, End: hi}))
}

// Verify reads the whole store and returns ErrIntegrity at the first damaged byte. It blocks
// until it is done or ctx ends, and then returns its error.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.outcome("verify", s.db.CheckLevels(nil)); err != nil {
		return err
	}
	it := s.Iterate(nil, nil)
	for n := 0; it.Next(); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			break
		}
	}
	err := it.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Close seals the store and closes it. It waits for calls in flight and for open iterators.
// Later calls of other methods return ErrClosed, and of Close the result of the first one: nil,
// or why the store may not be sealed.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.gate.shut()
	s.sealer.stop()
	var err error
	if !s.options.ReadOnly && s.fuse.blown() == nil && s.sealer.pending() {
		err = s.sealLog()
	}
	// Even when the fuse has blown, to end the engine's goroutines; the guard keeps the engine
	// from accessing the disk.
	if closeErr := s.db.Close(); err == nil {
		err = s.outcome("close", closeErr)
	}
	if err == nil && !s.options.ReadOnly {
		err = s.outcome("close", s.logs.note(s.tracker.get()))
	}
	s.watch.stop()
	if unlockErr := s.lock.Close(); err == nil {
		err = ioError("close", s.dir, unlockErr)
	}
	if s.archive != nil {
		_ = s.archive.Close() // it was only read
	}
	return err
}
