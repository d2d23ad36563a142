package broker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A Search is what messages are looked for by, and how far. The broker applies its conditions, so
// that it knows how far it looked, whatever the backend is, and never has a backend walk through a
// whole queue for one match.
type Search struct {
	// Query has conditions, and the limit of messages that are found. Its Cursor is not used.
	Query driver.Query
	// Text is in the body, Group is the group, Priority the priority, and Cause the id of Peeked.Cause, which
	// dead letters have; "" and nil mean any.
	Text     string
	Group    string
	Priority *int
	Cause    string
	// Least messages in each state are looked at in any case, then more until Until, and Most at most.
	// 0 and the zero time mean no bound.
	Least, Most int
	Until       time.Time
	// Cursor is where the search begins: "" for the beginning, or what an earlier search left here.
	// The search sets it to where the next one goes on, and to "" if it came to the end.
	Cursor string
	// Looked is how many messages the search has looked at in each state, and Cut that a bound ended it.
	Looked map[driver.State]int
	Cut    bool
}

// searchStates are the states in the order of a search, with their letters in a cursor.
var searchStates = []struct {
	state  driver.State
	letter string
}{{driver.StateReady, "r"}, {driver.StateDelayed, "d"}, {driver.StateInFlight, "f"}, {driver.StateDead, "x"}}

// searchPage is how many messages a search asks the backend for at once: a backend in memory
// holds a lock meanwhile.
const searchPage = 5_000

// A searchPart is what is left of a search in one state.
type searchPart struct {
	state  driver.State
	letter string
	cursor string
	done   bool
}

// parts returns what is left of a search. Codes: ErrInvalid.
func (s *Search) parts() ([]searchPart, error) {
	left := make(map[string]string)
	for part := range strings.SplitSeq(s.Cursor, ".") {
		if part != "" {
			left[part[:1]] = part[1:]
		}
	}
	var parts []searchPart
	for _, at := range searchStates {
		cursor, known := left[at.letter]
		delete(left, at.letter)
		if s.Cursor != "" && !known || len(s.Query.States) > 0 && !slices.Contains(s.Query.States, at.state) || s.ofDead() && at.state != driver.StateDead {
			continue
		}
		parts = append(parts, searchPart{state: at.state, letter: at.letter, cursor: cursor})
	}
	if len(left) > 0 || s.Cursor != "" && len(parts) == 0 {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: "peek", Field: "Cursor", Detail: fmt.Sprintf("%.40q is not a cursor of this search; begin again without one", s.Cursor)}
	}
	return parts, nil
}

// rest is the cursor of a search that has these parts left.
func rest(parts []searchPart) string {
	var texts []string
	for _, part := range parts {
		if !part.done {
			texts = append(texts, part.letter+part.cursor)
		}
	}
	return strings.Join(texts, ".")
}

// Page bounds a search that a client asks for: from a cursor, and for a time, of which 0 means a
// second. Codes: ErrInvalid.
func (s *Search) Page(cursor string, within time.Duration) error {
	if within < 0 || within > maxSearchTime {
		return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Field: "Within", Detail: fmt.Sprintf("%v is not between 0 and %v", within, maxSearchTime)}
	}
	if within == 0 {
		within = searchTime
	}
	s.Cursor, s.Least, s.Until = cursor, leastSearched, time.Now().Add(within)
	return nil
}

const (
	// searchTime is how long a search of a client looks unless it says so, maxSearchTime how long it can
	// look, and leastSearched how many messages in each state in any case, so that each step is one.
	searchTime, maxSearchTime = time.Second, 30 * time.Second
	leastSearched             = 500
)

// ofDead reports whether the search has conditions that only dead letters match.
func (s *Search) ofDead() bool { return s.Query.Reason != "" || s.Cause != "" }

// Selective reports whether the search has conditions that a Query has not.
func (s *Search) Selective() bool {
	return s.Text != "" || s.Group != "" || s.Priority != nil || s.Cause != ""
}

