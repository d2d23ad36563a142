package redisbox

import (
	"context"
	"errors"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// In a queue of several shards a dedup key belongs to one shard and a group to
// another. A message that has both is sent in steps, see claim.lua: the key is
// claimed where it belongs, the message is sent where it belongs, and the claim
// is confirmed. Every step can be repeated, by whoever sends with that key next.

// errClaimed: another send with the key is under way, or was interrupted.
var errClaimed = errors.New("another send with this dedup key has not been finished")

// claim sends message i, whose key belongs to another shard than s.
func (d *dispatch) claim(ctx context.Context, i int, s *shard) error {
	msg := &d.msgs[i]
	extra := d.queue.special(msg)
	c := claim{
		home: d.queue.shardOf(msg.DedupKey), target: s,
		key: extra.key, payload: extra.payload, id: s.newID(),
	}
	extra.key, extra.payload, extra.arrival = "", "", true
	for tries := d.queue.backend.newTries(nil); ; {
		letter, detail, err := c.send(ctx, msg, extra)
		switch {
		case err == nil:
			d.result(i, c.id, letter, detail)
			return nil
		case !errors.Is(err, errClaimed):
			return err
		case !tries.again(ctx):
			if ctx.Err() != nil {
				return ctx.Err()
			}
			d.result(i, c.id, 'u', "")
			return nil
		}
	}
}

// A claim is one attempt to use a key for a message of another shard.
type claim struct {
	home, target     *shard
	key, payload, id string
}

// send goes through the steps. It returns the letter for the message; see
// dedup.lua.
func (c *claim) send(ctx context.Context, msg *driver.Outgoing, extra extra) (letter byte, detail string, err error) {
	letter, detail, err = c.step(ctx, "c")
	if err != nil || (letter != 's' && letter != 'u') {
		return letter, detail, err
	}
	if letter == 'u' && len(detail) > ident.TextLen {
		c.id = detail[:ident.TextLen]
		if detail[ident.TextLen:] != strconv.Itoa(c.target.number) {
			return c.elsewhere(ctx, detail[ident.TextLen:])
		}
	}
	part := newSending(ctx, c.target)
	part.add(0, c.id, msg, extra)
	err = c.target.serveDurably(ctx, &load{sends: []*sending{part}}, false)
	if errors.Is(err, driver.ErrFull) { // out of memory
		part.letters, err = "f", nil
	}
	if err != nil {
		return 0, "", err
	}
	if part.letters == "f" {
		_, _, err := c.step(ctx, "r")
		return 'f', "", err
	}
	if err := c.confirm(ctx, c.target); err != nil {
		return 0, "", err
	}
	if part.letters == "d" {
		return 'd', c.id, nil
	}
	return 's', "", nil
}

// elsewhere deals with a key that was claimed for a message of a third shard: it
// is a duplicate once that has arrived.
func (c *claim) elsewhere(ctx context.Context, number string) (letter byte, detail string, err error) {
	n, err := strconv.Atoi(number)
	shards := c.home.queue.shards
	if err != nil || n < 0 || n >= len(shards) {
		return 0, "", unreadable(err)
	}
	letters, err := shards[n].arrival(ctx, "a", false, []string{c.id})
	if err != nil {
		return 0, "", err
	}
	if letters != "d" {
		return 0, "", errClaimed
	}
	return 'd', c.id, c.confirm(ctx, shards[n])
}

// confirm says that the message has arrived, after which its shard need not
// remember that any more.
func (c *claim) confirm(ctx context.Context, at *shard) error {
	if _, _, err := c.step(ctx, "s"); err != nil {
		return err
	}
	_, err := at.arrival(ctx, "f", false, []string{c.id})
	return err
}

// step calls claim.lua.
func (c *claim) step(ctx context.Context, what string) (letter byte, detail string, err error) {
	a, err := c.home.callDurably(ctx, claimScript, false,
		what, c.key, c.payload, c.id, strconv.Itoa(c.target.number))
	if err != nil {
		return 0, "", err
	}
	text, err := a.rest[0].ToString()
	if err != nil || text == "" {
		return 0, "", unreadable(err)
	}
	detail, err = a.rest[1].ToString()
	return text[0], detail, err
}
