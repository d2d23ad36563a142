package pgbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// A shard is what a process knows of a shard of a queue.
type shard struct {
	queue    *queue
	number   int
	receives gatherer[*receiveOp]

	marks marks
}

// marks are a place up to which no sent message of a shard, and a time up to which no deadline was
// left when this process last looked. They save looking at rows that are gone, but that a
// transaction which is held open keeps. They are hints: a crash of the server can bring back leases
// that were not on its disk, so now and then a call begins at 0. They are safe for concurrent use.
type marks struct {
	mu sync.Mutex // guards the fields below
	point
	// When a receive, and when another call begins at 0 next. Only receives look for messages
	// below place, so another call that began at 0 does not do it for them.
	nextReceive, nextOther time.Time
}

// A point is where a call begins to look: behind a place, behind places for each priority above 0, of
// which nil are none, and after a time.
type point struct {
	place, due int64
	levels     []int64
}

// forReceive returns where a receive begins to look.
func (m *marks) forReceive() point {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().After(m.nextReceive) {
		return point{}
	}
	return m.point
}

// received notes that a receive has handled everything up to a time, and taken sent messages up to
// places.
func (m *marks) received(begun time.Time, from, to point) {
	m.looked(begun, from, to.due)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.place, m.levels = to.place, to.levels
	if from.due == 0 {
		m.nextReceive = m.nextOther
	}
}

// forOthers returns where another call begins to look.
func (m *marks) forOthers() point {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().After(m.nextOther) {
		return point{}
	}
	return m.point
}

// looked notes that a call which began to look at from has handled everything up to a time.
func (m *marks) looked(begun time.Time, from point, due int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = max(m.due, due)
	if from.due == 0 {
		m.nextOther = time.Now().Add(max(minFull, fullShare*time.Since(begun)))
	}
}

// doubt makes the next calls look at everything.
func (m *marks) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.point, m.nextReceive, m.nextOther = point{}, time.Time{}, time.Time{}
}

// lowest returns where a call for some shards that does not receive begins to look.
func (q *queue) lowest(shards []int32) point {
	if len(shards) == 0 { // of a queue that another one tends, whose marks are not known
		return point{}
	}
	lowest := q.shards[shards[0]].marks.forOthers()
	for _, n := range shards[1:] {
		if n != shards[0] {
			lowest = lowest.or(q.shards[n].marks.forOthers())
		}
	}
	return lowest
}

// numbers returns the numbers of all shards.
func (q *queue) numbers() []int32 {
	all := make([]int32, len(q.shards))
	for n := range all {
		all[n] = int32(n)
	}
	return all
}

// or returns a point that is before both.
func (p point) or(other point) point {
	lower := point{place: min(p.place, other.place), due: min(p.due, other.due)}
	if len(p.levels) == len(other.levels) {
		for i, place := range p.levels {
			lower.levels = append(lower.levels, min(place, other.levels[i]))
		}
	}
	return lower
}

// A full look costs at most one part in fullShare of the time, and happens at least every
// minFull, if that allows it.
const (
	minFull   = 5 * time.Second
	fullShare = 50
)

func newShard(q *queue, number int) *shard {
	s := &shard{queue: q, number: number}
	s.receives = gatherer[*receiveOp]{start: q.backend.start, size: (*receiveOp).size, perform: s.perform}
	return s
}

// A receiveOp is one request for messages of a shard.
type receiveOp struct {
	req   driver.ReceiveRequest
	waits bool // the caller waits if it gets none, and wants to know until when
	done  chan struct{}

	mu        sync.Mutex // guards abandoned and answered
	abandoned bool
	answered  bool

	// The answer, when done is closed.
	got     []driver.Delivery
	blocked bool // only the in-flight limit kept it from getting a message
	err     error
}

func (op *receiveOp) size() (elements, bytes int) { return op.req.Max, 0 }

// finish gives the answer, and reports false if the caller has left.
func (op *receiveOp) finish() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.answered = true
	close(op.done)
	return !op.abandoned
}

// abandon says that the caller does not want the answer, and reports false if it is there.
func (op *receiveOp) abandon() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.abandoned = !op.answered
	return op.abandoned
}

// head is the row of an answer that is about the call; see receive.sql.
type head struct {
	again          bool
	low            point // due is the time
	sources        int32
	next, version  *int64
	whys           []byte
	woken, endings string
}

// perform makes the call for a batch of receives.
func (s *shard) perform(ctx context.Context, batch []*receiveOp) {
	s.queue.collectSometimes(ctx)
	begun := time.Now()
	from := s.marks.forReceive()
	for {
		h, got, err := s.receive(ctx, batch, from)
		if err == nil {
			s.queue.backend.happened(ctx, &h.endings, &h.woken)
			if h.again {
				continue
			}
			s.marks.received(begun, from, h.low)
			s.queue.note(ctx, *h.version)
			s.queue.noteNext(&h, shortestLease(batch, got))
		} else {
			s.marks.doubt()
		}
		for i, op := range batch {
			op.err = err
			if err == nil {
				op.got, op.blocked = got[i], len(h.whys) > i && h.whys[i] == '1'
			}
			if !op.finish() && len(op.got) > 0 {
				s.queue.undo(ctx, op.got)
			}
		}
		return
	}
}

// shortestLease returns the shortest visibility of the requests that got messages, or lookInterval if none did.
func shortestLease(batch []*receiveOp, got [][]driver.Delivery) time.Duration {
	shortest := lookInterval
	for i, op := range batch {
		if len(got[i]) > 0 {
			shortest = min(shortest, op.req.Visibility)
		}
	}
	return shortest
}

