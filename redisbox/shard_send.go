package redisbox

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
)

// special returns the properties that plain messages do not have, see send.lua.
func (q *shardQueue) special(msg *driver.Outgoing) extra {
	e := extra{delay: msg.Delay}
	if q.settings.Load().config.StrictGroups {
		e.group = digest(msg.Group)
	}
	if msg.DedupKey != "" {
		e.key = digest(q.incarnation + msg.DedupKey)
		e.bodyHash = digestBytes(msg.Body)
	}
	return e
}

// extra is the extra argument of a special message, see send.lua.
type extra struct {
	delay                time.Duration
	arrival              bool
	ordered              bool // must not arrive after one that was refused
	redrives             int
	first                float64 // wall time of the first delivery
	group, key, bodyHash string
	failure              string
	token                string
}

func (e *extra) pack() string {
	if *e == (extra{}) {
		return ""
	}
	packed := []byte(packDoubles(micros(e.delay), flag(e.arrival)+flag(e.ordered), float64(e.redrives), e.first))
	for _, text := range []string{e.group, e.key, e.bodyHash} {
		packed = append(append(packed, byte(len(text))), text...)
	}
	packed = binary.LittleEndian.AppendUint16(packed, uint16(min(len(e.failure), math.MaxUint16)))
	packed = append(packed, e.failure...)
	return string(append(append(packed, byte(len(e.token))), e.token...))
}

// digest stands for a group, a key or a body on the server: 128 bits.
func digest(text string) string { return digestBytes(bytesOf(text)) }

func digestBytes(b []byte) string {
	sum := blake3.Sum256(b)
	return string(sum[:16])
}

// sendOp is the part of a Send that goes to one shard; see batcher.
type sendOp struct {
	shard     *shard
	ctx       context.Context // of the caller
	positions []int
	ids       []string
	arrivals  []string // the names of messages that may have arrived before, see send.lua
	args      []string // three for each message
	special   bool     // one of the messages has an extra
	bytes     int
	bodies    int      // bytes of the bodies alone
	slot      *newSlot // created with the only message; nil if there is none

	done  chan struct{} // closed when the fields below are set
	wall  float64       // the server's wall time
	codes string
	more  []string
	err   error
}

func newSendOp(ctx context.Context, s *shard) *sendOp {
	return &sendOp{shard: s, ctx: ctx, done: make(chan struct{})}
}

func (o *sendOp) add(i int, id string, msg *driver.Outgoing, e extra) {
	o.addSent(i, id, o.shard.clock.wallNow(), msg, e)
}

// addSent adds a message that was sent at the given wall time.
func (o *sendOp) addSent(i int, id string, wall int64, msg *driver.Outgoing, e extra) {
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

// A newSlot is a reply slot that is created with a message; see batch.lua.
type newSlot struct {
	keys []string // the meta, slots and ends of its bucket
	args []string
}

// hasRoom reports whether more messages can be added.
func (o *sendOp) hasRoom() bool { return o.bytes < maxBytes && len(o.ids) < maxElements }

// submit queues the messages for the next call; see batcher.
func (o *sendOp) submit(ctx context.Context) { o.batcher().submit(ctx, o) }

// batcher returns the batcher that sends the messages.
func (o *sendOp) batcher() *batcher {
	if o.special {
		return o.shard.special
	}
	return o.shard.shared
}

func (o *sendOp) size() (elements, bytes int) { return len(o.ids), o.bytes }

func (o *sendOp) context() context.Context { return o.ctx }

// details counts the codes that come with a detail.
func details(codes string) (n int) {
	for _, code := range codes {
		if code != 's' && code != 'f' {
			n++
		}
	}
	return n
}
