package redisbox

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

// A bucket is one part of the reply slots on the server.
type bucket struct {
	server   *server
	keys     []string
	waiter   string // the name of this process as a waiter
	most     int    // slots
	isClosed func() bool
	clock    clock
	sessions sessionPool
}

// newBucket returns a bucket, as the process called waiter sees it.
func newBucket(server *server, number int, waiter string, most int, isClosed func() bool) *bucket {
	k := &bucket{server: server, waiter: waiter, most: most, isClosed: isClosed}
	for _, key := range bucketKeys {
		k.keys = append(k.keys, bucketTag(server.prefix, number)+key)
	}
	return k
}

// buckets is how many buckets the slots are spread over, each in one hash slot of a
// cluster.
const buckets = 16

// bucketOf returns the number of the bucket of a slot. All processes must agree on it.
func bucketOf(id string) int { return int(hash(id) % buckets) }

// newSlot returns a slot that is created with the message that names it. It expires after
// ttl, and this process is notified of its answer if waits.
func (k *bucket) newSlot(id string, ttl time.Duration, waits bool) *newSlot {
	waiter := ""
	if waits {
		waiter = k.waiter
	}
	_, term := k.clock.floor()
	return &newSlot{
		keys: []string{k.key("meta"), k.key("slots"), k.key("ends")},
		args: []string{id, decimal(micros(ttl)), strconv.Itoa(k.most), waiter, decimal(term)},
	}
}

// bucketKeys are the keys of a bucket, in the order in which scripts take them.
var bucketKeys = []string{"meta", "slots", "ends", "sessions"}

// key returns one of bucketKeys.
func (k *bucket) key(name string) string { return k.keys[slices.Index(bucketKeys, name)] }

// slotRequest is a request to reply_slot.lua.
type slotRequest struct {
	what, id string
	life     time.Duration
	waiter   string
	answer   driver.Answer
}

// write changes a slot, once however often the call is repeated, and returns the answer
// of reply_slot.lua.
func (k *bucket) write(ctx context.Context, sc *script, req slotRequest) (code, text string, err error) {
	sess := k.sessions.take()
	defer k.sessions.put(sess)
	code, text, err = k.slot(ctx, sc, sess, k.server.replicas, req)
	k.forget(ctx, sess, len(text))
	return code, text, err
}

// look returns a slot as it is; what is g, or w to be notified when it changes.
func (k *bucket) look(ctx context.Context, what, id string) (foundSlot, error) {
	code, text, err := k.slot(ctx, replySlotScript, nil, 0, slotRequest{what: what, id: id, waiter: k.waiter})
	if err != nil {
		return foundSlot{}, err
	}
	if code == "n" {
		return foundSlot{}, &driver.Error{Code: driver.ErrNotFound}
	}
	return readSlot(id, text)
}

// slot calls reply_slot.lua.
func (k *bucket) slot(ctx context.Context, sc *script, sess *session, replicas int, req slotRequest) (code, text string, err error) {
	reply, err := k.call(ctx, sc, sess, replicas, req.what, req.id, decimal(micros(req.life)), strconv.Itoa(k.most),
		req.waiter, req.answer.Failure, req.answer.FailureKind, string(req.answer.Body))
	if err != nil {
		return "", "", err
	}
	if len(reply) != 2 {
		return "", "", unreadableAnswer(nil)
	}
	if code, err = reply[0].ToString(); err == nil {
		text, err = reply[1].ToString()
	}
	if err != nil {
		return "", "", unreadableAnswer(err)
	}
	return code, text, nil
}

// An endedSlot is a slot that has expired.
type endedSlot struct {
	id    string
	ended float64
}

