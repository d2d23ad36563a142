package redisbox

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

func (h *handle) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		err := h.check(ctx, "peek")
		if err == nil {
			err = h.checkQuery(query)
		}
		if err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		shown := make(map[string]bool) // a message that moves is not shown twice
		for _, state := range stateOrder {
			if len(query.States) > 0 && !slices.Contains(query.States, state) {
				continue
			}
			if query.Reason != "" && state != driver.StateDead {
				continue
			}
			for seen, err := range h.inState(ctx, state, query.ID) {
				if err == nil {
					err = h.check(ctx, "peek")
				}
				if err != nil {
					yield(driver.Peeked{}, h.outcome(err, "peek"))
					return
				}
				if shown[seen.ID] || !seen.matches(query) {
					continue
				}
				shown[seen.ID] = true
				if !yield(seen.Peeked, nil) || len(shown) == query.Limit {
					return
				}
			}
		}
	}
}

func (h *handle) checkQuery(query driver.Query) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Queue: h.name, Field: field, Detail: detail}
	}
	if query.Limit < 0 {
		return invalid("Limit", fmt.Sprintf("%d is negative; 0 means no limit", query.Limit))
	}
	if query.OlderThan < 0 {
		return invalid("OlderThan", fmt.Sprintf("%v is negative", query.OlderThan))
	}
	if query.Reason != "" && !query.Reason.Valid() {
		return invalid("Reason", fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", query.Reason))
	}
	for _, state := range query.States {
		if !slices.Contains(stateOrder, state) {
			return invalid("States", fmt.Sprintf("%q is not a state; want ready, delayed, in flight or dead", state))
		}
	}
	return nil
}

// stateOrder is the order in which Peek shows the states.
var stateOrder = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// sighting is a message that was seen, and what it is sorted by.
type sighting struct {
	driver.Peeked
	shard *shard
	rank  float64 // what it is sorted by: a place, or the wall time of its due or death
}

func (s *sighting) before(other *sighting) bool {
	return s.rank < other.rank || (s.rank == other.rank && s.ID < other.ID)
}

