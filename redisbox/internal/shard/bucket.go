package shard

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// A Bucket is one part of the reply slots on the server.
type Bucket struct {
	Server   *Server
	Keys     []string
	waiter   string // the name of this process as a waiter
	most     int    // slots
	isClosed func() bool
	clock    clock
	sessions sessionPool
}

// NewBucket returns a bucket, as the process called waiter sees it.
func NewBucket(server *Server, number int, waiter string, most int, isClosed func() bool) *Bucket {
	k := &Bucket{Server: server, waiter: waiter, most: most, isClosed: isClosed}
	for _, key := range bucketKeys {
		k.Keys = append(k.Keys, BucketTag(server.Prefix, number)+key)
	}
	return k
}

// Buckets is how many buckets the slots are spread over, each in one hash slot of a
// cluster.
const Buckets = 16

// BucketOf returns the number of the bucket of a slot. All processes must agree on it.
func BucketOf(id string) int { return int(Hash(id) % Buckets) }

// NewSlot returns a slot that is created with the message that names it. It expires after
// ttl, and this process is notified of its answer if waits.
func (k *Bucket) NewSlot(id string, ttl time.Duration, waits bool) *SlotWrite {
	waiter := ""
	if waits {
		waiter = k.waiter
	}
	return k.write(id, Decimal(Micros(ttl)), strconv.Itoa(k.most), waiter)
}

// NewAnswer returns a slot that is resolved with the ack of its request.
func (k *Bucket) NewAnswer(id string, answer driver.Answer) *SlotWrite {
	return k.write(id, answer.Failure, answer.FailureKind, string(answer.Body))
}

func (k *Bucket) write(args ...string) *SlotWrite {
	_, term := k.clock.Floor()
	return &SlotWrite{keys: []string{k.Key("meta"), k.Key("slots"), k.Key("ends")}, args: append(args, Decimal(term))}
}

// bucketKeys are the keys of a bucket, in the order in which scripts take them.
var bucketKeys = []string{"meta", "slots", "ends", "sessions"}

// Key returns one of bucketKeys.
func (k *Bucket) Key(name string) string { return k.Keys[slices.Index(bucketKeys, name)] }

// SlotRequest is a request to reply_slot.lua.
type SlotRequest struct {
	What, ID string
	Life     time.Duration
	Waiter   string
	Answer   driver.Answer
}

// Write changes a slot, once however often the call is repeated, and returns the answer
// of reply_slot.lua.
func (k *Bucket) Write(ctx context.Context, sc *Script, req SlotRequest) (code, text string, err error) {
	sess := k.sessions.take()
	defer k.sessions.put(sess)
	code, text, err = k.slot(ctx, sc, sess, k.Server.Replicas, req)
	k.forget(ctx, sess, len(text))
	return code, text, err
}

// Look returns a slot as it is; what is g, or w to be notified when it changes.
func (k *Bucket) Look(ctx context.Context, what, id string) (FoundSlot, error) {
	code, text, err := k.slot(ctx, ReplySlotScript, nil, 0, SlotRequest{What: what, ID: id, Waiter: k.waiter})
	if err != nil {
		return FoundSlot{}, err
	}
	if code == "n" {
		return FoundSlot{}, &driver.Error{Code: driver.ErrNotFound}
	}
	return ReadSlot(id, text)
}

// slot calls reply_slot.lua.
func (k *Bucket) slot(ctx context.Context, sc *Script, sess *Session, replicas int, req SlotRequest) (code, text string, err error) {
	reply, err := k.call(ctx, sc, sess, replicas, req.What, req.ID, Decimal(Micros(req.Life)), strconv.Itoa(k.most),
		req.Waiter, req.Answer.Failure, req.Answer.FailureKind, string(req.Answer.Body))
	if err != nil {
		return "", "", err
	}
	if len(reply) != 2 {
		return "", "", UnreadableAnswer(nil)
	}
	if code, err = reply[0].ToString(); err == nil {
		text, err = reply[1].ToString()
	}
	if err != nil {
		return "", "", UnreadableAnswer(err)
	}
	return code, text, nil
}

// An EndedSlot is a slot that has expired.
type EndedSlot struct {
	ID    string
	Ended float64
}

