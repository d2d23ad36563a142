package pgbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// An ackOp is the receipts of one call of Ack.
type ackOp struct {
	shards       []int32
	seqs, nonces []int64
	ids          [][16]byte
	positions    []int
	done         chan struct{}

	// The answer, when done is closed.
	valid []bool
	err   error
}

func (op *ackOp) size() (elements, bytes int) { return len(op.seqs), 0 }

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if tx := txOf(ctx); tx != nil {
		return h.settleInTx(ctx, tx, "ack", len(receipts), func(i int) (settlement, error) { return settlement{receipt: receipts[i]}, nil })
	}
	if h.settings.Load().traits.GroupLimits { // other messages of the groups become ready, or their turns change
		return h.settle(ctx, "ack", "a", len(receipts), func(i int) (s settlement, err error) {
			return settlement{receipt: receipts[i]}, nil
		}, nil)
	}
	if err := h.check(ctx, "ack"); err != nil || len(receipts) == 0 {
		return err
	}
	var failed []error
	op := &ackOp{done: make(chan struct{})}
	for i, receipt := range receipts {
		id, shard, ok := h.read(receipt)
		if !ok {
			failed = driver.FailAt(failed, len(receipts), i, h.expired("ack", receipt))
			continue
		}
		op.seqs, op.nonces = append(op.seqs, seqOf(receipt)), append(op.nonces, int64(receipt.Nonce))
		op.ids, op.shards, op.positions = append(op.ids, id), append(op.shards, shard), append(op.positions, i)
	}
	if len(op.seqs) > 0 {
		h.acks.submit(ctx, op)
		select {
		case <-op.done:
		case <-ctx.Done(): // the call is completed
			return ctx.Err()
		}
		if op.err != nil {
			return h.outcome(op.err, "ack")
		}
	}
	for n, i := range op.positions {
		if !op.valid[n] {
			failed = driver.FailAt(failed, len(receipts), i, h.expired("ack", receipts[i]))
		}
	}
	return driver.NewBatchError(failed)
}

// performAcks makes the call for a batch of acks.
func (q *queue) performAcks(ctx context.Context, batch []*ackOp) {
	var all ackOp
	for _, op := range batch {
		all.shards = append(all.shards, op.shards...)
		all.seqs, all.nonces, all.ids = append(all.seqs, op.seqs...), append(all.nonces, op.nonces...), append(all.ids, op.ids...)
	}
	r := request{sql: "SELECT mailbox.ack($1, $2, $3, $4, $5)", wide: -1, named: true}
	c, positions := &all, []int(nil)
	if q.isPlain() {
		c, positions = all.sorted()
	}
	if positions != nil {
		r.sql = "SELECT mailbox.ack_sorted($1, $2, $3, $4, $5)"
	}
	r.args = []any{c.shards, c.seqs, c.nonces, c.ids}
	var valid []bool
	err := q.call(ctx, r, func(rows pgx.Rows) error {
		valid = make([]bool, len(c.seqs))
		for rows.Next() {
			var position int
			if err := rows.Scan(&position); err != nil {
				return err
			}
			if position--; positions != nil {
				position = positions[position]
			}
			valid[position] = true
		}
		return nil
	})
	if err == nil && q.settings.Load().config.MaxInFlight > 0 {
		q.changed(ctx, len(c.seqs))
	}
	for _, op := range batch {
		if op.err = err; err == nil {
			op.valid, valid = valid[:len(op.seqs)], valid[len(op.seqs):]
		}
		close(op.done)
	}
}

// sorted returns receipts in the order of their messages with their positions, or as they are and nil if two are of one message.
func (op *ackOp) sorted() (c *ackOp, positions []int) {
	positions = make([]int, len(op.seqs))
	for i := range positions {
		positions[i] = i
	}
	slices.SortFunc(positions, func(a, b int) int { return cmp.Compare(op.seqs[a], op.seqs[b]) })
	c = &ackOp{}
	for i, at := range positions {
		if i > 0 && op.seqs[at] == c.seqs[i-1] {
			return op, nil
		}
		c.shards, c.seqs = append(c.shards, op.shards[at]), append(c.seqs, op.seqs[at])
		c.nonces, c.ids = append(c.nonces, op.nonces[at]), append(c.ids, op.ids[at])
	}
	return c, positions
}

// nackModes are the modes of a nack as the function settle takes them.
var nackModes = [...]string{driver.NackFailed: "n", driver.NackRelease: "r", driver.NackPutBack: "p"}

// A settlement is one element of a batch that is settled.
type settlement struct {
	receipt driver.Receipt
	number  int64 // a delay or a visibility
	cause   string
	kind    string
	reason  string // of a dead letter; for a nack, its mode
}

func seqOf(receipt driver.Receipt) int64 { return int64(receipt.Place & (1<<seqBits - 1)) }

// read returns the id and the shard of a receipt; ok is false if no message here can have it.
func (q *queue) read(receipt driver.Receipt) (id [16]byte, shard int32, ok bool) {
	id, ok = packedID(receipt.Handle)
	number := receipt.Place >> seqBits
	return id, int32(number), ok && number < uint64(len(q.shards))
}

func (q *queue) expired(op string, receipt driver.Receipt) error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: q.name, MessageID: receipt.Handle}
}

