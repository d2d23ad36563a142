package redisbox

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// peekedMessage is a message in a peek, with its sort key.
type peekedMessage struct {
	driver.Peeked
	shard *shard
	rank  float64 // its sort key: a place, or the wall time of its due or death
}

func (s *peekedMessage) before(other *peekedMessage) bool {
	return s.rank < other.rank || (s.rank == other.rank && s.ID < other.ID)
}

// matches reports whether a message matches all conditions of a query but the id.
func (s *peekedMessage) matches(query driver.Query) bool {
	if query.OlderThan > 0 && s.shard.clock.wallNow()-s.EnqueuedAt.UnixNano() < int64(query.OlderThan) {
		return false
	}
	if query.Reason != "" && s.Reason != query.Reason {
		return false
	}
	for key, value := range query.Attributes {
		if got, ok := s.Attributes[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// merge merges sorted sequences.
func merge(all []iter.Seq2[peekedMessage, error]) iter.Seq2[peekedMessage, error] {
	return func(yield func(peekedMessage, error) bool) {
		type head struct {
			seen peekedMessage
			err  error
			next func() (peekedMessage, error, bool)
		}
		var heads []head
		for _, sequence := range all {
			next, stop := iter.Pull2(sequence)
			defer stop()
			if seen, err, ok := next(); ok {
				heads = append(heads, head{seen, err, next})
			}
		}
		for len(heads) > 0 {
			first := 0
			for i := range heads {
				if heads[i].err != nil {
					yield(peekedMessage{}, heads[i].err)
					return
				}
				if heads[i].seen.before(&heads[first].seen) {
					first = i
				}
			}
			if !yield(heads[first].seen, nil) {
				return
			}
			seen, err, ok := heads[first].next()
			if !ok {
				heads = slices.Delete(heads, first, first+1)
				continue
			}
			heads[first].seen, heads[first].err = seen, err
		}
	}
}

// peekState yields the messages of a shard in one state, or only the one with this id.
func (s *shard) peekState(ctx context.Context, state driver.State, id string) iter.Seq2[peekedMessage, error] {
	strict := s.queue.settings.Load().config.StrictGroups
	walk := func(which string, pages func(visit func([]storedMessage) error) error) iter.Seq2[peekedMessage, error] {
		return s.walk(state, func(visit func([]storedMessage) error) error {
			if id == "" {
				return pages(visit)
			}
			stored, err := s.show(ctx, which, false, []string{id})
			if err != nil {
				return err
			}
			return visit(stored)
		})
	}
	switch {
	case state != driver.StateReady:
		which := map[driver.State]string{
			driver.StateDelayed: "delayed", driver.StateInFlight: "invisible", driver.StateDead: "dead",
		}[state]
		return walk(which, func(visit func([]storedMessage) error) error { return s.pages(ctx, which, false, visit) })
	case strict:
		return walk("groups", func(visit func([]storedMessage) error) error { return s.grouped(ctx, visit) })
	case id != "":
		return walk("pending", nil)
	}
	return merge([]iter.Seq2[peekedMessage, error]{
		walk("pending", func(visit func([]storedMessage) error) error { return s.listed(ctx, visit) }),
		walk("returned", func(visit func([]storedMessage) error) error { return s.pages(ctx, "returned", false, visit) }),
	})
}

// walk yields the messages that pages visits.
func (s *shard) walk(state driver.State, pages func(visit func([]storedMessage) error) error) iter.Seq2[peekedMessage, error] {
	return func(yield func(peekedMessage, error) bool) {
		stopped := false
		err := pages(func(stored []storedMessage) error {
			for i := range stored {
				if stopped = !yield(s.readPeeked(state, &stored[i]), nil); stopped {
					return errStopped
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(peekedMessage{}, err)
		}
	}
}

// readPeeked reads a stored message.
func (s *shard) readPeeked(state driver.State, i *storedMessage) peekedMessage {
	seen := peekedMessage{shard: s}
	seen.State, seen.ID = state, i.id
	e, readable := readEntry(i.entry)
	e.fill(&seen.Message)
	seen.Redrives = e.redrives
	whole := readSent(&seen.Message, i.id, i.sent) && readable
	if !whole {
		seen.LastError = damagedCause
	}
	switch state {
	case driver.StateDelayed, driver.StateInFlight:
		seen.DueAt = s.clock.wallAt(i.score)
		seen.rank = float64(seen.DueAt.UnixMicro())
	case driver.StateDead:
		seen.Source, seen.Reason, seen.ErrorType = s.queue.name, e.reason, e.errorType
		seen.DeadAt, seen.rank = wallTime(e.deadAt), e.deadAt
		if !whole {
			seen.Reason = driver.ReasonIntegrity
		}
	case driver.StateReady:
		seen.rank = i.score
	}
	return seen
}

// A storedMessage is a message as peek.lua shows it.
type storedMessage struct {
	id    string
	score float64 // its place, due or death
	entry string
	sent  string
}

// errStopped ends a walk whose consumer has stopped.
var errStopped = &driver.Error{Code: driver.ErrClosed, Detail: "stopped"}

// pages visits all messages in an order, a page at a time.
func (s *shard) pages(ctx context.Context, which string, brief bool, visit func([]storedMessage) error) error {
	from, limit, skip := "-inf", peekPage, 0
	seen := make(map[string]bool) // ids with the last score
	for {
		stored, err := s.peek(ctx, which, from, skip, limit, brief, nil)
		if err != nil || len(stored) == 0 {
			return err
		}
		shown := len(stored)
		stored = slices.DeleteFunc(stored, func(i storedMessage) bool { return seen[i.id] })
		if len(stored) == 0 { // the size limit cut the page before it had a new message
			skip += shown
			continue
		}
		skip = 0
		if err := visit(stored); err != nil {
			return err
		}
		last := stored[len(stored)-1].score
		if which == "dead" || which == "outbox" {
			from = "(" + decimal(last) // scores of dead letters are unique
			continue
		}
		if next := decimal(last); next != from {
			from = next
			clear(seen)
		}
		for _, i := range stored {
			if i.score == last {
				seen[i.id] = true
			}
		}
		limit = peekPage + len(seen)
	}
}

// listed visits the ready messages in pending.
func (s *shard) listed(ctx context.Context, visit func([]storedMessage) error) error {
	from, position := "", 0
	for {
		stored, err := s.peek(ctx, "pending", from, position, peekPage, false, nil)
		if err != nil || len(stored) == 0 {
			return err
		}
		from, position = stored[len(stored)-1].id, position+len(stored)
		for i := range stored {
			stored[i].id = stored[i].id[:ident.TextLen] // the id in the locator
		}
		if err := visit(stored); err != nil {
			return err
		}
	}
}

// grouped visits all ready messages of a queue with strict groups by place. The server
// has them by group, so all places are read first.
func (s *shard) grouped(ctx context.Context, visit func([]storedMessage) error) error {
	var ready []storedMessage
	for from := ""; ; {
		members, err := s.peek(ctx, "groups", from, 0, 10*peekPage, true, nil)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			break
		}
		for _, member := range members {
			ready = append(ready, storedMessage{id: member.id[memberID:], score: member.score})
		}
		from = members[len(members)-1].id
	}
	slices.SortFunc(ready, func(a, b storedMessage) int { return cmp.Compare(a.score, b.score) })
	for page := range slices.Chunk(ready, peekPage) {
		ids := make([]string, len(page))
		for i := range page {
			ids[i] = page[i].id
		}
		stored, err := s.show(ctx, "groups", false, ids)
		if err != nil {
			return err
		}
		if err := visit(stored); err != nil {
			return err
		}
	}
	return nil
}

// memberID is where in a member of groups the id begins: after the digest of the
// group and the place.
const memberID = 32

// show returns those of the messages with these ids that are in the order which.
func (s *shard) show(ctx context.Context, which string, brief bool, ids []string) ([]storedMessage, error) {
	var found []storedMessage
	for len(ids) > 0 {
		stored, err := s.peek(ctx, which, "", 0, 0, brief, ids)
		if err != nil {
			return nil, err
		}
		found = append(found, stored...)
		if len(stored) == 0 {
			break
		}
		// The answer may have been cut after any of them.
		last := slices.Index(ids, stored[len(stored)-1].id)
		ids = ids[last+1:]
	}
	return found, nil
}

// peek calls peek.lua.
func (s *shard) peek(ctx context.Context, which, from string, skip, limit int, brief bool, ids []string) ([]storedMessage, error) {
	args := append([]string{which, from, strconv.Itoa(skip), strconv.Itoa(limit), strconv.Itoa(peekBytes), digit(brief)}, ids...)
	a, err := s.call(ctx, peekScript, callOptions{within: which == "outbox"}, args...)
	if err != nil {
		return nil, err
	}
	stored := make([]storedMessage, len(a.rest)/4)
	for i := range stored {
		texts := [4]string{}
		for k := range texts {
			if texts[k], err = a.rest[4*i+k].ToString(); err != nil {
				return nil, unreadableAnswer(err)
			}
		}
		stored[i] = storedMessage{id: texts[0], score: number(texts[1]), entry: texts[2], sent: texts[3]}
	}
	return stored, nil
}

const (
	peekPage  = 100
	peekBytes = 1 << 20
)
