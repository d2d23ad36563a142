package redisbox

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// A bucket is one part of the reply slots, as this process sees it.
type bucket struct {
	replies *Replies
	keys    []string
	clock   clock
	ear     *listener

	sessions sessionPool

	mu       sync.Mutex               // guards the fields below
	waiting  map[string][]chan string // by the ids of slots
	expected expectations
	hearing  context.CancelFunc // ends the listening, which begins with the first who waits
	rests    bool               // for good
}

// bucketKeys are the keys of a bucket, in the order in which scripts take them.
var bucketKeys = []string{"meta", "slots", "ends", "sessions"}

func newBucket(r *Replies, number int) *bucket {
	begin := r.backend.options.Prefix + "{replies." + strconv.Itoa(number) + "}:"
	k := &bucket{replies: r, waiting: make(map[string][]chan string)}
	for _, key := range bucketKeys {
		k.keys = append(k.keys, begin+key)
	}
	k.ear = newListener(r.backend, begin+r.process, k.hear, k.missed)
	return k
}

// key is one of bucketKeys.
func (k *bucket) key(name string) string { return k.keys[slices.Index(bucketKeys, name)] }

// slotRequest is what slot.lua is asked.
type slotRequest struct {
	what, id string
	life     time.Duration
	waiter   string
	answer   driver.Answer
}

// write does something to a slot that must not be done twice, and returns what
// slot.lua answers.
func (k *bucket) write(ctx context.Context, sc *script, req slotRequest) (letter, text string, err error) {
	sess := k.sessions.take()
	defer k.sessions.put(sess)
	letter, text, err = k.slot(ctx, sc, sess, k.replies.backend.options.Replicas, req)
	k.forget(ctx, sess, len(text))
	return letter, text, err
}

// look returns a slot as it is; what is g, or w to be told when it changes.
func (k *bucket) look(ctx context.Context, what, id string) (foundSlot, error) {
	letter, text, err := k.slot(ctx, slotScript, nil, 0, slotRequest{what: what, id: id, waiter: k.replies.process})
	if err != nil {
		return foundSlot{}, err
	}
	if letter == "n" {
		return foundSlot{}, &driver.Error{Code: driver.ErrNotFound}
	}
	return readSlot(id, text)
}

// slot calls slot.lua.
func (k *bucket) slot(ctx context.Context, sc *script, sess *session, replicas int, req slotRequest) (letter, text string, err error) {
	reply, err := k.call(ctx, sc, sess, replicas, req.what, req.id, decimal(micros(req.life)), strconv.Itoa(k.replies.most),
		req.waiter, req.answer.Failure, req.answer.FailureKind, string(req.answer.Body))
	if err != nil {
		return "", "", err
	}
	if len(reply) != 2 {
		return "", "", unreadable(nil)
	}
	if letter, err = reply[0].ToString(); err == nil {
		text, err = reply[1].ToString()
	}
	if err != nil {
		return "", "", unreadable(err)
	}
	return letter, text, nil
}

// An endedSlot is one whose time is over.
type endedSlot struct {
	id    string
	ended float64
}

// sweep calls sweep.lua.
func (k *bucket) sweep(ctx context.Context, what string, limit int) ([]endedSlot, error) {
	var sess *session
	replicas := 0
	if what == "s" {
		sess, replicas = k.sessions.take(), k.replies.backend.options.Replicas
		defer k.sessions.put(sess)
	}
	reply, err := k.call(ctx, sweepScript, sess, replicas, what, strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	size, ended := 0, make([]endedSlot, len(reply)/2)
	for i := range ended {
		id, err := reply[2*i].ToString()
		if err != nil {
			return nil, unreadable(err)
		}
		when, err := reply[2*i+1].ToString()
		if err != nil {
			return nil, unreadable(err)
		}
		ended[i] = endedSlot{id: id, ended: number(when)}
		size += len(id) + len(when)
	}
	if sess != nil {
		k.forget(ctx, sess, size)
	}
	return ended, nil
}

// call runs a script on the bucket until it is answered, and returns what it
// answers beyond the head.
func (k *bucket) call(ctx context.Context, sc *script, sess *session, replicas int, args ...string) ([]rueidis.RedisMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if k.replies.isClosed() {
		return nil, &driver.Error{Code: driver.ErrClosed}
	}
	name, turn := "", "0"
	if sess != nil {
		sess.next()
		name, turn = sess.name, strconv.FormatInt(sess.turn, 10)
	}
	b := k.replies.backend
	return request(ctx, b, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		now, term := k.clock.floor()
		full := append(make([]string, 0, len(onBucket)+len(args)), decimal(now), decimal(term), name, turn)
		reply, err := b.eval(ctx, sc, k.keys, append(full, args...), replicas)
		if err != nil {
			return nil, err
		}
		return k.read(reply)
	})
}

