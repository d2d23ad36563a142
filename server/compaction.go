package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/revocation"
)

// A compaction removes messages from the revocation log that have expired or that
// another message covers. It can stop at any moment, and several can run at the same
// time: each removes only messages that every daemon considers obsolete, so the log
// always has the same meaning.
//
// Daemons detect growth of the log by its number of messages. A compaction changes
// that number too, so it sets a mark, the annotation of the queue, before and after.
// A daemon that sees a different mark reads the log again; while the mark is that of
// an unfinished compaction, it reads the log each time.
type compaction struct {
	*sharedRevocations
	now      time.Time
	entries  map[subject][]logEntry
	obsolete map[string]struct{} // ids of the messages to remove
	total    int                 // messages in the log
}

// A logEntry is a message in the log.
type logEntry struct {
	id         string
	revocation revocation.Revocation
}

const (
	// maintainEvery is how often an unchanged log is checked for obsolete messages.
	maintainEvery = time.Hour
	// maxObsolete is how many obsolete messages a log may have without a compaction.
	maxObsolete = 64
	// compactionTime bounds a compaction, and the leases of its messages.
	compactionTime = time.Minute
	compactionStep = 256

	markCompacting = "compacting "
	markCompacted  = "compacted "
)

// unfinished reports whether a mark belongs to a compaction that has not ended.
func unfinished(mark string) bool { return strings.HasPrefix(mark, markCompacting) }

// abandoned reports whether a mark belongs to a compaction whose daemon has stopped.
func abandoned(mark string, now time.Time) bool {
	text, ok := strings.CutPrefix(mark, markCompacting)
	id, err := ulid.ParseStrict(text)
	return ok && (err != nil || id.Timestamp().Sub(now).Abs() > 2*compactionTime)
}

// compactLocked compacts the log if that is worthwhile and no other daemon is
// compacting it.
func (s *sharedRevocations) compactLocked(ctx context.Context, now time.Time) error {
	if unfinished(s.mark) && !abandoned(s.mark, now) {
		return nil
	}
	if !unfinished(s.mark) {
		if now.Before(s.nextCompaction) {
			return nil
		}
		s.nextCompaction = now.Add(maintainEvery)
		keep := s.damaged
		for _, r := range s.logged {
			if !expired(&r, now) {
				keep++
			}
		}
		if obsolete := s.seen - keep; obsolete <= maxObsolete || obsolete <= keep {
			return nil
		}
	}
	c := &compaction{sharedRevocations: s, now: now, entries: make(map[subject][]logEntry), obsolete: make(map[string]struct{})}
	return c.run(ctx)
}

// run compacts the log. It blocks for at most compactionTime.
func (c *compaction) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compactionTime)
	defer cancel()
	if err := c.setMark(ctx, markCompacting); err != nil {
		return err
	}
	if err := c.scan(ctx); err != nil {
		return err
	}
	removed, err := c.remove(ctx)
	if err != nil {
		return err
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, "revocations.compacted", slog.Int("removed", removed), slog.Int("kept", c.total-removed))
	return c.setMark(ctx, markCompacted)
}

func (c *compaction) setMark(ctx context.Context, kind string) error {
	config, err := c.admin.QueueConfig(ctx, revocationLog)
	if err != nil {
		return err
	}
	config.Annotation = kind + ulid.Make().String()
	return c.admin.ConfigureQueue(ctx, revocationLog, config)
}

// scan finds the obsolete messages. If no single message of a subject covers all
// others of that subject, it appends one that does.
func (c *compaction) scan(ctx context.Context) (err error) {
	together := make(map[subject]revocation.Revocation)
	c.total, _, err = c.peek(ctx, func(id string, r *revocation.Revocation) {
		of := subjectOf(r)
		merge(together, *r)
		c.entries[of] = append(c.entries[of], logEntry{id, *r})
	})
	if err != nil {
		return err
	}
	for of, entries := range c.entries {
		all := together[of]
		covered := expired(&all, c.now)
		for i := range entries {
			covered = covered || covers(&entries[i].revocation, &all)
		}
		if !covered {
			if err := c.appendLocked(ctx, all); err != nil {
				return err
			}
			entries = append(entries, logEntry{revocation: all}) // the empty id sorts first: it stays
		}
		c.choose(entries)
	}
	return nil
}

// choose marks the obsolete messages of one subject.
func (c *compaction) choose(entries []logEntry) {
	for i := range entries {
		r := &entries[i].revocation
		obsolete := expired(r, c.now)
		for j := range entries {
			obsolete = obsolete || i != j && supersedes(&entries[j], &entries[i])
		}
		if obsolete {
			c.obsolete[entries[i].id] = struct{}{}
		}
	}
}

// supersedes reports whether a makes b obsolete. Of two equal messages the older one
// stays. This is an order that does not depend on which daemon compares and when, so
// no daemon removes the greatest message.
func supersedes(a, b *logEntry) bool {
	return covers(&a.revocation, &b.revocation) && (!covers(&b.revocation, &a.revocation) || a.id < b.id)
}

// remove receives each message of the log once: it acks obsolete messages and nacks
// the others, which go to the tail. If it stops early, the leases of its messages
// expire.
func (c *compaction) remove(ctx context.Context) (removed int, err error) {
	for passed := 0; passed < c.total && removed < len(c.obsolete); {
		batch, err := c.queue.Receive(ctx, driver.ReceiveRequest{Max: min(compactionStep, c.total-passed), Visibility: compactionTime})
		if err != nil {
			return removed, err
		}
		if len(batch) == 0 {
			break // another daemon holds the others
		}
		passed += len(batch)
		var acks []driver.Receipt
		var nacks []driver.Nack
		for i := range batch {
			if _, obsolete := c.obsolete[batch[i].ID]; obsolete {
				acks = append(acks, batch[i].Receipt)
			} else {
				nacks = append(nacks, driver.Nack{Receipt: batch[i].Receipt})
			}
		}
		if err := c.queue.Nack(ctx, nacks); err != nil {
			return removed, err
		}
		if err := c.queue.Ack(ctx, acks); err != nil {
			return removed, err
		}
		removed += len(acks)
	}
	return removed, nil
}