// receive calls the function receive.
func (s *shard) receive(ctx context.Context, batch []*receiveOp, from point) (h head, got [][]driver.Delivery, err error) {
	most, sizes, visibilities := make([]int32, len(batch)), make([]int64, len(batch)), make([]int64, len(batch))
	waits := false
	for i, op := range batch {
		most[i], sizes[i], visibilities[i] = int32(op.req.Max), int64(op.req.MaxBytes), micros(op.req.Visibility)
		waits = waits || op.waits
	}
	r := request{
		sql:  "SELECT * FROM mailbox.receive($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		args: []any{int32(s.number), most, sizes, visibilities, rand.Int64() >> 8, from.place, from.due, waits, false, from.levels},
		wide: 9, named: true, repeatable: true, // messages of a call whose answer is lost come back
	}
	if s.queue.isPlain() {
		r.sql = strings.Replace(r.sql, "receive", "take", 1)
	}
	err = s.queue.call(ctx, r, func(rows pgx.Rows) error {
		h, got = head{}, make([][]driver.Delivery, len(batch))
		for rows.Next() {
			if err := s.readRow(rows, &h, got); err != nil {
				return err
			}
		}
		return nil
	})
	return h, got, err
}

// readRow reads a row of an answer: a message, or the head.
func (s *shard) readRow(rows pgx.Rows, h *head, got [][]driver.Delivery) error {
	var request, deliveries, priority int32
	var seq, nonce int64
	var first, sentAt *int64
	var id pgtype.UUID
	var group, packed, body, failure []byte
	var before past
	var released bool
	err := rows.Scan(&request, &seq, &nonce, &deliveries, &first, &sentAt, &id, &group, &packed, &body, &failure,
		&before[0], &before[1], &before[2], &before[3], &released, &priority)
	if err != nil {
		return err
	}
	if request < 0 {
		*h = head{
			again: request == -2, low: point{place: seq, due: nonce, levels: readLevels(group)}, sources: deliveries, next: sentAt, version: first,
			whys: packed, woken: string(body), endings: string(failure),
		}
		return nil
	}
	d := driver.Delivery{Shard: s.number, Released: released, Message: driver.Message{
		ID: ulid.ULID(id.Bytes).String(), Body: body, Group: string(group), Deliveries: int(deliveries),
		EnqueuedAt: wall(*sentAt), FirstReceivedAt: wall(*first), LastError: string(failure), Priority: int(priority),
	}}
	d.Receipt = driver.Receipt{Handle: d.ID, Place: uint64(s.number)<<seqBits | uint64(seq), Nonce: uint64(nonce)}
	if err := readMessage(&d.Message, packed, &before); err != nil {
		return err
	}
	got[request] = append(got[request], d)
	return nil
}

// readLevels reads the places of priorities in the head of an answer.
func readLevels(text []byte) (levels []int64) {
	for field := range strings.FieldsSeq(string(text)) {
		place, _ := strconv.ParseInt(field, 10, 64) // 0 looks at everything
		levels = append(levels, place)
	}
	return levels
}

// take leases ready messages without waiting. blocked says that only the in-flight limit kept
// it from taking any; waits, that the caller will wait if there are none.
func (h *handle) take(ctx context.Context, req driver.ReceiveRequest, waits bool) (got []driver.Delivery, blocked bool, err error) {
	n := len(h.shards)
	first := int(h.nextTake.Add(1) % uint64(n))
	for i := range n {
		part, full, err := h.takeFrom(ctx, h.shards[(first+i)%n], req, waits)
		blocked = blocked || full
		if err != nil || len(part) > 0 {
			return part, blocked, err
		}
	}
	return nil, blocked, nil
}

// cancelGrace is how long a receive that is cancelled during its call waits for the answer,
// which may contain messages. Messages that come later are given back as if they had not been
// delivered, unless their lease is over by then. So a receive with a lease shorter than
// shortLease waits longer.
const (
	cancelGrace = time.Second
	shortLease  = 5 * time.Second
)

// takeFrom leases ready messages of one shard.
func (h *handle) takeFrom(ctx context.Context, s *shard, req driver.ReceiveRequest, waits bool) ([]driver.Delivery, bool, error) {
	op := &receiveOp{req: req, waits: waits, done: make(chan struct{})}
	s.receives.submit(ctx, op)
	var reason error
	select {
	case <-op.done:
		return op.got, op.blocked, op.err
	case <-ctx.Done():
		reason = ctx.Err()
	case <-h.closed:
		reason = h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		reason = h.failure(h.code, "receive")
	}
	if s.receives.withdraw(func(other *receiveOp) bool { return other == op }) {
		return nil, false, reason
	}
	timer := time.NewTimer(max(cancelGrace, shortLease-req.Visibility))
	defer timer.Stop()
	select {
	case <-op.done:
	case <-timer.C:
		if op.abandon() {
			return nil, false, reason
		}
	}
	if op.err != nil || len(op.got) == 0 {
		return nil, false, reason
	}
	return op.got, false, nil
}

// received returns the error of a receive that got these messages.
func (h *handle) received(got []driver.Delivery, blocked bool, err error) error {
	switch {
	case len(got) > 0:
		return nil
	case err != nil:
		return h.outcome(err, "receive")
	case !blocked:
		return nil
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "receive", Queue: h.name, Field: "MaxInFlight",
		Detail: fmt.Sprintf("in-flight limit reached (MaxInFlight %d)", h.settings.Load().config.MaxInFlight), RetryAfter: retryAfter,
	}
}
