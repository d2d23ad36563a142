package shard

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// PeekedMessage is a message in a peek, with its sort key.
type PeekedMessage struct {
	driver.Peeked
	Shard *Shard
	Rank  float64 // its sort key: a place, or the wall time of its due or death
	Mark  PeekMark
}

// A PeekMark is the position of a message among those of its shard in one state. The zero mark is
// before all messages.
type PeekMark struct {
	Score float64 // the place, due or death as the server has it
	ID    string
}

// covers reports whether a message is at the mark or before it.
func (m PeekMark) covers(score float64, id string) bool {
	return score < m.Score || (score == m.Score && id <= m.ID)
}

func (s *PeekedMessage) before(other *PeekedMessage) bool {
	return s.Rank < other.Rank || (s.Rank == other.Rank && s.ID < other.ID)
}

// Matches reports whether a message matches all conditions of a query but the id.
func (s *PeekedMessage) Matches(query driver.Query) bool {
	if query.OlderThan > 0 && s.Shard.Clock.wallNow()-s.EnqueuedAt.UnixNano() < int64(query.OlderThan) {
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

// Merge merges sorted sequences.
func Merge(all []iter.Seq2[PeekedMessage, error]) iter.Seq2[PeekedMessage, error] {
	return func(yield func(PeekedMessage, error) bool) {
		type head struct {
			seen PeekedMessage
			err  error
			next func() (PeekedMessage, error, bool)
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
					yield(PeekedMessage{}, heads[i].err)
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

// PeekState yields the messages of a shard in one state that are behind a mark, or only the one with this id.
func (s *Shard) PeekState(ctx context.Context, state driver.State, id string, after PeekMark) iter.Seq2[PeekedMessage, error] {
	strict := s.Queue.Settings.Load().Config.StrictGroups
	walk := func(which string, pages func(visit func([]StoredMessage) error) error) iter.Seq2[PeekedMessage, error] {
		return s.walk(state, func(visit func([]StoredMessage) error) error {
			if id == "" {
				return pages(visit)
			}
			stored, err := s.Show(ctx, which, false, []string{id})
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
		return walk(which, func(visit func([]StoredMessage) error) error { return s.pagesAfter(ctx, which, after, visit) })
	case strict:
		return walk("groups", func(visit func([]StoredMessage) error) error { return s.grouped(ctx, after, visit) })
	case id != "":
		return walk("pending", nil)
	}
	return Merge([]iter.Seq2[PeekedMessage, error]{
		walk("pending", func(visit func([]StoredMessage) error) error { return s.listed(ctx, after, visit) }),
		walk("returned", func(visit func([]StoredMessage) error) error { return s.pagesAfter(ctx, "returned", after, visit) }),
		walk("levels", func(visit func([]StoredMessage) error) error { return s.levels(ctx, after, visit) }),
	})
}

// walk yields the messages that pages visits.
func (s *Shard) walk(state driver.State, pages func(visit func([]StoredMessage) error) error) iter.Seq2[PeekedMessage, error] {
	return func(yield func(PeekedMessage, error) bool) {
		stopped := false
		err := pages(func(stored []StoredMessage) error {
			for i := range stored {
				if stopped = !yield(s.readPeeked(state, &stored[i]), nil); stopped {
					return errStopped
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(PeekedMessage{}, err)
		}
	}
}

// readPeeked reads a stored message.
func (s *Shard) readPeeked(state driver.State, i *StoredMessage) PeekedMessage {
	seen := PeekedMessage{Shard: s, Mark: PeekMark{i.Score, i.ID}}
	seen.State, seen.ID = state, i.ID
	e, readable := ReadEntry(i.Entry)
	e.fill(&seen.Message)
	seen.Redrives = e.Redrives
	whole := e.ReadSent(&seen.Message, i.ID, i.Sent) && readable
	if !whole {
		seen.LastError = damagedCause
	}
	switch state {
	case driver.StateDelayed, driver.StateInFlight:
		seen.DueAt = s.Clock.wallAt(i.Score)
		seen.Rank = float64(seen.DueAt.UnixMicro())
	case driver.StateDead:
		seen.Source, seen.Reason, seen.ErrorType = s.Queue.Name, e.Reason, e.errorType
		seen.DeadAt, seen.Rank = WallTime(e.DeadAt), e.DeadAt
		if !whole {
			seen.Reason = driver.ReasonIntegrity
		}
	case driver.StateReady:
		seen.Rank = i.Score
	}
	return seen
}

// A StoredMessage is a message as peek.lua shows it.
type StoredMessage struct {
	ID    string
	Score float64 // its place, due or death
	Entry string
	Sent  string
}

// errStopped ends a walk whose consumer has stopped.
var errStopped = &driver.Error{Code: driver.ErrClosed, Detail: "stopped"}

// Pages visits all messages in an order, a page at a time.
func (s *Shard) Pages(ctx context.Context, which string, brief bool, visit func([]StoredMessage) error) error {
	return s.pagesFrom(ctx, which, "-inf", brief, visit)
}

// pagesAfter visits the messages in an order that are behind a mark.
func (s *Shard) pagesAfter(ctx context.Context, which string, after PeekMark, visit func([]StoredMessage) error) error {
	if after == (PeekMark{}) {
		return s.Pages(ctx, which, false, visit)
	}
	return s.pagesFrom(ctx, which, Decimal(after.Score), false, func(stored []StoredMessage) error {
		return visit(slices.DeleteFunc(stored, func(i StoredMessage) bool { return after.covers(i.Score, i.ID) }))
	})
}

// pagesFrom is Pages from a score.
func (s *Shard) pagesFrom(ctx context.Context, which, from string, brief bool, visit func([]StoredMessage) error) error {
	limit, skip := peekPage, 0
	seen := make(map[string]bool) // ids with the last score
	for {
		stored, err := s.Peek(ctx, which, from, skip, limit, brief, nil)
		if err != nil || len(stored) == 0 {
			return err
		}
		shown := len(stored)
		stored = slices.DeleteFunc(stored, func(i StoredMessage) bool { return seen[i.ID] })
		if len(stored) == 0 { // the size limit cut the page before it had a new message
			skip += shown
			continue
		}
		skip = 0
		last := stored[len(stored)-1].Score
		if which == "dead" || which == "outbox" {
			from = "(" + Decimal(last) // scores of dead letters are unique
		} else {
			if next := Decimal(last); next != from {
				from = next
				clear(seen)
			}
			for _, i := range stored {
				if i.Score == last {
					seen[i.ID] = true
				}
			}
			limit = peekPage + len(seen)
		}
		if err := visit(stored); err != nil { // which may take some out
			return err
		}
	}
}

// listed visits the ready messages in pending that are behind a mark.
func (s *Shard) listed(ctx context.Context, after PeekMark, visit func([]StoredMessage) error) error {
	from, position, err := s.findListed(ctx, after)
	if err != nil {
		return err
	}
	for {
		stored, err := s.Peek(ctx, "pending", from, position, peekPage, false, nil)
		if err != nil || len(stored) == 0 {
			return err
		}
		from, position = stored[len(stored)-1].ID, position+len(stored)
		for i := range stored {
			stored[i].ID = stored[i].ID[:ident.TextLen] // the id in the locator
		}
		if err := visit(stored); err != nil {
			return err
		}
	}
}

// findListed returns the position in pending of the first message behind a mark, and the locator
// before it. The list is in order, so it doubles its steps and then halves them.
func (s *Shard) findListed(ctx context.Context, after PeekMark) (from string, position int, err error) {
	if after == (PeekMark{}) {
		return "", 0, nil
	}
	// covered reports whether the message at a position is not behind the mark.
	covered := func(position int) (bool, error) {
		stored, err := s.Peek(ctx, "pending", "", position, 1, true, nil)
		if err != nil || len(stored) == 0 || !after.covers(stored[0].Score, stored[0].ID[:ident.TextLen]) {
			return false, err
		}
		from = stored[0].ID
		return true, nil
	}
	high := 1 // low is covered, and high is not
	low := -1
	for {
		yes, err := covered(high - 1)
		if err != nil {
			return "", 0, err
		}
		if !yes {
			break
		}
		low, high = high-1, 2*high
	}
	for high--; high-low > 1; {
		middle := low + (high-low)/2
		yes, err := covered(middle)
		if err != nil {
			return "", 0, err
		}
		if yes {
			low = middle
		} else {
			high = middle
		}
	}
	return from, low + 1, nil
}

// levels visits the ready messages with a priority that are behind a mark, by place.
func (s *Shard) levels(ctx context.Context, after PeekMark, visit func([]StoredMessage) error) error {
	from := ""
	if after != (PeekMark{}) {
		from = levelPoint(after.Score, after.ID)
	}
	for {
		stored, err := s.Peek(ctx, "levels", from, 0, peekPage, false, nil)
		if err != nil || len(stored) == 0 {
			return err
		}
		if err := visit(stored); err != nil {
			return err
		}
		last := stored[len(stored)-1]
		from = levelPoint(last.Score, last.ID)
	}
}

// levelPoint is the point of a message in the order of its priority.
func levelPoint(place float64, id string) string { return fmt.Sprintf("%016.0f", place) + id }

// grouped visits the ready messages of a queue with strict groups that are behind a mark, by place. The
// server has them by group, so all places are read first.
func (s *Shard) grouped(ctx context.Context, after PeekMark, visit func([]StoredMessage) error) error {
	var ready []StoredMessage
	for from := ""; ; {
		members, err := s.Peek(ctx, "groups", from, 0, 10*peekPage, true, nil)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			break
		}
		for _, member := range members {
			if id := member.ID[memberID:]; !after.covers(member.Score, id) {
				ready = append(ready, StoredMessage{ID: id, Score: member.Score})
			}
		}
		from = members[len(members)-1].ID
	}
	slices.SortFunc(ready, func(a, b StoredMessage) int { return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.ID, b.ID)) })
	for page := range slices.Chunk(ready, peekPage) {
		ids, places := make([]string, len(page)), make(map[string]float64, len(page))
		for i := range page {
			ids[i], places[page[i].ID] = page[i].ID, page[i].Score
		}
		stored, err := s.Show(ctx, "groups", false, ids)
		if err != nil {
			return err
		}
		for i := range stored {
			stored[i].Score = places[stored[i].ID]
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

// Show returns those of the messages with these ids that are in the order which.
func (s *Shard) Show(ctx context.Context, which string, brief bool, ids []string) ([]StoredMessage, error) {
	var found []StoredMessage
	for len(ids) > 0 {
		stored, err := s.Peek(ctx, which, "", 0, 0, brief, ids)
		if err != nil {
			return nil, err
		}
		found = append(found, stored...)
		if len(stored) == 0 {
			break
		}
		// The answer may have been cut after any of them.
		last := slices.Index(ids, stored[len(stored)-1].ID)
		ids = ids[last+1:]
	}
	return found, nil
}

// Peek calls peek.lua.
func (s *Shard) Peek(ctx context.Context, which, from string, skip, limit int, brief bool, ids []string) ([]StoredMessage, error) {
	args := append([]string{which, from, strconv.Itoa(skip), strconv.Itoa(limit), strconv.Itoa(peekBytes), Digit(brief)}, ids...)
	a, err := s.call(ctx, peekScript, CallOptions{within: which == "outbox"}, args...)
	if err != nil {
		return nil, err
	}
	stored := make([]StoredMessage, len(a.Rest)/4)
	for i := range stored {
		texts := [4]string{}
		for k := range texts {
			if texts[k], err = a.Rest[4*i+k].ToString(); err != nil {
				return nil, UnreadableAnswer(err)
			}
		}
		stored[i] = StoredMessage{ID: texts[0], Score: Number(texts[1]), Entry: texts[2], Sent: texts[3]}
	}
	return stored, nil
}

const (
	peekPage  = 100
	peekBytes = 1 << 20
)
