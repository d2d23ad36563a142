package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A compaction takes out of the log of revocations what has expired, or what another
// message says too. It can stop at any moment, and several can run at
// once: each removes only messages that every daemon finds useless, for good, so
// whatever is removed by whom, what the log says stays the same.
//
// Daemons notice that the log has grown by the number of its messages. As a
// compaction changes that number too, it leaves a mark, the annotation of the queue,
// before and after: who sees another mark reads the log again, and who sees the mark
// of one that has not ended does so each time.
type compaction struct {
	*sharedRevocations
	now     time.Time
	entries map[subject][]logEntry
	going   map[string]struct{} // ids of what goes
	total   int                 // messages in the log
}

// A logEntry is a message of the log.
type logEntry struct {
	id         string
	revocation capability.Revocation
}

const (
	// lookEvery is how often a log that does not change is looked at for what has
	// become useless.
	lookEvery = time.Hour
	// worthCompacting is how many useless messages are left where they are.
	worthCompacting = 64
	// compactionTime bounds a compaction, and how long messages are leased for it.
	compactionTime = time.Minute
	compactionStep = 256

	markCompacting = "compacting "
	markCompacted  = "compacted "
)

// unfinished reports whether a mark is of a compaction that has not ended.
func unfinished(mark string) bool { return strings.HasPrefix(mark, markCompacting) }

// abandoned reports whether a mark is of a compaction that will not end by itself.
func abandoned(mark string, now time.Time) bool {
	text, ok := strings.CutPrefix(mark, markCompacting)
	id, err := ulid.ParseStrict(text)
	return ok && (err != nil || id.Timestamp().Sub(now).Abs() > 2*compactionTime)
}

// tidyLocked compacts the log, if that is worth it and nobody else does.
func (s *sharedRevocations) tidyLocked(ctx context.Context, now time.Time) error {
	if unfinished(s.mark) && !abandoned(s.mark, now) {
		return nil
	}
	if !unfinished(s.mark) {
		if now.Before(s.nextLook) {
			return nil
		}
		s.nextLook = now.Add(lookEvery)
		keep := s.damaged
		for _, r := range s.logged {
			if !expired(&r, now) {
				keep++
			}
		}
		if useless := s.seen - keep; useless <= worthCompacting || useless <= keep {
			return nil
		}
	}
	c := &compaction{sharedRevocations: s, now: now, entries: make(map[subject][]logEntry), going: make(map[string]struct{})}
	return c.run(ctx)
}

// run compacts the log. It blocks for compactionTime at most.
func (c *compaction) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compactionTime)
	defer cancel()
	if err := c.setMark(ctx, markCompacting); err != nil {
		return err
	}
	if err := c.look(ctx); err != nil {
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

// look finds out what can go. Where no single message says all that those of one
// subject say together, it appends one that does.
func (c *compaction) look(ctx context.Context) (err error) {
	together := make(map[subject]capability.Revocation)
	c.total, _, err = c.peek(ctx, func(id string, r *capability.Revocation) {
		of := subjectOf(r)
		merge(together, *r)
		c.entries[of] = append(c.entries[of], logEntry{id, *r})
	})
	if err != nil {
		return err
	}
	for of, entries := range c.entries {
		all := together[of]
		said := expired(&all, c.now)
		for i := range entries {
			said = said || covers(&entries[i].revocation, &all)
		}
		if !said {
			if err := c.appendLocked(ctx, all); err != nil {
				return err
			}
			entries = append(entries, logEntry{revocation: all}) // an id before all others: it stays
		}
		c.choose(entries)
	}
	return nil
}

// choose marks which of the messages of one subject go.
func (c *compaction) choose(entries []logEntry) {
	for i := range entries {
		r := &entries[i].revocation
		useless := expired(r, c.now)
		for j := range entries {
			useless = useless || i != j && supersedes(&entries[j], &entries[i])
		}
		if useless {
			c.going[entries[i].id] = struct{}{}
		}
	}
}

// supersedes reports whether b says nothing that a does not say. Of two that say the
// same the older one stays. This is an order of the messages that does not depend on
// who looks when, so the greatest of them is removed by nobody.
func supersedes(a, b *logEntry) bool {
	return covers(&a.revocation, &b.revocation) && (!covers(&b.revocation, &a.revocation) || a.id < b.id)
}

// remove goes through the log once: what is of use goes to its tail, and the rest
// goes. Messages that it has leased when it stops come back by themselves.
func (c *compaction) remove(ctx context.Context) (removed int, err error) {
	for passed := 0; passed < c.total && removed < len(c.going); {
		batch, err := c.queue.Receive(ctx, driver.ReceiveRequest{Max: min(compactionStep, c.total-passed), Visibility: compactionTime})
		if err != nil {
			return removed, err
		}
		if len(batch) == 0 {
			break // somebody else has the others
		}
		passed += len(batch)
		var acks []driver.Receipt
		var nacks []driver.Nack
		for i := range batch {
			if _, useless := c.going[batch[i].ID]; useless {
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
