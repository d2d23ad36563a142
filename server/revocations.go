package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// revocationLog is the queue in a shared backend in which daemons publish their
// revocations.
var revocationLog = broker.Reserved("mailbox.revocations")

// followEvery is how often a daemon checks what others have revoked.
const followEvery = 5 * time.Second

// sharedRevocations are the revocations of a daemon whose backend other daemons use
// too. Each daemon answers from its own revocations, in memory or in its file. It adds
// those that it finds in the log, and publishes its own there. The log is a queue that
// is only peeked into, with one revocation per message.
type sharedRevocations struct {
	revocations // the daemon's own
	opener      driver.Opener
	admin       driver.Admin
	log         *slog.Logger
	// acceptsSince is AcceptsSince of the daemon's keys.
	acceptsSince func(now time.Time) time.Time

	mu    sync.Mutex // held while the log is used; guards the fields below
	queue driver.Queue
	// logged has the revocations in the log, and seen is how many messages it had when
	// it was read. The log is read again if that number or the mark of a compaction has
	// changed; a negative seen forces that.
	logged map[subject]revocation.Revocation
	seen   int
	mark   string
	// damaged is how many of the messages cannot be parsed.
	damaged int
	// nextCompaction is when the log is checked for obsolete messages.
	nextCompaction time.Time
	// published is the generation of the daemon's own revocations when all of them were in
	// the log; allPublished is false if they may not all be there.
	published    uint64
	allPublished bool
}

// A subject is what a revocation concerns.
type subject struct {
	token  capability.TokenID
	tenant string
}

func subjectOf(r *revocation.Revocation) subject { return subject{r.Token, r.Tenant} }

// covers reports whether own has the effect of r, which is of the same subject.
func covers(own, r *revocation.Revocation) bool {
	if own.Until.IsZero() || (!r.Until.IsZero() && !r.Until.After(own.Until)) {
		if r.Tenant != "" {
			return !r.At.After(own.At) // a later At extends to tokens minted later
		}
		return !r.At.Before(own.At)
	}
	return false
}

// merge combines a revocation with the known one of its subject, in the same way as
// revocation.Memory.
func merge(known map[subject]revocation.Revocation, r revocation.Revocation) {
	of := subjectOf(&r)
	if own, ok := known[of]; ok {
		if own.Until.IsZero() || (!r.Until.IsZero() && r.Until.Before(own.Until)) {
			r.Until = own.Until
		}
		if r.At.Before(own.At) == (r.Tenant != "") {
			r.At = own.At
		}
	}
	known[of] = r
}

// shareRevocations reads the log of a backend, creates it if it does not exist, and
// publishes revocations that are only known here. It blocks on I/O. Codes:
// ErrUnsupported (the backend does not support queue administration or peek), and those
// of the backend.
func shareRevocations(ctx context.Context, own revocations, keys *keyring.Ring, opener driver.Opener, log *slog.Logger) (*sharedRevocations, error) {
	admin, ok := opener.(driver.Admin)
	if !ok {
		return nil, errNoLog
	}
	s := &sharedRevocations{revocations: own, acceptsSince: keys.AcceptsSince, opener: opener, admin: admin, log: log}
	if err := s.openLocked(ctx); err != nil {
		return nil, err
	}
	return s, s.catchUpLocked(ctx) // no lock needed: s is not shared yet
}

// openLocked opens the log, and creates it if it does not exist.
func (s *sharedRevocations) openLocked(ctx context.Context) error {
	queue, err := openReserved(ctx, s.opener, s.admin, revocationLog)
	if err == nil {
		s.queue, s.logged = queue, nil
	}
	return err
}

