package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Move moves ready messages of a queue to the one called to or, if that is empty, each to the
// queue it was dead-lettered by; at most limit, if that is not 0. check returns an error when
// the move has to end.
func Move(ctx context.Context, q *shard.Queue, queues Queues, to string, limit int, check func() error) (moved int, err error) {
	m := &mover{Queue: q, check: check, limit: limit, targets: NewTargets(queues)}
	if err := m.findTarget(ctx, to); err != nil {
		return 0, err
	}
	for _, s := range q.Shards {
		if to == "" {
			err = m.moveToSources(ctx, s)
		} else {
			err = m.moveToTarget(ctx, s)
		}
		if err != nil {
			return m.moved, err
		}
	}
	return m.moved, m.held
}

// A mover performs one move.
type mover struct {
	*shard.Queue
	check        func() error
	limit, moved int
	targets      *targets
	target       string // see shard.TargetNote; empty: each message has its own
	held         error  // why a message stays whose unique key another one holds in the target; the first
}

// findTarget checks the arguments, and finds the queue that messages move to.
func (m *mover) findTarget(ctx context.Context, to string) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Field: field, Detail: detail}
	}
	switch {
	case m.limit < 0:
		return invalid("limit", fmt.Sprintf("%d is negative; 0 means no limit", m.limit))
	case to == m.Name:
		return invalid("to", "names the queue itself")
	case to == "":
		return nil
	}
	if err := driver.CheckName(to); err != nil {
		return err
	}
	target, err := m.targets.named(ctx, to)
	if err != nil {
		return err
	}
	if target == nil {
		return &driver.Error{Code: driver.ErrNotFound, Detail: fmt.Sprintf("queue %q does not exist", to)}
	}
	m.target = shard.TargetNote(target)
	return nil
}

// left returns how many messages may move in the next page.
func (m *mover) left() int {
	if m.limit == 0 {
		return MovePage
	}
	return min(m.limit-m.moved, MovePage)
}

// A page is the result of one round of reserving and transferring.
type page struct {
	moved int
	last  float64
	more  bool
	held  []string // the ids of messages that stay because others hold their unique keys in the target
}

// moveOnePage moves one page, and counts the messages. A page that was begun is finished even
// if ctx ends.
func (m *mover) moveOnePage(ctx context.Context, s *shard.Shard, r shard.ReserveRequest) (page, error) {
	if err := m.check(); err != nil {
		return page{}, err
	}
	r.Hold = reserveFor
	uncancelled := context.WithoutCancel(ctx)
	p, err := shard.CallCancellable(ctx, m.Server, ctx.Done() != nil, func() (p page, err error) {
		out, last, more, err := s.Reserve(uncancelled, r)
		if err != nil {
			return p, err
		}
		p = page{last: last, more: more || len(out) == r.Limit}
		p.moved, p.held, err = transferAll(uncancelled, s, m.targets, out, r.Target)
		return p, err
	})
	m.moved += p.moved
	if errors.Is(err, driver.ErrConflict) && len(p.held) > 0 { // the others move first
		m.held, err = cmp.Or(m.held, err), nil
	}
	return p, err
}

// moveToTarget moves the messages of a shard to the one target.
func (m *mover) moveToTarget(ctx context.Context, s *shard.Shard) error {
	for last, more := 0.0, true; more && m.left() > 0; {
		p, err := m.moveOnePage(ctx, s, shard.ReserveRequest{Target: m.target, Last: last, Limit: m.left()})
		if err != nil {
			return err
		}
		if last == 0 {
			last = p.last
		}
		if more = p.more; more && len(p.held) > 0 {
			return m.moveOthers(ctx, s, last, p.held)
		}
	}
	return nil
}

// moveOthers moves the ready messages of a shard up to a place, without those that are held.
// These wait before the others, so it finds the others by their ids.
func (m *mover) moveOthers(ctx context.Context, s *shard.Shard, last float64, held []string) error {
	others := returning{target: m.target}
	for seen, err := range s.PeekState(ctx, driver.StateReady, "", shard.PeekMark{}) {
		if err == nil {
			err = m.check()
		}
		if err != nil {
			return err
		}
		if seen.Rank <= last && !slices.Contains(held, seen.ID) {
			others.named = append(others.named, seen.ID, shard.Decimal(seen.Rank))
		}
	}
	return m.moveReturning(ctx, s, &others)
}

