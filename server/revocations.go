package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// revocationLog is the queue in a shared backend that daemons tell each other their
// revocations in.
var revocationLog = broker.Reserved("mailbox.revocations")

// followEvery is how often a daemon asks what others have revoked.
const followEvery = 5 * time.Second

// sharedRevocations are those of a daemon on a backend that others use too. Each
// daemon answers from what it has itself, in memory or in its file, and adds what
// it finds in the log; what it revokes it puts there. The log is a queue that
// nobody receives from: its messages are one revocation each.
type sharedRevocations struct {
	revocations // its own
	opener      driver.Opener
	admin       driver.Admin
	log         *slog.Logger
	// acceptsSince is that of the daemon's keys.
	acceptsSince func(now time.Time) time.Time

	mu    sync.Mutex // held while the log is used; guards the fields below
	queue driver.Queue
	// logged is what the log says, and seen is how many messages there were when it
	// was read; less than 0 has it read again. So does another mark: see compaction.
	logged map[subject]capability.Revocation
	seen   int
	mark   string
	// damaged is how many of the messages cannot be read.
	damaged int
	// nextLook is when the log is looked at for what is of no use any more.
	nextLook time.Time
	// told is the generation of the daemon's own revocations when all of them were in
	// the log; allTold is false if they are not.
	told    uint64
	allTold bool
}

// A subject is what a revocation concerns.
type subject struct {
	token  capability.TokenID
	tenant string
}

func subjectOf(r *capability.Revocation) subject { return subject{r.Token, r.Tenant} }

// covers reports whether a revocation of the same subject says nothing that own does
// not say already.
func covers(own, r *capability.Revocation) bool {
	if own.Until.IsZero() || (!r.Until.IsZero() && !r.Until.After(own.Until)) {
		if r.Tenant != "" {
			return !r.At.After(own.At) // it extends to what was minted later
		}
		return !r.At.Before(own.At)
	}
	return false
}

// merge adds a revocation to what is known of its subject, as the daemon's own do.
func merge(known map[subject]capability.Revocation, r capability.Revocation) {
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

// shareRevocations reads the log of a backend, makes it if there is none, and puts
// into it what only this daemon knows. It blocks on I/O. Codes: ErrUnsupported (the
// backend's queues cannot be managed or looked into), and those of the backend.
func shareRevocations(ctx context.Context, own revocations, keys *capability.KeyRing, opener driver.Opener, log *slog.Logger) (*sharedRevocations, error) {
	admin, ok := opener.(driver.Admin)
	if !ok {
		return nil, errNoLog
	}
	s := &sharedRevocations{revocations: own, acceptsSince: keys.AcceptsSince, opener: opener, admin: admin, log: log}
	if err := s.openLocked(ctx); err != nil {
		return nil, err
	}
	return s, s.catchUpLocked(ctx) // nobody else has it yet
}

// openLocked opens the log, and makes it if there is none.
func (s *sharedRevocations) openLocked(ctx context.Context) error {
	// Nothing bounds or ends what is in it: a revocation must not be lost because
	// there are many.
	want := driver.Config{}.Effective()
	config, err := s.admin.QueueConfig(ctx, revocationLog)
	if want.Annotation = config.Annotation; err != nil || config != want {
		if err := s.admin.ConfigureQueue(ctx, revocationLog, want); err != nil {
			return err
		}
	}
	queue, err := s.opener.OpenQueue(ctx, revocationLog)
	if err != nil {
		return err
	}
	if !queue.Traits().Peek {
		return errors.Join(errNoLog, queue.Close())
	}
	s.queue, s.logged = queue, nil
	return nil
}

var errNoLog = &driver.Error{
	Code: driver.ErrUnsupported, Op: "start", Detail: "the backend is shared, and cannot hold the revocations of all daemons",
}

// close ends the use of the log.
func (s *sharedRevocations) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Close()
}

// Revoke adds an entry here, and tells the others. It blocks until both are durable.
// Codes: those of the daemon's own, and ErrUnavailable: the others have not been
// told, and will be when the backend answers again, or this is repeated.
func (s *sharedRevocations) Revoke(ctx context.Context, r capability.Revocation) error {
	if err := s.revocations.Revoke(ctx, r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.tellLocked(ctx, r); err != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "revoke", Detail: "revoked here, but other daemons could not be told yet", Err: err, RetryAfter: followEvery}
	}
	return nil
}

// sync takes over what others have revoked, and tells them what they do not know. It
// asks for no more than a mark and a number when nothing has changed. Now and then it
// compacts the log, for a minute at most.
func (s *sharedRevocations) sync(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.catchUpLocked(ctx)
	if err == nil {
		if failed := s.tidyLocked(ctx, time.Now()); failed != nil && ctx.Err() == nil {
			// It is only longer than it need be, and is tried again.
			s.log.LogAttrs(ctx, slog.LevelWarn, "revocations.not_compacted", slog.String("error", failed.Error()))
		}
	}
	return err
}

