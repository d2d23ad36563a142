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
	log         *slog.Logger

	mu    sync.Mutex // held while the log is used; guards the fields below
	queue driver.Queue
	// logged is what the log says, and seen is how many messages there were when it
	// was read; less than 0 has it read again.
	logged map[subject]capability.Revocation
	seen   int
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
func shareRevocations(ctx context.Context, own revocations, opener driver.Opener, log *slog.Logger) (*sharedRevocations, error) {
	s := &sharedRevocations{revocations: own, opener: opener, log: log}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, s.sync(ctx)
}

func (s *sharedRevocations) open(ctx context.Context) error {
	admin, ok := s.opener.(driver.Admin)
	if !ok {
		return errNoLog
	}
	// Nothing bounds or ends what is in it: a revocation must not be lost because
	// there are many.
	if err := admin.ConfigureQueue(ctx, revocationLog, driver.Config{Shards: 1}); err != nil {
		return err
	}
	queue, err := s.opener.OpenQueue(ctx, revocationLog)
	if err != nil {
		return err
	}
	if _, ok := queue.(driver.Peeker); !ok {
		return errors.Join(errNoLog, queue.Close())
	}
	s.queue = queue
	return nil
}

var errNoLog = &driver.Error{
	Code: driver.ErrUnsupported, Op: "start", Detail: "the backend is shared, and cannot hold the revocations of all daemons",
}

// close ends the use of the log.
func (s *sharedRevocations) close() error { return s.queue.Close() }

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

// sync takes over what others have revoked, and tells them what they do not know.
// It asks for no more than a number when nothing has changed.
func (s *sharedRevocations) sync(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats, err := s.queue.Stats(ctx)
	if err != nil {
		return err
	}
	var full error
	if n := stats.Ready + stats.Delayed + stats.InFlight; s.logged == nil || n != s.seen {
		if full, err = s.readLocked(ctx); err != nil {
			return err
		}
	}
	return errors.Join(full, s.tellAllLocked(ctx))
}

// readLocked reads the whole log. full is that there is no room for some of it: the
// others are taken over, and it is tried again.
func (s *sharedRevocations) readLocked(ctx context.Context) (full, err error) {
	own := make(map[subject]capability.Revocation)
	shares := make(map[uint64]int)
	for r := range s.All() {
		own[subjectOf(&r)] = r
		shares[r.Share]++
	}
	logged := make(map[subject]capability.Revocation)
	messages := 0
	for peeked, err := range s.queue.(driver.Peeker).Peek(ctx, driver.Query{}) {
		if err != nil {
			return nil, err
		}
		messages++
		var r capability.Revocation
		if err := r.UnmarshalText(peeked.Body); err != nil {
			s.log.LogAttrs(ctx, slog.LevelError, "revocations.damaged", slog.String("msg_id", peeked.ID))
			continue
		}
		merge(logged, r)
		mine, known := own[subjectOf(&r)]
		if (known && covers(&mine, &r)) || r.Forgettable(time.Now()) {
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
			merge(own, r)
			shares[r.Share]++
		}
	}
	s.logged, s.seen = logged, messages
	if full != nil {
		s.seen = -1
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
	if (ok && covers(&known, &r)) || r.Forgettable(time.Now()) {
		return nil
	}
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
