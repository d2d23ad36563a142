package redisbox

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// The dedup table, and the eviction of keys whose window has ended, are in dedup.lua.
//
// In a queue of several shards a dedup key belongs to one shard and a group to another.
// A message that has both is sent in steps, see dedup_claim.lua: the key is claimed in
// its shard, the message is sent to the shard of its group, and the claim is confirmed.
// Every step can be repeated, by any process that sends with that key next.

// errClaimed: another send with the key is under way, or was interrupted.
var errClaimed = errors.New("another send with this dedup key has not been finished")

// claim sends message i, whose key belongs to another shard than s.
func (d *sendCall) claim(ctx context.Context, i int, s *shard.Shard) error {
	msg := &d.msgs[i]
	extra := d.queue.Special(msg)
	c := claim{
		home: d.queue.ShardOf(msg.DedupKey), target: s,
		key: extra.Key, bodyHash: extra.BodyHash, id: s.NewID(),
	}
	extra.Key, extra.BodyHash, extra.Arrival = "", "", true
	for tries := d.queue.Server.NewTries(nil); ; {
		code, detail, err := c.send(ctx, msg, extra)
		switch {
		case err == nil:
			d.result(i, c.id, code, detail)
			return nil
		case !errors.Is(err, errClaimed):
			return err
		case !tries.Again(ctx):
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
	home, target      *shard.Shard
	key, bodyHash, id string
	holder            string // the message that holds the unique key, if another one does
}

// send performs the steps. It returns the code of the message and its detail; see
// dedup.lua.
func (c *claim) send(ctx context.Context, msg *driver.Outgoing, extra shard.Extra) (code byte, detail string, err error) {
	code, detail, err = c.step(ctx, "c")
	if err != nil || (code != 's' && code != 'u') {
		return code, detail, err
	}
	if code == 'u' && len(detail) > ident.TextLen {
		c.id = detail[:ident.TextLen]
		if detail[ident.TextLen:] != strconv.Itoa(c.target.Number) {
			return c.elsewhere(ctx, detail[ident.TextLen:])
		}
	}
	part := shard.NewSendOp(ctx, c.target)
	part.Add(0, c.id, msg, extra)
	err = c.target.RunDurably(ctx, &shard.Batch{Sends: []*shard.SendOp{part}}, false)
	if errors.Is(err, driver.ErrFull) { // out of memory
		part.Codes, err = "f", nil
	}
	if err != nil {
		return 0, "", err
	}
	part.Results(func(_ int, got byte, more string) { code, detail = got, more })
	switch code {
	case 'f', 'k': // the unique keys are full
		_, _, err := c.step(ctx, "r")
		return code, "", err
	case 'h', 'p':
		c.holder = detail
		_, _, err := c.step(ctx, "s")
		return code, detail, err
	}
	return code, c.id, c.confirm(ctx, c.target)
}

// elsewhere handles a key that was claimed for a message of a third shard: it is a
// duplicate once that message has arrived.
func (c *claim) elsewhere(ctx context.Context, number string) (code byte, detail string, err error) {
	n, err := strconv.Atoi(number)
	shards := c.home.Queue.Shards
	if err != nil || n < 0 || n >= len(shards) {
		return 0, "", shard.UnreadableAnswer(err)
	}
	codes, err := shards[n].Arrival(ctx, "a", false, []string{c.id})
	if err != nil {
		return 0, "", err
	}
	if codes != "d" {
		return 0, "", errClaimed
	}
	return 'd', c.id, c.confirm(ctx, shards[n])
}

// confirm confirms the claim after the message has arrived. Then the arrival can be
// forgotten.
func (c *claim) confirm(ctx context.Context, at *shard.Shard) error {
	if _, _, err := c.step(ctx, "s"); err != nil {
		return err
	}
	_, err := at.Arrival(ctx, "f", false, []string{c.id})
	return err
}

// step calls dedup_claim.lua.
func (c *claim) step(ctx context.Context, what string) (code byte, detail string, err error) {
	a, err := c.home.CallDurably(ctx, shard.DedupClaimScript, false,
		what, c.key, c.bodyHash, c.id, cmp.Or(c.holder, strconv.Itoa(c.target.Number)))
	if err != nil {
		return 0, "", err
	}
	text, err := a.Rest[0].ToString()
	if err != nil || text == "" {
		return 0, "", shard.UnreadableAnswer(err)
	}
	detail, err = a.Rest[1].ToString()
	return text[0], detail, err
}