// Sweep calls reply_sweep.lua.
func (k *Bucket) Sweep(ctx context.Context, what string, limit int) ([]EndedSlot, error) {
	var sess *Session
	replicas := 0
	if what == "s" {
		sess, replicas = k.sessions.take(), k.Server.Replicas
		defer k.sessions.put(sess)
	}
	reply, err := k.call(ctx, replySweepScript, sess, replicas, what, strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	size, ended := 0, make([]EndedSlot, len(reply)/2)
	for i := range ended {
		id, err := reply[2*i].ToString()
		if err != nil {
			return nil, UnreadableAnswer(err)
		}
		when, err := reply[2*i+1].ToString()
		if err != nil {
			return nil, UnreadableAnswer(err)
		}
		ended[i] = EndedSlot{ID: id, Ended: Number(when)}
		size += len(id) + len(when)
	}
	if sess != nil {
		k.forget(ctx, sess, size)
	}
	return ended, nil
}

// SlotsListed is how many slots one call lists at most.
const SlotsListed = 256

// A SlotList reads the slots of a bucket in the order in which they end, a page at a time.
type SlotList struct {
	bucket *Bucket
	from   string   // when the last slot that was listed ends
	seen   []string // the slots that were listed and end then
	atEnd  bool
}

// A ListedSlot is a slot as it was listed, without its answer.
type ListedSlot struct {
	driver.Slot
	Ends float64 // by the time of its bucket
}

// List returns a list of the slots. It does no I/O.
func (k *Bucket) List() *SlotList { return &SlotList{bucket: k, from: "-inf"} }

// Next returns further slots, and none at the end. It blocks for a round trip, and for another if only
// remains of slots were found.
func (l *SlotList) Next(ctx context.Context) (page []ListedSlot, err error) {
	for len(page) == 0 && !l.atEnd {
		reply, err := l.bucket.call(ctx, replyListScript, nil, 0, append([]string{l.from, strconv.Itoa(SlotsListed)}, l.seen...)...)
		if err != nil {
			return nil, err
		}
		if page, err = l.read(reply); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// read reads the answer of reply_list.lua.
func (l *SlotList) read(reply []rueidis.RedisMessage) (page []ListedSlot, err error) {
	texts := make([]string, len(reply))
	for i := range reply {
		if texts[i], err = reply[i].ToString(); err != nil {
			return nil, UnreadableAnswer(err)
		}
	}
	if len(texts)%3 != 1 {
		return nil, UnreadableAnswer(nil)
	}
	l.atEnd = texts[0] != "1"
	for part := range slices.Chunk(texts[1:], 3) {
		id, ends, packed := part[0], part[1], part[2]
		if ends != l.from {
			l.from, l.seen = ends, nil
		}
		l.seen = append(l.seen, id)
		if packed == "" {
			continue
		}
		found, err := ReadSlot(id, packed)
		if err != nil {
			return nil, err
		}
		page = append(page, ListedSlot{found.Slot, Number(ends)})
	}
	return page, nil
}

// call runs a script on the bucket until it is answered, and returns the answer without
// its head.
func (k *Bucket) call(ctx context.Context, sc *Script, sess *Session, replicas int, args ...string) ([]rueidis.RedisMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if k.isClosed() {
		return nil, &driver.Error{Code: driver.ErrClosed}
	}
	name, turn := "", "0"
	if sess != nil {
		sess.next()
		name, turn = sess.name, strconv.FormatInt(sess.turn, 10)
	}
	return Request(ctx, k.Server, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		now, term := k.clock.Floor()
		full := append(make([]string, 0, len(onBucket)+len(args)), Decimal(now), Decimal(term), name, turn)
		reply, err := k.Server.Eval(ctx, sc, k.Keys, append(full, args...), replicas)
		if err != nil {
			return nil, err
		}
		return k.read(reply)
	})
}

// read applies the head of an answer, and returns the rest.
func (k *Bucket) read(reply []rueidis.RedisMessage) ([]rueidis.RedisMessage, error) {
	if len(reply) == 0 {
		return nil, UnreadableAnswer(nil)
	}
	status, err := reply[0].ToString()
	switch {
	case err != nil:
		return nil, UnreadableAnswer(err)
	case status == "stale":
		k.clock.SawStale()
		return nil, errStale
	case status == "late":
		return nil, errLate
	case len(reply) < 2:
		return nil, UnreadableAnswer(nil)
	}
	head, err := reply[1].ToString()
	if err != nil || len(head) != 8*3 {
		return nil, UnreadableAnswer(err)
	}
	k.clock.Saw(DoubleAt(head, 0), DoubleAt(head, 1), DoubleAt(head, 2))
	return reply[2:], nil
}

// largeAnswer is how many bytes of an answer the server may keep in a session after the
// answer has arrived.
const largeAnswer = 4 << 10

// forget makes the server drop a large answer from a session after it has arrived:
// otherwise a consumed body would stay in memory until the session is used again. That
// is all that happens if it fails.
func (k *Bucket) forget(ctx context.Context, sess *Session, size int) {
	if size <= largeAnswer {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the caller has its answer
	defer cancel()
	_, _ = k.call(ctx, replySweepScript, sess, 0, "l", "0") // its empty answer replaces the large one
}

// A FoundSlot is a slot as a script returns it.
type FoundSlot struct {
	driver.Slot
	Left time.Duration // until it ends
}

// ReadSlot reads a slot as reply_bucket.lua packs it.
func ReadSlot(id, text string) (FoundSlot, error) {
	const doubles = 4
	if len(text) < 1+8*doubles+2 {
		return FoundSlot{}, UnreadableAnswer(nil)
	}
	found := FoundSlot{Left: time.Duration(math.Ceil(DoubleAt(text[1:], 0))) * time.Microsecond}
	found.ID, found.State = id, SlotStates[text[:1]]
	found.CreatedAt, found.ExpiresAt = WallTime(DoubleAt(text[1:], 1)), WallTime(DoubleAt(text[1:], 2))
	if found.State != driver.SlotResolved {
		return found, nil
	}
	found.ResolvedAt = WallTime(DoubleAt(text[1:], 3))
	rest := text[1+8*doubles+2:] // without waiting processes
	for _, field := range []*string{&found.Answer.Failure, &found.Answer.FailureKind} {
		if len(rest) < 4 {
			return FoundSlot{}, UnreadableAnswer(nil)
		}
		n := uint64(binary.LittleEndian.Uint32(BytesOf(rest[:4])))
		if rest = rest[4:]; n > uint64(len(rest)) {
			return FoundSlot{}, UnreadableAnswer(nil)
		}
		*field, rest = rest[:n], rest[n:]
	}
	found.Answer.Body = []byte(rest)
	return found, nil
}

// SlotStates are the states by the codes that scripts use.
var SlotStates = map[string]driver.SlotState{
	"p": driver.SlotPending, "r": driver.SlotResolved, "c": driver.SlotCancelled, "x": driver.SlotExpired,
}
