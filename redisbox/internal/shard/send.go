package shard

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
)

// Special returns the properties that plain messages do not have, see send.lua.
func (q *Queue) Special(msg *driver.Outgoing) Extra {
	config := q.Settings.Load().Config
	e := Extra{delay: msg.Delay, priority: msg.Priority, TTL: Micros(cmp.Or(msg.TTL, config.TTL))}
	if !msg.DeliverAt.IsZero() {
		e.at = WallMicros(msg.DeliverAt)
	}
	if config.StrictGroups {
		e.group = digest(msg.Group)
	}
	if msg.DedupKey != "" {
		e.Key = digest(q.Incarnation + msg.DedupKey)
		e.BodyHash = digestBytes(msg.Body)
	}
	if msg.UniqueKey != "" {
		e.Unique = digest(msg.UniqueKey)
	}
	if msg.Replace {
		e.onHolder = "r"
	}
	return e
}

// WallMicros returns a due time in Unix microseconds, at least 1. It rounds up.
func WallMicros(at time.Time) float64 {
	return float64(max(at.Add(time.Microsecond-1).UnixMicro(), 1))
}

// Extra is the extra argument of a special message, see send.lua.
type Extra struct {
	delay                time.Duration
	at                   float64 // due time instead of delay, in Unix microseconds
	Arrival              bool
	Ordered              bool // must not arrive after one that was refused
	Redrives             int
	First                float64 // wall time of the first delivery
	group, Key, BodyHash string
	Failure              string
	Token                string
	TTL                  float64 // time to live, in microseconds; 0 if it has none
	Ends                 float64 // wall time; 0 if the TTL begins when the message is due
	priority             int
	Unique               string // digest of the unique key
	onHolder             string // what becomes of it if another message holds the key
}

// Yield lets the message arrive even if another one holds its unique key.
func (e *Extra) Yield() { e.onHolder = "y" }

func (e *Extra) pack() string {
	if *e == (Extra{}) {
		return ""
	}
	packed := []byte(PackDoubles(Micros(e.delay)-e.at, flag(e.Arrival)+flag(e.Ordered), float64(e.Redrives), e.First))
	for _, text := range []string{e.group, e.Key, e.BodyHash} {
		packed = append(append(packed, byte(len(text))), text...)
	}
	packed = binary.LittleEndian.AppendUint16(packed, uint16(min(len(e.Failure), math.MaxUint16)))
	packed = append(packed, e.Failure...)
	packed = append(append(packed, byte(len(e.Token))), e.Token...)
	return string(packed) + PackDoubles(e.TTL, e.Ends, float64(e.priority)) + packShort(e.Unique) + packShort(e.onHolder)
}

// digest stands for a group, a key or a body on the server: 128 bits.
func digest(text string) string { return digestBytes(BytesOf(text)) }

func digestBytes(b []byte) string {
	sum := blake3.Sum256(b)
	return string(sum[:16])
}

// SendOp is the part of a Send that goes to one shard; see batcher.
type SendOp struct {
	Shard     *Shard
	ctx       context.Context // of the caller
	Positions []int
	IDs       []string
	Arrivals  []string // the names of messages that may have arrived before, see send.lua
	args      []string // three for each message
	special   bool     // one of the messages has an extra
	bytes     int
	bodies    int        // bytes of the bodies alone
	Slot      *SlotWrite // created with the only message; nil if there is none

	Done  chan struct{} // closed when the fields below are set
	Wall  float64       // the server's wall time
	Codes string
	More  []string
	Err   error
}

// NewSendOp returns a part without messages.
func NewSendOp(ctx context.Context, s *Shard) *SendOp {
	return &SendOp{Shard: s, ctx: ctx, Done: make(chan struct{})}
}

// Add adds message i of the caller.
func (o *SendOp) Add(i int, id string, msg *driver.Outgoing, e Extra) {
	o.AddSent(i, id, o.Shard.Clock.wallNow(), msg, e)
}

// AddSent adds a message that was sent at the given wall time.
func (o *SendOp) AddSent(i int, id string, wall int64, msg *driver.Outgoing, e Extra) {
	record, special := packRecord(id, wall, msg), e.pack()
	if e.Arrival {
		o.Arrivals = append(o.Arrivals, id+e.Token)
	}
	o.Positions = append(o.Positions, i)
	o.IDs = append(o.IDs, id)
	o.args = append(o.args, id, record, special)
	o.special = o.special || special != ""
	o.bytes += len(record)
	o.bodies += len(msg.Body)
}

// A SlotWrite is a reply slot that is created with a message, or resolved with an ack; see batch.lua.
type SlotWrite struct {
	keys []string // the meta, slots and ends of its bucket
	args []string
}

// HasRoom reports whether more messages can be added.
func (o *SendOp) HasRoom() bool { return o.bytes < maxBytes && len(o.IDs) < maxElements }

// Submit queues the messages for the next call; see batcher.
func (o *SendOp) Submit(ctx context.Context) { o.batcher().Submit(ctx, o) }

// batcher returns the batcher that sends the messages.
func (o *SendOp) batcher() *batcher {
	if o.special {
		return o.Shard.special
	}
	return o.Shard.Shared
}

func (o *SendOp) size() (elements, bytes int) { return len(o.IDs), o.bytes }

func (o *SendOp) context() context.Context { return o.ctx }

// hasDetail reports whether a code comes with a detail.
func hasDetail(code byte) bool { return code != 's' && code != 'f' }

// details counts the codes that come with a detail.
func details(codes string) (n int) {
	for _, code := range []byte(codes) {
		if hasDetail(code) {
			n++
		}
	}
	return n
}

// Results calls f with the code of each message, in order, and its detail; see send.lua.
func (o *SendOp) Results(f func(n int, code byte, detail string)) {
	more := o.More
	for n := range o.IDs {
		code, detail := byte('s'), ""
		if o.Codes != "" {
			code = o.Codes[n]
		}
		if hasDetail(code) && len(more) > 0 {
			detail, more = more[0], more[1:]
		}
		f(n, code, detail)
	}
}
