package redisbox

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
)

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := h.check(ctx, "send"); err != nil {
		return nil, err
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	dispatch := dispatch{queue: h.queue, msgs: msgs, sent: make([]driver.Sent, len(msgs))}
	if err := dispatch.run(ctx); err != nil {
		return nil, h.outcome(err, "send")
	}
	return dispatch.sent, dispatch.failures.err()
}

// A dispatch is one call of Send: messages, the shards they go to, and what
// becomes of them.
type dispatch struct {
	queue    *queue
	msgs     []driver.Outgoing
	sent     []driver.Sent
	failures failures
	// flying are the parts under way, one or more for each shard.
	flying []*sending
}

// run sends all messages. Those that follow each other without a claim between
// them go at once; the order within a shard is that of the batch.
func (d *dispatch) run(ctx context.Context) error {
	traits := d.queue.settings.Load().traits
	for i := range d.msgs {
		msg := &d.msgs[i]
		if err := msg.Check(&traits); err != nil {
			d.fail(i, err)
			continue
		}
		s := d.queue.shardFor(msg)
		if msg.DedupKey != "" && d.queue.shardOf(msg.DedupKey) != s {
			if err := d.land(ctx); err != nil {
				return err
			}
			if err := d.claim(ctx, i, s); err != nil {
				return err
			}
			continue
		}
		d.part(ctx, s).add(i, s.newID(), msg, d.queue.special(msg))
	}
	return d.land(ctx)
}

func (d *dispatch) fail(i int, err error) { d.failures.add(len(d.msgs), i, d.queue.named(err, "send")) }

// part returns the part of the dispatch for a shard that has room.
func (d *dispatch) part(ctx context.Context, s *shard) *sending {
	for i := len(d.flying) - 1; i >= 0; i-- {
		if part := d.flying[i]; part.shard == s {
			if part.bytes < maxBytes && len(part.ids) < maxElements {
				return part
			}
			break
		}
	}
	part := newSending(ctx, s)
	d.flying = append(d.flying, part)
	return part
}

// land sends the parts and waits for all of them.
func (d *dispatch) land(ctx context.Context) error {
	for _, part := range d.flying {
		part.shard.sends.submit(ctx, part)
	}
	var failure error
	for _, part := range d.flying {
		select {
		case <-part.done:
		case <-ctx.Done(): // what is under way will be done
			return ctx.Err()
		}
		switch {
		case errors.Is(part.err, driver.ErrFull): // out of memory; other parts may have been sent
			for _, i := range part.positions {
				d.fail(i, part.err)
			}
		case part.err != nil:
			failure = part.err
		default:
			d.take(part)
		}
	}
	d.flying = nil
	return failure
}

// take notes what became of the messages of a part.
func (d *dispatch) take(part *sending) {
	more := 0
	for n, i := range part.positions {
		letter, detail := byte('s'), ""
		if part.letters != "" {
			letter = part.letters[n]
		}
		if letter != 's' && letter != 'f' && more < len(part.more) {
			detail = part.more[more]
			more++
		}
		d.result(i, part.ids[n], letter, detail)
	}
}

// result notes what became of one message; see dedup.lua for the letters.
func (d *dispatch) result(i int, id string, letter byte, detail string) {
	switch letter {
	case 's':
		d.sent[i] = driver.Sent{ID: id}
	case 'd':
		d.sent[i] = driver.Sent{ID: detail, Duplicate: true}
	case 'c':
		d.fail(i, &driver.Error{
			Code: driver.ErrConflict, MessageID: detail, Field: "DedupKey", Detail: "was used for another body",
		})
	case 'w':
		wait, _ := strconv.ParseInt(detail, 10, 64)
		d.fail(i, d.queue.full("the dedup table is full", time.Duration(wait)*time.Microsecond))
	case 'u':
		d.fail(i, &driver.Error{
			Code: driver.ErrUnavailable, Field: "DedupKey", RetryAfter: retryAfter,
			Detail: "another send with this key has not been finished",
		})
	default:
		d.fail(i, d.queue.full("the queue is full", retryAfter))
	}
}

// special packs what is not like most messages, see send.lua.
func (q *queue) special(msg *driver.Outgoing) extra {
	e := extra{delay: msg.Delay}
	if q.settings.Load().config.StrictGroups {
		e.group = digest(msg.Group)
	}
	if msg.DedupKey != "" {
		e.key = digest(q.incarnation + msg.DedupKey)
		e.payload = digestBytes(msg.Body)
	}
	return e
}

// extra is what send.lua is told about a message that is not like most.
type extra struct {
	delay               time.Duration
	arrival             bool
	ordered             bool // not to arrive after one that was refused
	redrives            int
	first               float64 // when it was delivered for the first time, wall time
	group, key, payload string
	failure             string
	token               string
}

func (e *extra) pack() string {
	if *e == (extra{}) {
		return ""
	}
	packed := []byte(packDoubles(micros(e.delay), flag(e.arrival)+flag(e.ordered), float64(e.redrives), e.first))
	for _, text := range []string{e.group, e.key, e.payload} {
		packed = append(append(packed, byte(len(text))), text...)
	}
	packed = binary.LittleEndian.AppendUint16(packed, uint16(min(len(e.failure), math.MaxUint16)))
	packed = append(packed, e.failure...)
	return string(append(append(packed, byte(len(e.token))), e.token...))
}

// digest is what stands for a group, a key or a body on the server: 128 bits.
func digest(text string) string { return digestBytes(bytesOf(text)) }

func digestBytes(b []byte) string {
	sum := blake3.Sum256(b)
	return string(sum[:16])
}

// sending is the part of a Send that goes to one shard.
type sending struct {
	shard     *shard
	ctx       context.Context // it travels with the operation, for as long as that takes
	positions []int
	ids       []string
	arrivals  []string // the names of those that may have arrived before
	args      []string // three for each message
	special   bool     // one of them is
	bytes     int
	bodies    int // bytes of the bodies alone

	done    chan struct{} // closed when the fields below are set
	letters string
	more    []string
	err     error
}

func newSending(ctx context.Context, s *shard) *sending {
	return &sending{shard: s, ctx: ctx, done: make(chan struct{})}
}

func (o *sending) add(i int, id string, msg *driver.Outgoing, e extra) {
	o.addSent(i, id, o.shard.clock.wallNow(), msg, e)
}

// addSent adds a message that was sent at another time.
func (o *sending) addSent(i int, id string, wall int64, msg *driver.Outgoing, e extra) {
	record, special := packRecord(id, wall, msg), e.pack()
	if e.arrival {
		o.arrivals = append(o.arrivals, id+e.token)
	}
	o.positions = append(o.positions, i)
	o.ids = append(o.ids, id)
	o.args = append(o.args, id, record, special)
	o.special = o.special || special != ""
	o.bytes += len(record)
	o.bodies += len(msg.Body)
}

func (o *sending) weight() (elements, bytes int) { return len(o.ids), o.bytes }
func (o *sending) context() context.Context      { return o.ctx }

// details counts the letters that come with more.
func details(letters string) (n int) {
	for _, letter := range letters {
		if letter != 's' && letter != 'f' {
			n++
		}
	}
	return n
}