// sweep calls reply_sweep.lua.
func (k *bucket) sweep(ctx context.Context, what string, limit int) ([]endedSlot, error) {
	var sess *session
	replicas := 0
	if what == "s" {
		sess, replicas = k.sessions.take(), k.server.replicas
		defer k.sessions.put(sess)
	}
	reply, err := k.call(ctx, replySweepScript, sess, replicas, what, strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	size, ended := 0, make([]endedSlot, len(reply)/2)
	for i := range ended {
		id, err := reply[2*i].ToString()
		if err != nil {
			return nil, unreadableAnswer(err)
		}
		when, err := reply[2*i+1].ToString()
		if err != nil {
			return nil, unreadableAnswer(err)
		}
		ended[i] = endedSlot{id: id, ended: number(when)}
		size += len(id) + len(when)
	}
	if sess != nil {
		k.forget(ctx, sess, size)
	}
	return ended, nil
}

// call runs a script on the bucket until it is answered, and returns the answer without
// its head.
func (k *bucket) call(ctx context.Context, sc *script, sess *session, replicas int, args ...string) ([]rueidis.RedisMessage, error) {
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
	return request(ctx, k.server, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		now, term := k.clock.floor()
		full := append(make([]string, 0, len(onBucket)+len(args)), decimal(now), decimal(term), name, turn)
		reply, err := k.server.eval(ctx, sc, k.keys, append(full, args...), replicas)
		if err != nil {
			return nil, err
		}
		return k.read(reply)
	})
}

// read applies the head of an answer, and returns the rest.
func (k *bucket) read(reply []rueidis.RedisMessage) ([]rueidis.RedisMessage, error) {
	if len(reply) == 0 {
		return nil, unreadableAnswer(nil)
	}
	status, err := reply[0].ToString()
	switch {
	case err != nil:
		return nil, unreadableAnswer(err)
	case status == "stale":
		k.clock.sawStale()
		return nil, errStale
	case status == "late":
		return nil, errLate
	case len(reply) < 2:
		return nil, unreadableAnswer(nil)
	}
	head, err := reply[1].ToString()
	if err != nil || len(head) != 8*3 {
		return nil, unreadableAnswer(err)
	}
	k.clock.saw(doubleAt(head, 0), doubleAt(head, 1), doubleAt(head, 2))
	return reply[2:], nil
}

// largeAnswer is how many bytes of an answer the server may keep in a session after the
// answer has arrived.
const largeAnswer = 4 << 10

// forget makes the server drop a large answer from a session after it has arrived:
// otherwise a consumed body would stay in memory until the session is used again. That
// is all that happens if it fails.
func (k *bucket) forget(ctx context.Context, sess *session, size int) {
	if size <= largeAnswer {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the caller has its answer
	defer cancel()
	_, _ = k.call(ctx, replySweepScript, sess, 0, "l", "0") // its empty answer replaces the large one
}

// A foundSlot is a slot as a script returns it.
type foundSlot struct {
	driver.Slot
	left time.Duration // until it ends
}

// readSlot reads a slot as reply_bucket.lua packs it.
func readSlot(id, text string) (foundSlot, error) {
	const doubles = 4
	if len(text) < 1+8*doubles+2 {
		return foundSlot{}, unreadableAnswer(nil)
	}
	found := foundSlot{left: time.Duration(math.Ceil(doubleAt(text[1:], 0))) * time.Microsecond}
	found.ID, found.State = id, slotStates[text[:1]]
	found.CreatedAt, found.ExpiresAt = wallTime(doubleAt(text[1:], 1)), wallTime(doubleAt(text[1:], 2))
	if found.State != driver.SlotResolved {
		return found, nil
	}
	found.ResolvedAt = wallTime(doubleAt(text[1:], 3))
	rest := text[1+8*doubles+2:] // without waiting processes
	for _, field := range []*string{&found.Answer.Failure, &found.Answer.FailureKind} {
		if len(rest) < 4 {
			return foundSlot{}, unreadableAnswer(nil)
		}
		n := uint64(binary.LittleEndian.Uint32(bytesOf(rest[:4])))
		if rest = rest[4:]; n > uint64(len(rest)) {
			return foundSlot{}, unreadableAnswer(nil)
		}
		*field, rest = rest[:n], rest[n:]
	}
	found.Answer.Body = []byte(rest)
	return found, nil
}

// slotStates are the states by the codes that scripts use.
var slotStates = map[string]driver.SlotState{
	"p": driver.SlotPending, "r": driver.SlotResolved, "c": driver.SlotCancelled, "x": driver.SlotExpired,
}
