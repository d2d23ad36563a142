package redisbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// Move moves ready messages to another queue; see driver.Mover, and departure.go for
// how. It blocks for four round trips per hundred messages. Cancelling ctx ends it at
// once; messages that are under way then are moved, and not counted.
//
// It moves what was there when it began, so that it ends although more comes.
func (h *handle) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if err := h.check(ctx, "move"); err != nil {
		return 0, err
	}
	m := &move{handle: h, limit: limit, targets: h.backend.newTargets()}
	if err := m.aim(ctx, to); err != nil {
		return 0, h.named(err, "move")
	}
	for _, s := range h.shards {
		if to == "" {
			err = m.home(ctx, s)
		} else {
			err = m.away(ctx, s)
		}
		if err != nil {
			return m.moved, h.outcome(err, "move")
		}
	}
	return m.moved, nil
}

// A move is one call of Move.
type move struct {
	*handle
	limit, moved int
	targets      *targets
	target       string // noted, see targetNote; empty: each has its own
}

// aim checks what is asked for, and finds the queue that messages move to.
func (m *move) aim(ctx context.Context, to string) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Field: field, Detail: detail}
	}
	switch {
	case m.limit < 0:
		return invalid("limit", fmt.Sprintf("%d is negative; 0 means no limit", m.limit))
	case to == m.name:
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
		return &driver.Error{Code: driver.ErrNotFound, Detail: "there is no queue " + to}
	}
	m.target = targetNote(target)
	return nil
}

// left is how many messages may move at most now.
func (m *move) left() int {
	if m.limit == 0 {
		return departPage
	}
	return min(m.limit-m.moved, departPage)
}

// A page is what one round of departing and crossing has come to.
type page struct {
	moved int
	last  float64
	more  bool
}

// carry moves one page. It is finished also if ctx ends before.
func (m *move) carry(ctx context.Context, s *shard, r departRequest) (page, error) {
	if err := m.check(ctx, "move"); err != nil {
		return page{}, err
	}
	r.hold = departFor
	under := context.WithoutCancel(ctx)
	return attend(ctx, m.backend, ctx.Done() != nil, func() (p page, err error) {
		out, last, more, err := s.depart(under, r)
		if err != nil {
			return p, err
		}
		p = page{last: last, more: more || len(out) == r.limit}
		p.moved, err = s.cross(under, m.targets, out, r.target)
		return p, err
	})
}

// away moves the messages of a shard to the one target.
func (m *move) away(ctx context.Context, s *shard) error {
	for last, more := 0.0, true; more && m.left() > 0; {
		p, err := m.carry(ctx, s, departRequest{target: m.target, last: last, limit: m.left()})
		m.moved += p.moved
		if err != nil {
			return err
		}
		if last == 0 {
			last = p.last
		}
		more = p.more
	}
	return nil
}

// home moves messages of a shard to where each of them has died, after those that
// somebody else has begun to move.
func (m *move) home(ctx context.Context, s *shard) error {
	if m.left() > 0 {
		p, err := m.carry(ctx, s, departRequest{limit: m.left()})
		m.moved += p.moved
		if err != nil {
			return err
		}
	}
	for wanted := max(m.limit-m.moved, 0); m.left() > 0; {
		before := m.moved
		exiles, n, err := m.exiles(ctx, s, wanted)
		if err != nil {
			return err
		}
		for _, target := range exiles {
			if err := m.sendHome(ctx, s, target); err != nil {
				return err
			}
		}
		if m.limit == 0 || n < wanted {
			break // there were no more
		}
		if m.moved == before {
			wanted *= 2 // these cannot go, or others are at it
		}
	}
	return nil
}

// exiles are messages of a shard that died in the same queue.
type exiles struct {
	target string
	named  []string // ids and places, in the order of delivery
}

// exiles finds the ready messages of a shard that have a queue to go home to, and says
// how many they are: as many as wanted, if that is not 0.
func (m *move) exiles(ctx context.Context, s *shard, wanted int) (found []*exiles, n int, err error) {
	for seen, err := range s.sightings(ctx, driver.StateReady, "") {
		if err == nil {
			err = m.check(ctx, "move")
		}
		if err != nil {
			return nil, 0, err
		}
		name := seen.Attributes[driver.AttributeDeadSource]
		if name == "" || name == m.name || driver.CheckName(name) != nil {
			continue
		}
		target, err := m.targets.named(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		if target == nil {
			continue
		}
		note := targetNote(target)
		i := slices.IndexFunc(found, func(e *exiles) bool { return e.target == note })
		if i < 0 {
			i, found = len(found), append(found, &exiles{target: note})
		}
		found[i].named = append(found[i].named, seen.ID, decimal(seen.rank))
		if n++; n == wanted {
			break
		}
	}
	return found, n, nil
}

// sendHome moves messages to one target. Those that are not ready any more are passed
// over.
func (m *move) sendHome(ctx context.Context, s *shard, e *exiles) error {
	for named := range slices.Chunk(e.named, 2*departPage) {
		for more := true; more && m.left() > 0; {
			p, err := m.carry(ctx, s, departRequest{target: e.target, limit: m.left(), named: named})
			m.moved += p.moved
			if err != nil {
				return err
			}
			more = p.more && p.moved > 0
		}
	}
	return nil
}

// targets are the queues that messages move to, as one move sees them.
type targets struct {
	backend *Backend
	byName  map[string]*queue // nil: it is not there
}

func (b *Backend) newTargets() *targets {
	return &targets{backend: b, byName: make(map[string]*queue)}
}

// named returns the queue of that name, and nil if there is none.
func (t *targets) named(ctx context.Context, name string) (*queue, error) {
	if q, known := t.byName[name]; known {
		return q, nil
	}
	q, err := t.backend.target(ctx, name)
	if err == nil {
		t.byName[name] = q
	}
	return q, err
}

// noted returns the queue that was noted, and nil if it is not there any more.
func (t *targets) noted(ctx context.Context, note string) (*queue, error) {
	incarnation, name, _ := strings.Cut(note, " ")
	q, err := t.named(ctx, name)
	if err != nil || q == nil || q.incarnation != incarnation {
		return nil, err
	}
	return q, nil
}