// catchUpLocked is sync without a compaction.
func (s *sharedRevocations) catchUpLocked(ctx context.Context) error {
	err := s.exchangeLocked(ctx)
	if errors.Is(err, driver.ErrNotFound) {
		// The log was deleted, or the backend began anew. What all daemons know
		// together is in it again when each of them has come here.
		s.log.LogAttrs(ctx, slog.LevelError, "revocations.log_lost")
		_ = s.queue.Close()
		if err = s.openLocked(ctx); err == nil {
			err = s.exchangeLocked(ctx)
		}
	}
	return err
}

// exchangeLocked reads what is new in the log, and appends what it does not say.
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
	return errors.Join(full, s.tellAllLocked(ctx))
}

// expired reports whether a revocation is good for nothing any more at any daemon.
// Which keys this one has says nothing about that: another may have older ones.
func expired(r *capability.Revocation, now time.Time) bool { return r.Forgettable(now, time.Time{}) }

// peek yields the revocations in the log with the ids of their messages, each once,
// and how many messages were seen and could not be read so far.
func (s *sharedRevocations) peek(ctx context.Context, yield func(id string, r *capability.Revocation)) (seen, damaged int, err error) {
	ids := make(map[string]struct{}) // one that moves can be seen twice
	for peeked, err := range s.queue.Peek(ctx, driver.Query{}) {
		if err != nil {
			return 0, 0, err
		}
		if _, again := ids[peeked.ID]; again {
			continue
		}
		ids[peeked.ID] = struct{}{}
		var r capability.Revocation
		if err := r.UnmarshalText(peeked.Body); err != nil {
			s.log.LogAttrs(ctx, slog.LevelError, "revocations.damaged", slog.String("msg_id", peeked.ID))
			damaged++
			continue
		}
		yield(peeked.ID, &r)
	}
	return len(ids), damaged, nil
}

// readLocked reads the whole log. full is that there is no room for some of it: the
// others are taken over, and it is tried again.
func (s *sharedRevocations) readLocked(ctx context.Context) (full, err error) {
	logged := make(map[subject]capability.Revocation)
	seen, damaged, err := s.peek(ctx, func(_ string, r *capability.Revocation) { merge(logged, *r) })
	if err != nil {
		return nil, err
	}
	if full, err = s.takeOverLocked(ctx, logged); err != nil {
		return nil, err
	}
	s.logged, s.seen, s.damaged = logged, seen, damaged
	// What is known here and not there any more, for whatever reason, is told again.
	s.allTold, s.nextLook = false, time.Time{}
	if full != nil {
		s.seen = -1
	}
	return full, nil
}

// takeOverLocked adds to the daemon's own revocations what the log says.
func (s *sharedRevocations) takeOverLocked(ctx context.Context, logged map[subject]capability.Revocation) (full, err error) {
	own := make(map[subject]capability.Revocation)
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
		// A tenant's share is for who asks: what was revoked elsewhere holds here, even
		// if it is more than fits in one.
		if !known && shares[r.Share] >= capability.MaxShareRevocations {
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

// tellAllLocked puts into the log what is not there.
func (s *sharedRevocations) tellAllLocked(ctx context.Context) error {
	generation := s.Generation()
	if s.allTold && s.told == generation {
		return nil
	}
	for r := range s.All() {
		if err := s.tellLocked(ctx, r); err != nil {
			return err
		}
	}
	s.told, s.allTold = generation, true
	return nil
}

// tellLocked puts a revocation into the log, unless that says as much already.
func (s *sharedRevocations) tellLocked(ctx context.Context, r capability.Revocation) error {
	r.At, r.Until = r.At.Truncate(time.Millisecond), r.Until.Truncate(time.Millisecond)
	known, ok := s.logged[subjectOf(&r)]
	if (ok && covers(&known, &r)) || expired(&r, time.Now()) {
		return nil
	}
	return s.appendLocked(ctx, r)
}

// appendLocked puts a revocation into the log.
func (s *sharedRevocations) appendLocked(ctx context.Context, r capability.Revocation) error {
	text, err := r.MarshalText()
	if err == nil {
		_, err = s.queue.Send(ctx, []driver.Outgoing{{Body: text}})
	}
	if err != nil {
		s.allTold = false
		return err
	}
	merge(s.logged, r)
	s.seen++
	return nil
}

// follow keeps up with the log until ctx ends. It blocks.
func (s *sharedRevocations) follow(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := s.sync(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.LogAttrs(ctx, slog.LevelWarn, "revocations.unreadable", slog.String("error", err.Error()))
		}
		failing = err != nil
	}
}
