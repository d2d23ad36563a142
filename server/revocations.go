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
	// logged are the entries of the log, by what they say, and seen is how many
	// messages there were when they were read.
	logged map[logEntry]struct{}
	seen   int
}

// A logEntry tells one revocation from others.
type logEntry struct {
	token     capability.TokenID
	tenant    string
	at, until int64 // milliseconds; until 0 is never
}

func entryOf(r *capability.Revocation) logEntry {
	entry := logEntry{token: r.Token, tenant: r.Tenant, at: r.At.UnixMilli()}
	if !r.Until.IsZero() {
		entry.until = r.Until.UnixMilli()
	}
	return entry
}

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
	if err := s.tellLocked(ctx); err != nil {
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
	if n := stats.Ready + stats.Delayed + stats.InFlight; s.logged == nil || n != s.seen {
		if err := s.readLocked(ctx); err != nil {
			return err
		}
	}
	return s.tellLocked(ctx)
}

// readLocked reads the whole log.
func (s *sharedRevocations) readLocked(ctx context.Context) error {
	own := make(map[logEntry]capability.Revocation)
	for r := range s.All() {
		own[logEntry{token: r.Token, tenant: r.Tenant}] = r
	}
	logged := make(map[logEntry]struct{})
	messages := 0
	for peeked, err := range s.queue.(driver.Peeker).Peek(ctx, driver.Query{}) {
		if err != nil {
			return err
		}
		messages++
		var r capability.Revocation
		if err := r.UnmarshalText(peeked.Body); err != nil {
			s.log.LogAttrs(ctx, slog.LevelError, "revocations.damaged", slog.String("msg_id", peeked.ID))
			continue
		}
		entry := entryOf(&r)
		mine, known := own[logEntry{token: r.Token, tenant: r.Tenant}]
		if !(known && covers(&mine, &r)) && !r.Forgettable(time.Now()) {
			if err := s.revocations.Revoke(ctx, r); err != nil {
				return err
			}
		}
		logged[entry] = struct{}{}
	}
	s.logged, s.seen = logged, messages
	return nil
}

// tellLocked puts into the log what is not there.
func (s *sharedRevocations) tellLocked(ctx context.Context) error {
	for r := range s.All() {
		entry := entryOf(&r)
		if _, known := s.logged[entry]; known || r.Forgettable(time.Now()) {
			continue
		}
		text, err := r.MarshalText()
		if err == nil {
			_, err = s.queue.Send(ctx, []driver.Outgoing{{Body: text}})
		}
		if err != nil {
			return err
		}
		s.logged[entry] = struct{}{}
		s.seen++
	}
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