// openReserved opens a queue of the daemons on a backend, and creates it if it does not
// exist. Codes: ErrUnsupported, and those of the backend.
func openReserved(ctx context.Context, opener driver.Opener, admin driver.Admin, name string) (driver.Queue, error) {
	// It has neither limits nor retention: a message must not be lost because there are many.
	want := driver.Config{}.Effective()
	config, err := admin.QueueConfig(ctx, name)
	if want.Annotation = config.Annotation; err != nil || config != want {
		if err := admin.ConfigureQueue(ctx, name, want); err != nil {
			return nil, err
		}
	}
	queue, err := opener.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	if traits := queue.Traits(); !traits.Peek || !traits.Edit {
		return nil, errors.Join(errNoLog, queue.Close())
	}
	return queue, nil
}

var errNoLog = &driver.Error{
	Code: driver.ErrUnsupported, Op: "start", Detail: "backend is shared, and does not support queue administration, peek and edit, which share revocations and audit records among daemons",
}

// close closes the log.
func (s *sharedRevocations) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Close()
}

// Revoke adds a revocation and publishes it. It blocks until both are durable. Codes:
// those of the daemon's own revocations, and ErrUnavailable: it is not published yet,
// and will be when the backend answers again, or when Revoke is repeated.
func (s *sharedRevocations) Revoke(ctx context.Context, r revocation.Revocation) error {
	if err := s.revocations.Revoke(ctx, r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.publishLocked(ctx, r); err != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "revoke", Detail: "revoked here, but not yet published to other daemons", Err: err, RetryAfter: followEvery}
	}
	return nil
}

// sync adopts the revocations of other daemons, and publishes those that they do not
// know. If nothing has changed, it reads only a mark and a number. From time to time it
// compacts the log, for at most a minute.
func (s *sharedRevocations) sync(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.catchUpLocked(ctx)
	if err == nil {
		if failed := s.compactLocked(ctx, time.Now()); failed != nil && ctx.Err() == nil {
			// The log is only longer than necessary; the next sync tries again.
			s.log.LogAttrs(ctx, slog.LevelWarn, "revocations.not_compacted", slog.String("error", failed.Error()))
		}
	}
	return err
}

// catchUpLocked is sync without a compaction.
func (s *sharedRevocations) catchUpLocked(ctx context.Context) error {
	err := s.exchangeLocked(ctx)
	if errors.Is(err, driver.ErrNotFound) {
		// The log was deleted, or the backend was emptied. Each daemon publishes its
		// revocations again.
		s.log.LogAttrs(ctx, slog.LevelError, "revocations.log_lost")
		_ = s.queue.Close()
		if err = s.openLocked(ctx); err == nil {
			err = s.exchangeLocked(ctx)
		}
	}
	return err
}

// exchangeLocked reads the log if it has changed, and publishes what it lacks.
func (s *sharedRevocations) exchangeLocked(ctx context.Context) error {
	config, err := s.admin.QueueConfig(ctx, revocationLog)
	if err != nil {
		return err
	}
	stats, err := s.queue.Stats(ctx)
	if err != nil {
		return err
	}
	mark := config.Annotation
	var full error
	if s.logged == nil || stats.Waiting() != s.seen || mark != s.mark || unfinished(mark) {
		if full, err = s.readLocked(ctx); err != nil {
			return err
		}
		s.mark = mark
	}
	return errors.Join(full, s.publishAllLocked(ctx))
}

// expired reports whether a revocation is obsolete at every daemon. It ignores the keys
// of this daemon, because another one may have older keys.
func expired(r *revocation.Revocation, now time.Time) bool { return r.Forgettable(now, time.Time{}) }

// peek yields the revocations in the log with the ids of their messages, each once. It
// returns how many messages there were, and how many of them could not be parsed.
func (s *sharedRevocations) peek(ctx context.Context, yield func(id string, r *revocation.Revocation)) (seen, damaged int, err error) {
	ids := make(map[string]struct{}) // a message that moves to the tail is seen twice
	for peeked, err := range s.queue.Peek(ctx, driver.Query{}) {
		if err != nil {
			return 0, 0, err
		}
		if _, again := ids[peeked.ID]; again {
			continue
		}
		ids[peeked.ID] = struct{}{}
		var r revocation.Revocation
		if err := r.UnmarshalText(peeked.Body); err != nil {
			s.log.LogAttrs(ctx, slog.LevelError, "revocations.damaged", slog.String("msg_id", peeked.ID))
			damaged++
			continue
		}
		yield(peeked.ID, &r)
	}
	return len(ids), damaged, nil
}