// selective reports whether messages have to be looked at to know whether they match.
func (s *Search) selective() bool {
	q := &s.Query
	return s.Selective() || len(q.Attributes) > 0 || q.OlderThan > 0 || q.Reason != ""
}

// Matches reports whether a message matches the conditions of the search, at this time.
func (s *Search) Matches(m *Peeked, now time.Time) bool {
	q := &s.Query
	for key, value := range q.Attributes {
		if got, ok := m.Attributes[key]; !ok || got != value {
			return false
		}
	}
	if s.Cause != "" && !m.hasCause(s.Cause) {
		return false
	}
	return (s.Priority == nil || m.Priority == *s.Priority) && (s.Group == "" || m.Group == s.Group) && (q.Reason == "" || m.Reason == q.Reason) &&
		(q.OlderThan == 0 || now.Sub(m.EnqueuedAt) >= q.OlderThan) && (s.Text == "" || bytes.Contains(m.Body, []byte(s.Text)))
}

// spent reports whether the bounds end the search in a state.
func (s *Search) spent(looked int) bool {
	return s.Most > 0 && looked >= s.Most || !s.Until.IsZero() && looked >= s.Least && time.Now().After(s.Until)
}

// Search yields the messages of a queue that match, and notes in s how far it looked: in the order of
// Peek, with each state bounded apart. A chain of searches by cursor finds a message that stays in its
// state once. It needs a token for peek, whose quotas count the yielded messages. It may block on I/O. An error ends
// the sequence. Codes: ErrInvalid, ErrNotFound, ErrUnsupported (the backend does not support peek), ErrUnavailable.
func (c Caller) Search(ctx context.Context, queue string, s *Search) iter.Seq2[Peeked, error] {
	return func(yield func(Peeked, error) bool) {
		grant, err := c.authorize(ctx, capability.OpPeek, queue)
		if err == nil {
			err = c.broker.admit("peek", queue, lastForReads)
		}
		if err == nil {
			err = s.Query.Check()
		}
		var parts []searchPart
		if err == nil {
			parts, err = s.parts()
		}
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		s.Looked = make(map[driver.State]int)
		defer func() { s.Cursor = rest(parts) }()
		show := func(m Peeked) bool {
			c.charge(grant, &m.Message)
			return yield(m, nil)
		}
		if s.Query.ID != "" {
			err = c.searchID(ctx, queue, s, parts, show)
		} else {
			err = c.searchParts(ctx, queue, s, parts, show)
		}
		if err != nil {
			yield(Peeked{}, err)
		}
	}
}

// searchID finds the message with the id of a search, which the backend does.
func (c *Caller) searchID(ctx context.Context, queue string, s *Search, parts []searchPart, show func(Peeked) bool) error {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !s.Until.IsZero() {
		bounded, cancel = context.WithDeadline(ctx, s.Until)
	}
	defer cancel()
	query := driver.Query{ID: s.Query.ID, States: s.Query.States, Reason: s.Query.Reason, Limit: 1}
	for i := range parts {
		parts[i].done = true
	}
	for m, err := range c.look(bounded, queue, query) {
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			s.Cut = true
			return nil
		}
		if err != nil {
			return err
		}
		s.Looked[m.State]++
		if s.Matches(&m, time.Now()) && !show(m) {
			return nil
		}
	}
	return nil
}

// searchParts finds messages in the states that are left.
func (c *Caller) searchParts(ctx context.Context, queue string, s *Search, parts []searchPart, show func(Peeked) bool) error {
	left := s.Query.Limit
	for i := range parts {
		part := &parts[i]
		for !part.done {
			page := searchPage
			if left > 0 && !s.selective() {
				page = left
			}
			stop, cut, err := c.searchPage(ctx, queue, s, part, page, &left, show)
			if err != nil || stop {
				return err
			}
			if cut {
				s.Cut = true
				break
			}
		}
	}
	return nil
}