// AckLate removes messages like Ack, and accepts expired receipts too; see driver.Queue.
func (h *handle) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return h.settle(ctx, "ack late", "l", len(receipts), func(i int) (settlement, error) {
		return settlement{receipt: receipts[i]}, nil
	}, nil)
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	traits := h.Traits()
	each := func(i int) (settlement, error) {
		nack := &nacks[i]
		if err := nack.Check(&traits); err != nil {
			return settlement{}, err
		}
		return settlement{
			receipt: nack.Receipt, number: micros(nack.Delay), cause: driver.TrimCause(nack.Cause), reason: nackModes[nack.Mode],
		}, nil
	}
	if tx := txOf(ctx); tx != nil {
		return h.settleInTx(ctx, tx, "nack", len(nacks), each)
	}
	return h.settle(ctx, "nack", "n", len(nacks), each, nil)
}

func (h *handle) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return h.extend(ctx, "e", extensions)
}

// ExtendLate moves deadlines like Extend, and leases messages again whose latest delivery has
// just expired; see driver.Queue.
func (h *handle) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	_, err := h.extend(ctx, "g", extensions)
	return err
}

func (h *handle) extend(ctx context.Context, what string, extensions []driver.Extension) ([]time.Duration, error) {
	traits := h.Traits()
	cuts := make(map[int]time.Duration)
	err := h.settle(ctx, "extend", what, len(extensions), func(i int) (settlement, error) {
		extension := &extensions[i]
		err := extension.Check(&traits)
		return settlement{receipt: extension.Receipt, number: micros(extension.Visibility)}, err
	}, func(i int, granted int64) {
		if granted < micros(extensions[i].Visibility) {
			cuts[i] = time.Duration(granted) * time.Microsecond
		}
	})
	granted := driver.GrantedAsAsked(extensions, err)
	for i, cut := range cuts {
		if i < len(granted) {
			granted[i] = cut
		}
	}
	return granted, err
}

func (h *handle) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return h.settle(ctx, "dead-letter", "k", len(requests), func(i int) (settlement, error) {
		request := &requests[i]
		s := settlement{receipt: request.Receipt, cause: driver.TrimCause(request.Error), kind: driver.TrimCause(request.ErrorType), reason: string(request.Reason)}
		if !request.Reason.Valid() {
			return s, &driver.Error{
				Code: driver.ErrInvalid, Field: "Reason",
				Detail: fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", request.Reason),
			}
		}
		return s, nil
	}, nil)
}

// undo gives messages back whose receiver has left, as if they had not been delivered.
func (q *queue) undo(ctx context.Context, got []driver.Delivery) {
	h := &handle{queue: q, closed: make(chan struct{})}
	_ = h.settle(ctx, "receive", "u", len(got), func(i int) (settlement, error) {
		return settlement{receipt: got[i].Receipt}, nil
	}, nil) // otherwise their leases end
}

// settleColumns are the arguments of the function settle.
type settleColumns struct {
	positions             []int
	shards                []int32
	seqs, nonces, numbers []int64
	ids                   [][16]byte
	causes, kinds         [][]byte
	reasons               []string
}

// settle settles a batch, in order. each returns an element or its error; granted, if it is not
// nil, gets the microseconds that were granted to each that was settled.
func (h *handle) settle(ctx context.Context, op, what string, n int, each func(i int) (settlement, error), granted func(i int, micros int64)) error {
	if err := h.check(ctx, op); err != nil || n == 0 {
		return err
	}
	var failed []error
	var c settleColumns
	for i := range n {
		s, err := each(i)
		if err != nil {
			failed = driver.FailAt(failed, n, i, h.named(err, op))
			continue
		}
		id, shard, ok := h.read(s.receipt)
		if !ok {
			failed = driver.FailAt(failed, n, i, h.expired(op, s.receipt))
			continue
		}
		c.positions, c.shards, c.ids = append(c.positions, i), append(c.shards, shard), append(c.ids, id)
		c.seqs, c.nonces, c.numbers = append(c.seqs, seqOf(s.receipt)), append(c.nonces, int64(s.receipt.Nonce)), append(c.numbers, s.number)
		c.causes, c.kinds, c.reasons = append(c.causes, []byte(s.cause)), append(c.kinds, []byte(s.kind)), append(c.reasons, s.reason)
	}
	if len(c.seqs) == 0 {
		return driver.NewBatchError(failed)
	}
	codes, grants, err := h.callSettle(ctx, what, &c)
	if err != nil {
		return h.outcome(err, op)
	}
	for k, i := range c.positions {
		switch codes[k] {
		case 's':
			if granted != nil {
				granted(i, grants[k])
			}
		case 'f':
			failed = driver.FailAt(failed, n, i, &driver.Error{
				Code: driver.ErrFull, Op: op, Queue: h.name, Field: "MaxDead", Detail: "the dead letters are full", RetryAfter: driver.DeadRetry,
			})
		default:
			failed = driver.FailAt(failed, n, i, &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: h.name})
		}
	}
	return driver.NewBatchError(failed)
}

// callSettle calls the function settle.
func (q *queue) callSettle(ctx context.Context, what string, c *settleColumns) (codes string, grants []int64, err error) {
	from := q.lowest(c.shards)
	for {
		var answer, woken, endings *string
		var version *int64
		r := request{
			sql:  "SELECT * FROM mailbox.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
			args: []any{what, c.shards, c.seqs, c.nonces, c.ids, c.numbers, c.causes, c.kinds, c.reasons, false, from.place, from.due, from.levels},
			wide: 10, named: true,
		}
		if err := q.call(ctx, r, one(&answer, &grants, &version, &woken, &endings)); err != nil {
			return "", nil, err
		}
		q.backend.happened(ctx, endings, woken)
		if answer != nil {
			q.note(ctx, *version)
			q.changed(ctx, len(c.seqs))
			return *answer, grants, nil
		}
	}
}