func (s *sighting) matches(query driver.Query) bool {
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

// inState yields the messages in one state, or of them the one with this id:
// ready ones in order, the others by time.
func (h *handle) inState(ctx context.Context, state driver.State, id string) iter.Seq2[sighting, error] {
	all := make([]iter.Seq2[sighting, error], len(h.shards))
	for i, s := range h.shards {
		all[i] = s.sightings(ctx, state, id)
	}
	switch {
	case len(all) == 1:
		return all[0]
	case state == driver.StateReady:
		return chain(all)
	}
	return merge(all)
}

// chain yields one sequence after the other.
func chain(all []iter.Seq2[sighting, error]) iter.Seq2[sighting, error] {
	return func(yield func(sighting, error) bool) {
		for _, sequence := range all {
			for seen, err := range sequence {
				if !yield(seen, err) || err != nil {
					return
				}
			}
		}
	}
}

// merge yields sequences that are sorted as one.
func merge(all []iter.Seq2[sighting, error]) iter.Seq2[sighting, error] {
	return func(yield func(sighting, error) bool) {
		type head struct {
			seen sighting
			err  error
			next func() (sighting, error, bool)
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
					yield(sighting{}, heads[i].err)
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

// sightings yields the messages of a shard in one state, or of them the one with
// this id.
func (s *shard) sightings(ctx context.Context, state driver.State, id string) iter.Seq2[sighting, error] {
	strict := s.queue.settings.Load().config.StrictGroups
	walk := func(which string, pages func(visit func([]item) error) error) iter.Seq2[sighting, error] {
		return s.walk(state, func(visit func([]item) error) error {
			if id == "" {
				return pages(visit)
			}
			items, err := s.show(ctx, which, false, []string{id})
			if err != nil {
				return err
			}
			return visit(items)
		})
	}
	switch {
	case state != driver.StateReady:
		which := map[driver.State]string{
			driver.StateDelayed: "delayed", driver.StateInFlight: "invisible", driver.StateDead: "dead",
		}[state]
		return walk(which, func(visit func([]item) error) error { return s.pages(ctx, which, false, visit) })
	case strict:
		return walk("groups", func(visit func([]item) error) error { return s.grouped(ctx, visit) })
	case id != "":
		return walk("pending", nil)
	}
	return merge([]iter.Seq2[sighting, error]{
		walk("pending", func(visit func([]item) error) error { return s.listed(ctx, visit) }),
		walk("returned", func(visit func([]item) error) error { return s.pages(ctx, "returned", false, visit) }),
	})
}

// walk yields what pages hands over.
func (s *shard) walk(state driver.State, pages func(visit func([]item) error) error) iter.Seq2[sighting, error] {
	return func(yield func(sighting, error) bool) {
		stopped := false
		err := pages(func(items []item) error {
			for i := range items {
				if stopped = !yield(s.sight(state, &items[i]), nil); stopped {
					return errStopped
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(sighting{}, err)
		}
	}
}

// sight makes of an item what there is to see.
func (s *shard) sight(state driver.State, i *item) sighting {
	seen := sighting{shard: s}
	seen.State, seen.ID = state, i.id
	e, readable := readEntry(i.entry)
	e.fill(&seen.Message)
	seen.Redrives = e.redrives
	whole := readSent(&seen.Message, i.id, i.sent) && readable
	if !whole {
		seen.LastError = "the stored bytes are not those that were sent"
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

// An item is a message as peek.lua shows it.
type item struct {
	id    string
	score float64 // its place, due or death
	entry string
	sent  string
}

// errStopped ends a walk that its consumer does not want to go on.
var errStopped = &driver.Error{Code: driver.ErrClosed, Detail: "stopped"}

const (
	peekPage  = 100
	peekBytes = 1 << 20
)

// pages hands over all messages in an order, a page at a time.
func (s *shard) pages(ctx context.Context, which string, brief bool, visit func([]item) error) error {
	from, limit, skip := "-inf", peekPage, 0
	seen := make(map[string]bool) // those with the last score
	for {
		items, err := s.peek(ctx, which, from, skip, limit, brief, nil)
		if err != nil || len(items) == 0 {
			return err
		}
		shown := len(items)
		items = slices.DeleteFunc(items, func(i item) bool { return seen[i.id] })
		if len(items) == 0 { // the page was cut by its size before there was anything new
			skip += shown
			continue
		}
		skip = 0
		if err := visit(items); err != nil {
			return err
		}
		last := items[len(items)-1].score
		if which == "dead" || which == "outbox" {
			from = "(" + decimal(last) // no two have the same
			continue
		}
		if next := decimal(last); next != from {
			from = next
			clear(seen)
		}
		for _, i := range items {
			if i.score == last {
				seen[i.id] = true
			}
		}
		limit = peekPage + len(seen)
	}
}

// listed hands over the ready messages that are in the list.
func (s *shard) listed(ctx context.Context, visit func([]item) error) error {
	from, position := "", 0
	for {
		items, err := s.peek(ctx, "pending", from, position, peekPage, false, nil)
		if err != nil || len(items) == 0 {
			return err
		}
		from, position = items[len(items)-1].id, position+len(items)
		for i := range items {
			items[i].id = items[i].id[:ident.TextLen] // of the ticket
		}
		if err := visit(items); err != nil {
			return err
		}
	}
}

// grouped hands over all ready messages of a queue with strict groups by place.
// The server has them by group, so their places are read before all else.
func (s *shard) grouped(ctx context.Context, visit func([]item) error) error {
	var ready []item
	for from := ""; ; {
		members, err := s.peek(ctx, "groups", from, 0, 10*peekPage, true, nil)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			break
		}
		for _, member := range members {
			ready = append(ready, item{id: member.id[memberID:], score: member.score})
		}
		from = members[len(members)-1].id
	}
	slices.SortFunc(ready, func(a, b item) int { return cmp.Compare(a.score, b.score) })
	for page := range slices.Chunk(ready, peekPage) {
		ids := make([]string, len(page))
		for i := range page {
			ids[i] = page[i].id
		}
		items, err := s.show(ctx, "groups", false, ids)
		if err != nil {
			return err
		}
		if err := visit(items); err != nil {
			return err
		}
	}
	return nil
}

// memberID is where in a member of groups the id begins: after the digest of the
// group and the place.
const memberID = 32

// show returns those of the messages with these ids that are in an order.
func (s *shard) show(ctx context.Context, which string, brief bool, ids []string) ([]item, error) {
	var found []item
	for len(ids) > 0 {
		items, err := s.peek(ctx, which, "", 0, 0, brief, ids)
		if err != nil {
			return nil, err
		}
		found = append(found, items...)
		if len(items) == 0 {
			break
		}
		// The answer may have been cut after any of them.
		last := slices.Index(ids, items[len(items)-1].id)
		ids = ids[last+1:]
	}
	return found, nil
}

// peek calls peek.lua.
func (s *shard) peek(ctx context.Context, which, from string, skip, limit int, brief bool, ids []string) ([]item, error) {
	args := append([]string{which, from, strconv.Itoa(skip), strconv.Itoa(limit), strconv.Itoa(peekBytes), digit(brief)}, ids...)
	a, err := s.call(ctx, peekScript, how{within: which == "outbox"}, args...)
	if err != nil {
		return nil, err
	}
	items := make([]item, len(a.rest)/4)
	for i := range items {
		texts := [4]string{}
		for k := range texts {
			if texts[k], err = a.rest[4*i+k].ToString(); err != nil {
				return nil, unreadable(err)
			}
		}
		items[i] = item{id: texts[0], score: number(texts[1]), entry: texts[2], sent: texts[3]}
	}
	return items, nil
}