// searchPage looks at the next messages in a state. It reports whether the search ends here, and whether its
// bounds end it in this state.
func (c *Caller) searchPage(ctx context.Context, queue string, s *Search, part *searchPart, page int, left *int, show func(Peeked) bool) (stop, cut bool, err error) {
	now := time.Now()
	looked := s.Looked[part.state]
	defer func() { s.Looked[part.state] = looked }()
	query := driver.Query{States: []driver.State{part.state}, Limit: page, Cursor: &part.cursor}
	for m, err := range c.look(ctx, queue, query) {
		if err != nil {
			return true, false, err
		}
		looked++
		if s.Matches(&m, now) {
			*left--
			if !show(m) || *left == 0 {
				return true, false, nil
			}
		}
		if s.spent(looked) {
			return false, true, nil
		}
	}
	part.done = part.cursor == ""
	return false, false, nil
}

const (
	// newestFirst is how many messages of each shard a look at the newest begins with, and newestMore the
	// factor by which it goes on; maxNewest bounds that.
	newestFirst, newestMore = 64, 4
	maxNewest               = 1 << 40
)

// Newest returns the newest messages of a queue that match a search in one state, ready or dead, the newest first, and
// notes in s how far it looked. Query.Limit bounds them. It looks at the last messages, and at more of them until it has
// found enough or its bounds end it. It is authorised like Search. Codes: those of Search, ErrUnsupported
// also if the backend cannot begin near the end.
func (c Caller) Newest(ctx context.Context, queue string, s *Search) ([]Peeked, error) {
	grant, err := c.authorize(ctx, capability.OpPeek, queue)
	if err == nil {
		err = s.Query.Check()
	}
	if err == nil && (s.Query.Limit == 0 || s.Most == 0 || len(s.Query.States) != 1) {
		err = &driver.Error{Code: driver.ErrInvalid, Op: "peek", Queue: queue, Field: "Limit", Detail: "the newest messages need one state and bounds"}
	}
	if err != nil {
		return nil, err
	}
	stats, err := inQueue(ctx, &c, "peek", queue, lastForReads, func(q *queueUse) (driver.Stats, error) { return q.handle.Stats(ctx) })
	if err != nil {
		return nil, err
	}
	var found []Peeked
	for last := newestFirst; ; last *= newestMore {
		some, looked, whole, err := c.newest(ctx, queue, s, last)
		if err != nil {
			return nil, err
		}
		if s.Cut = !whole; s.Cut {
			break // many of the messages between were gone; what was found before is right
		}
		total := stats.Ready
		if s.Query.States[0] == driver.StateDead {
			total = stats.Dead
		}
		found, s.Looked = some, map[driver.State]int{s.Query.States[0]: looked}
		s.Cut = looked < total && len(found) < s.Query.Limit
		if !s.Cut || s.spent(looked) || last > maxNewest {
			break
		}
	}
	found = newestOf(found, s.Query.Limit)
	for i := range found {
		c.charge(grant, &found[i].Message)
	}
	return found, nil
}

// newest looks at the last messages of each shard. whole is false if there are too many.
func (c *Caller) newest(ctx context.Context, queue string, s *Search, last int) (found []Peeked, looked int, whole bool, err error) {
	now := time.Now()
	for m, err := range c.look(ctx, queue, driver.Query{States: s.Query.States, Last: last}) {
		if err != nil {
			return nil, 0, false, err
		}
		if looked++; looked > newestMore*max(s.Most, newestFirst*newestMore) {
			return nil, 0, false, nil
		}
		if s.Matches(&m, now) {
			if found = append(found, m); len(found) > newestMore*s.Query.Limit {
				found = newestOf(found, s.Query.Limit)
			}
		}
	}
	return found, looked, true, nil
}

// newestOf returns at most this many of the messages, the newest first.
func newestOf(all []Peeked, limit int) []Peeked {
	slices.SortFunc(all, func(a, b Peeked) int {
		return cmp.Or(b.DeadAt.Compare(a.DeadAt), b.EnqueuedAt.Compare(a.EnqueuedAt), strings.Compare(b.ID, a.ID))
	})
	clear(all[min(len(all), limit):])
	return all[:min(len(all), limit)]
}