// readLocked reads the whole log. full is the error if there is no room for some of the
// revocations: the others are adopted, and the log is read again next time.
func (s *sharedRevocations) readLocked(ctx context.Context) (full, err error) {
	logged := make(map[subject]revocation.Revocation)
	seen, damaged, err := s.peek(ctx, func(_ string, r *revocation.Revocation) { merge(logged, *r) })
	if err != nil {
		return nil, err
	}
	if full, err = s.adoptLocked(ctx, logged); err != nil {
		return nil, err
	}
	s.logged, s.seen, s.damaged = logged, seen, damaged
	// Publish again what the log has lost.
	s.allPublished, s.nextCompaction = false, time.Time{}
	if full != nil {
		s.seen = -1
	}
	return full, nil
}

// adoptLocked adds the revocations in the log to the daemon's own.
func (s *sharedRevocations) adoptLocked(ctx context.Context, logged map[subject]revocation.Revocation) (full, err error) {
	own := make(map[subject]revocation.Revocation)
	shares := make(map[uint64]int)
	for r := range s.All() {
		own[subjectOf(&r)] = r
		shares[r.Share]++
	}
	now := time.Now()
	for of, r := range logged {
		mine, known := own[of]
		if (known && covers(&mine, &r)) || r.Forgettable(now, s.acceptsSince(now)) {
			continue
		}
		// The share of a tenant bounds what its requests can add here. A revocation of
		// another daemon must hold even if the share is full.
		if !known && shares[r.Share] >= revocation.MaxPerShare {
			r.Share = 0
		}
		switch err := s.revocations.Revoke(ctx, r); {
		case errors.Is(err, driver.ErrFull):
			full = err
		case err != nil:
			return nil, err
		default:
			shares[r.Share]++
		}
	}
	return full, nil
}

// publishAllLocked publishes all revocations that the log does not have.
func (s *sharedRevocations) publishAllLocked(ctx context.Context) error {
	generation := s.Generation()
	if s.allPublished && s.published == generation {
		return nil
	}
	for r := range s.All() {
		if err := s.publishLocked(ctx, r); err != nil {
			return err
		}
	}
	s.published, s.allPublished = generation, true
	return nil
}

// publishLocked publishes a revocation, unless the log covers it.
func (s *sharedRevocations) publishLocked(ctx context.Context, r revocation.Revocation) error {
	r.At, r.Until = r.At.Truncate(time.Millisecond), r.Until.Truncate(time.Millisecond)
	known, ok := s.logged[subjectOf(&r)]
	if (ok && covers(&known, &r)) || expired(&r, time.Now()) {
		return nil
	}
	return s.appendLocked(ctx, r)
}

// appendLocked sends a revocation to the log.
func (s *sharedRevocations) appendLocked(ctx context.Context, r revocation.Revocation) error {
	text, err := r.MarshalText()
	if err == nil {
		_, err = s.queue.Send(ctx, []driver.Outgoing{{Body: text}})
	}
	if err != nil {
		s.allPublished = false
		return err
	}
	merge(s.logged, r)
	s.seen++
	return nil
}

// follow calls sync every followEvery until ctx ends. It logs the first of several failures
// as message. It blocks.
func follow(ctx context.Context, sync func(context.Context) error, log *slog.Logger, message string) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := sync(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			log.LogAttrs(ctx, slog.LevelWarn, message, slog.String("error", err.Error()))
		}
		failing = err != nil
	}
}
