package deadletter

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
)

// A Filter selects dead letters. All its conditions must hold; the zero Filter
// matches all.
type Filter[T any] struct {
	// IDs are message ids (Message.MessageID). Nil means all; an empty list matches
	// nothing.
	IDs []string
	// Match decides by anything else. Nil means all. It must not change the dead
	// letter.
	Match func(Message[T]) bool
	// Limit bounds how many match, oldest first. 0 means no limit.
	Limit int
}

const (
	// idsPerCall bounds the ids of one backend call.
	idsPerCall = 256
	// scanVisibility is the lease of dead letters that a scan compares. Those that
	// it holds for longer go back to where they were.
	scanVisibility = 5 * time.Minute
	// releaseTimeout bounds releasing dead letters after the caller's context has
	// ended.
	releaseTimeout = 5 * time.Second
)

// A filter is a Filter with its ids in a map.
type filter[T any] struct {
	Filter[T]
	ids      map[string]bool // nil means all
	oneByOne bool            // receive dead letters one at a time
}

// newFilter checks that f is valid and the queue can be used.
func (q *Queue[T]) newFilter(op string, f Filter[T]) (*filter[T], error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if f.Limit < 0 {
		return nil, q.fail(op, mailbox.ErrInvalid, "Limit", "is negative; 0 means no limit")
	}
	c := &filter[T]{Filter: f}
	if f.IDs != nil {
		c.ids = make(map[string]bool, len(f.IDs))
		for _, id := range f.IDs {
			c.ids[id] = true
		}
	}
	return c, nil
}

// all reports whether every dead letter matches, up to the limit.
func (c *filter[T]) all() bool { return c.ids == nil && c.Match == nil }

// matches reports whether a dead letter matches, apart from the limit.
func (c *filter[T]) matches(letter Message[T]) bool {
	return (c.ids == nil || c.ids[letter.MessageID]) && (c.Match == nil || c.Match(letter))
}

// full reports whether n dead letters reach the limit. The ids alone set no limit:
// a mailbox can hold two dead letters of one message.
func (c *filter[T]) full(n int) bool {
	return c.Limit > 0 && n >= c.Limit || c.ids != nil && len(c.ids) == 0
}

// A matched is a kept dead letter that matches: its id, and the key that it shares
// with other dead letters of the same work.
type matched struct{ id, identity string }

func messageIDs(letters []matched) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].id
	}
	return ids
}

// match lists the kept dead letters that match and that skip, if it is set, does
// not skip. It lists them before the caller acts on them, so that one that is
// dead-lettered again at once does not appear twice.
func (q *Queue[T]) match(ctx context.Context, c *filter[T], skip func(*Message[T]) (bool, error)) ([]matched, error) {
	var found []matched
	if c.full(0) {
		return nil, nil
	}
	for letter, err := range q.List(ctx) {
		if err != nil {
			return nil, err
		}
		if !c.matches(letter) {
			continue
		}
		if skip != nil {
			skipped, err := skip(&letter)
			if err != nil {
				return nil, err
			}
			if skipped {
				continue
			}
		}
		found = append(found, matched{letter.MessageID, letter.identity()})
		if c.full(len(found)) {
			break
		}
	}
	return found, nil
}

// scan receives the dead letters of the mailbox and calls take on those that
// match. take settles a dead letter and reports true, or leaves it. At the end scan
// releases all that are left to their places; it holds them until then, so that it
// does not receive them again.
func (q *Queue[T]) scan(ctx context.Context, c *filter[T], take func(*mailbox.Message[Message[T]]) (bool, error)) (taken int, err error) {
	var held []*mailbox.Message[Message[T]]
	defer func() { q.putBack(ctx, held) }()
	seen := make(map[string]bool)
	for !c.full(taken) {
		batch := max(1, q.letters.Traits().MaxBatch)
		if c.oneByOne {
			batch = 1
		} else if c.Limit > 0 && c.all() {
			batch = min(batch, c.Limit-taken)
		}
		messages, err := q.letters.Receive(ctx, mailbox.WithMax(batch), mailbox.WithVisibility(scanVisibility))
		if err != nil {
			return taken, err
		}
		if len(messages) == 0 {
			break
		}
		for i, message := range messages {
			if !seen[message.ID] { // a message whose lease ended is only held again
				seen[message.ID] = true
				if !c.full(taken) && c.matches(message.Body) {
					done, err := take(message)
					if err != nil {
						held = append(held, messages[i:]...)
						return taken, err
					}
					if done {
						taken++
						continue
					}
				}
			}
			held = append(held, message)
		}
	}
	return taken, nil
}

// putBack releases dead letters, also when ctx has ended. Those that cannot be
// released come back when their visibility ends.
func (q *Queue[T]) putBack(ctx context.Context, held []*mailbox.Message[Message[T]]) {
	unsettled := held[:0]
	for _, message := range held {
		if !message.Settled() {
			unsettled = append(unsettled, message)
		}
	}
	if len(unsettled) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = mailbox.ReleaseAll(ctx, unsettled...)
}
