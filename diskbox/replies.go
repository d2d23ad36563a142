package diskbox

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/slotstore"
)

// Reply slots on disk. A slot has a record with the key y and its id, and if it is resolved
// another with the key z and the id, which is written with it and removed with it:
//
//	slot:    version state wall created expires resolved
//	answer:  version created body failure kind
//
// Times are those of the time axis, except wall, which is Unix nanoseconds. Created tells the
// slots that had one id after another apart. Versions before ignore these records.

const (
	slotKind   = 'y'
	answerKind = 'z'
)

func appendSlotKey(dst []byte, kind byte, id string) []byte {
	return append(append(dst, kind), id...)
}

// slotStates are the states in records, by their number.
var slotStates = [...]driver.SlotState{driver.SlotPending, driver.SlotResolved, driver.SlotCancelled}

// Replies returns the reply store of the directory. Slots and answers are as durable as
// messages, and survive in the same way. Clients and workers of one process use it together
// with queues of the same backend: then a request and its slot are one commit, and so are an
// answer and the ack of its request. Every call returns the same store; closing the backend
// closes it.
func (b *Backend) Replies() driver.LinkedReplyStore { return &replyStore{b.slots, b.host} }

// replyStore is the reply store of a backend.
type replyStore struct {
	*slotstore.Store
	host *host.Backend
}

// LinkedTo reports whether queue is one of the same backend.
func (r *replyStore) LinkedTo(queue driver.Queue) bool { return r.host.Owns(queue) }

// newSlots returns the slots of a backend.
func newSlots(j *journal, h *host.Backend, o *Options) *slotstore.Store {
	return slotstore.New(slotstore.Options{
		MaxSlots: o.MaxReplySlots, MaxBodyBytes: o.MaxBodyBytes, Journal: j, Wall: o.wall,
		Now: func() time.Duration { return time.Duration(h.Now()) },
	})
}

// SlotWritten records a reply slot.
func (j *journal) SlotWritten(s *slotstore.Record) {
	j.key = appendSlotKey(j.key[:0], slotKind, s.ID)
	w := j.begin()
	w.number(recordVersion)
	state := 0
	for n, known := range slotStates {
		if s.State == known {
			state = n
		}
	}
	w.number(uint64(state))
	w.signed(s.Wall)
	for _, at := range []time.Duration{s.Created, s.Expires, s.Resolved} {
		w.signed(int64(at))
	}
	j.end()
	if s.State != driver.SlotResolved {
		return
	}
	j.key = appendSlotKey(j.key[:0], answerKind, s.ID)
	w = j.begin()
	w.number(recordVersion)
	w.signed(int64(s.Created))
	w.bytes(s.Answer.Body)
	w.text(s.Answer.Failure)
	w.text(s.Answer.FailureKind)
	j.end()
}

// SlotRemoved records the removal of a reply slot.
func (j *journal) SlotRemoved(id string, answered bool) {
	j.batch.Delete(appendSlotKey(nil, slotKind, id))
	if answered {
		j.batch.Delete(appendSlotKey(nil, answerKind, id))
	}
}

// AwaitThen calls then when all operations recorded so far are durable, or cannot become durable.
func (j *journal) AwaitThen(then func(error)) { j.Await(host.NewPendingThen(then)) }

// Answer reads the answer of a reply slot.
func (j *journal) Answer(id string, created time.Duration) (driver.Answer, error) {
	key := appendSlotKey(nil, answerKind, id)
	value, err := j.store.Get(key, nil)
	if err != nil {
		return driver.Answer{}, err
	}
	answer, of, ok := readAnswer(key, value)
	if !ok {
		return driver.Answer{}, &driver.Error{Code: driver.ErrIntegrity, Detail: "the answer is damaged on disk"}
	}
	if of != created {
		return driver.Answer{}, &driver.Error{Code: driver.ErrNotFound}
	}
	return answer, nil
}

// readAnswer reads a record; ok is false if it is damaged.
func readAnswer(key, value []byte) (answer driver.Answer, created time.Duration, ok bool) {
	r := open(key, value)
	created = time.Duration(r.signed())
	answer = driver.Answer{Body: r.take(), Failure: r.text(), FailureKind: r.text()}
	return answer, created, !r.damaged && len(r.buf) == 0
}

// readSlot reads a record; ok is false if it is damaged.
func readSlot(key, value []byte) (s slotstore.Record, ok bool) {
	r := open(key, value)
	state := r.number()
	if r.damaged || state >= uint64(len(slotStates)) {
		return s, false
	}
	s.ID, s.State, s.Wall = string(key[1:]), slotStates[state], r.signed()
	s.Created, s.Expires, s.Resolved = time.Duration(r.signed()), time.Duration(r.signed()), time.Duration(r.signed())
	return s, !r.damaged && len(r.buf) == 0
}

// readSlots reads the reply slots, without those that expired long ago.
func (r *recovery) readSlots() error {
	return r.each(slotKind, func(key, value []byte) error {
		s, ok := readSlot(key, value)
		if !ok {
			return damagedError("the record of a reply slot")
		}
		if s.Expires+slotstore.LingerExpired > time.Duration(r.now.At) {
			r.slots = append(r.slots, s)
			return nil
		}
		r.stale = append(r.stale, append([]byte(nil), key...))
		if s.State == driver.SlotResolved {
			r.stale = append(r.stale, appendSlotKey(nil, answerKind, s.ID))
		}
		return nil
	})
}

// slots checks the reply slots and their answers.
func (c *checker) slots() error {
	c.report.Slots = len(c.recovered.slots)
	answered := make(map[string]time.Duration)
	for i := range c.recovered.slots {
		if s := &c.recovered.slots[i]; s.State == driver.SlotResolved {
			answered[s.ID] = s.Created
		}
	}
	err := c.recovered.each(answerKind, func(key, value []byte) error {
		id := string(key[1:])
		created, known := answered[id]
		delete(answered, id)
		switch _, of, ok := readAnswer(key, value); {
		case !ok:
			c.report.Damaged++
			c.problem("the answer in reply slot %q is damaged", id)
		case !known || of != created:
			c.problem("the answer %q belongs to no reply slot", id)
		}
		return c.ctx.Err()
	})
	for id := range answered {
		c.problem("the answer in reply slot %q is missing", id)
	}
	return err
}

// slot removes a damaged record of a reply slot, and one whose answer is missing.
func (r *repair) slot(key, value []byte) error {
	s, ok := readSlot(key, value)
	if !ok {
		return r.remove(key)
	}
	if s.State != driver.SlotResolved {
		return nil
	}
	return r.removeUnless(key, appendSlotKey(nil, answerKind, s.ID))
}

// answer removes an answer that belongs to no slot, and counts damaged ones.
func (r *repair) answer(key, value []byte) error {
	_, created, ok := readAnswer(key, value)
	owner := appendSlotKey(nil, slotKind, string(key[1:]))
	found, err := r.store.Get(owner, nil)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	s, known := readSlot(owner, found)
	switch {
	case err != nil || !known || s.State != driver.SlotResolved || ok && s.Created != created:
		return r.remove(key)
	case !ok:
		r.result.Damaged++
	}
	return nil
}