// read takes in what every answer tells, and returns the rest.
func (k *bucket) read(reply []rueidis.RedisMessage) ([]rueidis.RedisMessage, error) {
	if len(reply) == 0 {
		return nil, unreadable(nil)
	}
	status, err := reply[0].ToString()
	switch {
	case err != nil:
		return nil, unreadable(err)
	case status == "stale":
		k.clock.sawStale()
		return nil, errStale
	case status == "late":
		return nil, errLate
	case len(reply) < 2:
		return nil, unreadable(nil)
	}
	head, err := reply[1].ToString()
	if err != nil || len(head) != 8*3 {
		return nil, unreadable(err)
	}
	k.clock.saw(doubleAt(head, 0), doubleAt(head, 1), doubleAt(head, 2))
	return reply[2:], nil
}

// largeAnswer is how many bytes of an answer a session may remember for longer than it
// takes to bring the answer home.
const largeAnswer = 4 << 10

// forget has the server drop what a session remembers of a large answer, now that it
// is here: otherwise a consumed body would stay in memory until the session is used
// again. If it fails, just that happens.
func (k *bucket) forget(ctx context.Context, sess *session, size int) {
	if size <= largeAnswer {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the caller has what he wants
	defer cancel()
	_, _ = k.call(ctx, sweepScript, sess, 0, "l", "0") // does nothing, in the session's next turn
}

// A foundSlot is a slot as a script shows it.
type foundSlot struct {
	driver.Slot
	left time.Duration // until it ends
}

// readSlot reads what bucket.lua packs.
func readSlot(id, text string) (foundSlot, error) {
	const doubles = 4
	if len(text) < 1+8*doubles+2 {
		return foundSlot{}, unreadable(nil)
	}
	found := foundSlot{left: time.Duration(math.Ceil(doubleAt(text[1:], 0))) * time.Microsecond}
	found.ID, found.State = id, slotStates[text[:1]]
	found.CreatedAt, found.ExpiresAt = wallTime(doubleAt(text[1:], 1)), wallTime(doubleAt(text[1:], 2))
	if found.State != driver.SlotResolved {
		return found, nil
	}
	found.ResolvedAt = wallTime(doubleAt(text[1:], 3))
	rest := text[1+8*doubles+2:] // nobody waits
	for _, field := range []*string{&found.Answer.Failure, &found.Answer.FailureKind} {
		if len(rest) < 4 {
			return foundSlot{}, unreadable(nil)
		}
		n := uint64(binary.LittleEndian.Uint32(bytesOf(rest[:4])))
		if rest = rest[4:]; n > uint64(len(rest)) {
			return foundSlot{}, unreadable(nil)
		}
		*field, rest = rest[:n], rest[n:]
	}
	found.Answer.Body = []byte(rest)
	return found, nil
}

// lookAgain is told to those who wait when something may have been missed.
const lookAgain = "\x00"

// join registers one who waits for a slot. What is announced about it is in the
// channel, which holds the latest.
func (k *bucket) join(ctx context.Context, id string) chan string {
	told := make(chan string, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting[id] = append(k.waiting[id], told)
	if k.hearing == nil && !k.rests {
		ctx, k.hearing = context.WithCancel(context.WithoutCancel(ctx))
		k.replies.backend.running.start(func() { k.ear.run(ctx) })
	}
	return told
}

func (k *bucket) leave(id string, told chan string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := slices.DeleteFunc(k.waiting[id], func(other chan string) bool { return other == told })
	if len(left) == 0 {
		delete(k.waiting, id)
	} else {
		k.waiting[id] = left
	}
}

// rest ends the listening.
func (k *bucket) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rests = true
	if k.hearing != nil {
		k.hearing()
	}
}

// hear hands an announcement to those who wait for the slot.
func (k *bucket) hear(_ context.Context, message string) {
	if len(message) < 2 {
		return
	}
	n := int(binary.LittleEndian.Uint16(bytesOf(message[:2])))
	if message = message[2:]; n > len(message) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, told := range k.waiting[message[:n]] {
		tell(told, message[n:])
	}
}

// missed has all who wait look again.
func (k *bucket) missed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, all := range k.waiting {
		for _, told := range all {
			tell(told, lookAgain)
		}
	}
}

// tell puts the latest that there is to tell into a channel; what was written is
// not followed by anything but a removal, and so wins over a hint to look.
func tell(told chan string, text string) {
	select {
	case told <- text:
	default:
		if text != lookAgain {
			select {
			case <-told:
			default:
			}
			told <- text
		}
	}
}