// moveToSources moves each dead letter of a shard to the queue it came from, after the
// messages whose move has stalled.
func (m *mover) moveToSources(ctx context.Context, s *shard.Shard) error {
	if m.left() > 0 {
		if _, err := m.moveOnePage(ctx, s, shard.ReserveRequest{Limit: m.left()}); err != nil {
			return err
		}
	}
	for wanted := max(m.limit-m.moved, 0); m.left() > 0; {
		before := m.moved
		found, n, err := m.findReturning(ctx, s, wanted)
		if err != nil {
			return err
		}
		for _, target := range found {
			if err := m.moveReturning(ctx, s, target); err != nil {
				return err
			}
		}
		if m.limit == 0 || n < wanted {
			break // there were no more
		}
		if m.moved == before {
			wanted *= 2 // these cannot move, or other processes move them
		}
	}
	return nil
}

// returning are messages of a shard that were dead-lettered by the same queue.
type returning struct {
	target string
	named  []string // ids and places, in the order of delivery
}

// findReturning finds the ready messages of a shard that came from an existing queue, and
// counts them: as many as wanted, if that is not 0.
func (m *mover) findReturning(ctx context.Context, s *shard.Shard, wanted int) (found []*returning, n int, err error) {
	for seen, err := range s.PeekState(ctx, driver.StateReady, "", shard.PeekMark{}) {
		if err == nil {
			err = m.check()
		}
		if err != nil {
			return nil, 0, err
		}
		name := seen.Attributes[driver.AttributeDeadSource]
		if name == "" || name == m.Name || driver.CheckName(name) != nil {
			continue
		}
		target, err := m.targets.named(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		if target == nil {
			continue
		}
		note := shard.TargetNote(target)
		i := slices.IndexFunc(found, func(e *returning) bool { return e.target == note })
		if i < 0 {
			i, found = len(found), append(found, &returning{target: note})
		}
		found[i].named = append(found[i].named, seen.ID, shard.Decimal(seen.Rank))
		if n++; n == wanted {
			break
		}
	}
	return found, n, nil
}

// moveReturning moves messages to one target. It passes over messages that are not ready
// any more.
func (m *mover) moveReturning(ctx context.Context, s *shard.Shard, e *returning) error {
	for named := range slices.Chunk(e.named, 2*MovePage) {
		for more := true; more && len(named) > 0 && m.left() > 0; {
			p, err := m.moveOnePage(ctx, s, shard.ReserveRequest{Target: e.target, Limit: m.left(), Named: named})
			if err != nil {
				return err
			}
			named = without(named, p.held)
			more = p.more && p.moved+len(p.held) > 0
		}
	}
	return nil
}

// without returns ids and places without those of the given ids.
func without(named, ids []string) []string {
	if len(ids) == 0 {
		return named
	}
	var others []string
	for i := 0; i < len(named); i += 2 {
		if !slices.Contains(ids, named[i]) {
			others = append(others, named[i], named[i+1])
		}
	}
	return others
}

// targets caches the queues that messages move to, for one move.
type targets struct {
	queues Queues
	byName map[string]*shard.Queue // nil: it does not exist
}

// NewTargets returns an empty cache.
func NewTargets(queues Queues) *targets {
	return &targets{queues: queues, byName: make(map[string]*shard.Queue)}
}

// named returns the queue of that name, or nil.
func (t *targets) named(ctx context.Context, name string) (*shard.Queue, error) {
	if q, known := t.byName[name]; known {
		return q, nil
	}
	q, err := t.queues.Target(ctx, name)
	if err == nil {
		t.byName[name] = q
	}
	return q, err
}

// noted returns the queue of a shard.TargetNote, or nil if it does not exist any more.
func (t *targets) noted(ctx context.Context, note string) (*shard.Queue, error) {
	incarnation, name, _ := strings.Cut(note, " ")
	q, err := t.named(ctx, name)
	if err != nil || q == nil || q.Incarnation != incarnation {
		return nil, err
	}
	return q, nil
}
