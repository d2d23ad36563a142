package deadletter

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
)

// A Selection chooses letters. Its conditions add up; the zero Selection chooses
// all.
type Selection[T any] struct {
	// IDs are ids of messages, as Letter.MessageID has them. Nil means all; an
	// empty list chooses nothing.
	IDs []string
	// Match chooses by anything else. Nil means all. It must not change the
	// letter.
	Match func(Letter[T]) bool
	// Limit bounds how many are chosen, oldest first. 0 means no bound.
	Limit int
}

const (
	// idsAtOnce bounds how many ids a backend is given in one call.
	idsAtOnce = 256
	// scanVisibility is how long letters in a mailbox are held to be looked at.
	// Those that a scan still holds after that are simply back where they were.
	scanVisibility = 5 * time.Minute
	// giveBackWithin bounds how long putting letters back can take when the
	// context of the caller has ended.
	giveBackWithin = 5 * time.Second
)

// chooser is a Selection made ready to be asked often.
type chooser[T any] struct {
	Selection[T]
	ids      map[string]bool // nil means all
	oneByOne bool            // letters of a mailbox are taken one at a time
}

// chooser checks a selection, and that the box can be used.
func (b *Box[T]) chooser(op string, selection Selection[T]) (*chooser[T], error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	if selection.Limit < 0 {
		return nil, b.fail(op, mailbox.ErrInvalid, "Limit", "is negative; 0 means no limit")
	}
	c := &chooser[T]{Selection: selection}
	if selection.IDs != nil {
		c.ids = make(map[string]bool, len(selection.IDs))
		for _, id := range selection.IDs {
			c.ids[id] = true
		}
	}
	return c, nil
}

// all reports whether every letter is chosen, up to the limit.
func (c *chooser[T]) all() bool { return c.ids == nil && c.Match == nil }

// chooses reports whether a letter is chosen, apart from the limit.
func (c *chooser[T]) chooses(letter Letter[T]) bool {
	return (c.ids == nil || c.ids[letter.MessageID]) && (c.Match == nil || c.Match(letter))
}

// full reports whether n letters are as many as may be chosen. A mailbox can
// hold a letter twice, so the ids alone bound nothing there.
func (c *chooser[T]) full(n int) bool {
	return c.Limit > 0 && n >= c.Limit || c.ids != nil && len(c.ids) == 0
}

// chosen is a kept letter that was chosen: its id, and what it shares with other
// letters of the same work.
type chosen struct{ id, identity string }

func messageIDs(letters []chosen) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].id
	}
	return ids
}

// choose lists the kept letters that are chosen and that skip, if there is one,
// does not pass over. They are collected before anything is done to them, so
// that one that dies again at once is not met twice.
func (b *Box[T]) choose(ctx context.Context, c *chooser[T], skip func(*Letter[T]) (bool, error)) ([]chosen, error) {
	var found []chosen
	if c.full(0) {
		return nil, nil
	}
	for letter, err := range b.Letters(ctx) {
		if err != nil {
			return nil, err
		}
		if !c.chooses(letter) {
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
		found = append(found, chosen{letter.MessageID, letter.identity()})
		if c.full(len(found)) {
			break
		}
	}
	return found, nil
}

// scan takes the letters out of their mailbox, one after the other, and shows
// take those that are chosen. Take settles a letter and reports true, or leaves
// it. All that are left are put back at the end, at their own places; they are
// held until then, so that the scan does not meet them again.
func (b *Box[T]) scan(ctx context.Context, c *chooser[T], take func(*mailbox.Message[Letter[T]]) (bool, error)) (taken int, err error) {
	var held []*mailbox.Message[Letter[T]]
	defer func() { b.putBack(ctx, held) }()
	seen := make(map[string]bool)
	for !c.full(taken) {
		batch := max(1, b.letters.Traits().MaxBatch)
		if c.oneByOne {
			batch = 1
		} else if c.Limit > 0 && c.all() {
			batch = min(batch, c.Limit-taken)
		}
		messages, err := b.letters.Receive(ctx, mailbox.WithMax(batch), mailbox.WithVisibility(scanVisibility))
		if err != nil {
			return taken, err
		}
		if len(messages) == 0 {
			break
		}
		for i, message := range messages {
			if !seen[message.ID] { // or its lease has ended, and it is simply held for longer
				seen[message.ID] = true
				if !c.full(taken) && c.chooses(message.Body) {
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

// putBack releases letters, also when ctx has ended. What cannot be released
// comes back by itself when its visibility ends.
func (b *Box[T]) putBack(ctx context.Context, held []*mailbox.Message[Letter[T]]) {
	unsettled := held[:0]
	for _, message := range held {
		if !message.Settled() {
			unsettled = append(unsettled, message)
		}
	}
	if len(unsettled) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	_ = mailbox.ReleaseAll(ctx, unsettled...)
}
