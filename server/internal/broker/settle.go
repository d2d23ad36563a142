package broker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// A Nack gives a delivery back.
type Nack struct {
	Receipt string
	// Delay is how long to wait before the next delivery. With Backoff it is
	// ignored, and the broker chooses: at random, within a bound that doubles with
	// each attempt.
	Delay   time.Duration
	Backoff bool
	Cause   string
	// Mode is that of driver.Nack. Messages that are released or put back are not
	// delayed by Backoff.
	Mode driver.NackMode
}

// An Extension moves the deadline of a delivery.
type Extension struct {
	Receipt    string
	Visibility time.Duration
	// Progress is what the holder reports about its work; nil for nothing.
	Progress *driver.Progress
}

// A DeadLetterRequest dead-letters a delivery.
type DeadLetterRequest struct {
	Receipt   string
	Reason    driver.Reason
	Error     string
	ErrorType string
}

// Ack removes messages, as driver.Queue.Ack does: positions that fail are
// ErrReceiptExpired. Deliveries that the caller's token took before it was revoked can
// still be acked, until the token expires. It blocks on the backend; repeating it is
// safe.
func (c Caller) Ack(ctx context.Context, queue string, receipts []string) error {
	return settle(ctx, &c, queue, receipts, acking)
}

// acking is how Ack settles.
var acking = &settleCall[string, driver.Receipt]{
	operation: capability.OpAck,
	op:        "ack",
	receipt:   func(r *string) string { return *r },
	convert:   func(_ *queueUse, _ *string, r driver.Receipt) driver.Receipt { return r },
	call:      func(ctx context.Context, q *queueUse, rs []driver.Receipt) error { return q.handle.Ack(ctx, rs) },
	start: func(q *queueUse, r *completion.Round, rs []driver.Receipt, done completion.Settled) {
		q.started.StartAck(r, rs, done)
	},
	done: func(u *queueUse, _ position, _ *string, r driver.Receipt) {
		u.ended(r, endedAcked, EventAcked, "")
	},
}

// Nack gives messages back, as driver.Queue.Nack does. Codes per position:
// ErrReceiptExpired, ErrInvalid (delay, mode), ErrUnsupported (mode).
func (c Caller) Nack(ctx context.Context, queue string, nacks []Nack) error {
	return settle(ctx, &c, queue, nacks, c.nacking(ctx))
}

// nacking is how Nack settles.
func (c *Caller) nacking(ctx context.Context) *settleCall[Nack, driver.Nack] {
	return &settleCall[Nack, driver.Nack]{
		operation: capability.OpNack,
		op:        "nack",
		receipt:   func(n *Nack) string { return n.Receipt },
		convert: func(u *queueUse, n *Nack, r driver.Receipt) driver.Nack {
			delay := n.Delay
			switch {
			case n.Backoff && n.Mode == driver.NackFailed:
				delay = c.broker.backoff(u.leases.attempt(r.Handle, r))
			case n.Backoff:
				delay = 0
			}
			return driver.Nack{Receipt: r, Delay: delay, Cause: text(n.Cause), Mode: n.Mode}
		},
		call: func(ctx context.Context, q *queueUse, ns []driver.Nack) error { return q.handle.Nack(ctx, ns) },
		start: func(q *queueUse, r *completion.Round, ns []driver.Nack, done completion.Settled) {
			q.started.StartNack(r, ns, done)
		},
		outcome: func(n *Nack) string { return nackOutcomes[n.Mode] },
		done: func(u *queueUse, _ position, n *Nack, r driver.Receipt) {
			c.logNacked(ctx, u, r)
			how, kind := endedFailed, EventFailed
			if n.Mode != driver.NackFailed {
				how, kind = endedOtherwise, EventReleased
			}
			u.ended(r, how, kind, n.Cause)
		},
	}
}

// nackOutcomes are the outcomes that metrics tell.
var nackOutcomes = map[driver.NackMode]string{
	driver.NackFailed: "nack", driver.NackRelease: "release", driver.NackPutBack: "put-back",
}

// logNacked logs a nacked delivery at debug level.
func (c *Caller) logNacked(ctx context.Context, u *queueUse, r driver.Receipt) {
	if !c.broker.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c.broker.log.DebugContext(ctx, "message.nacked", append(u.queueKey.attrs(),
		slog.String("corr_id", c.origin.CorrelationID), slog.String("token", c.token.ID().String()), slog.String("msg_id", r.Handle),
		slog.Int("attempt", u.leases.attempt(r.Handle, r)))...)
}

// Extend moves deadlines, as driver.Queue.Extend does, and returns what was
// granted. Codes per position: ErrReceiptExpired, ErrInvalid (visibility, progress).
func (c Caller) Extend(ctx context.Context, queue string, extensions []Extension) ([]time.Duration, error) {
	x := newExtending(len(extensions))
	return x.result(settle(ctx, &c, queue, extensions, &x.settleCall))
}

// extending is how Extend settles, and what was granted.
type extending struct {
	settleCall[Extension, driver.Extension]
	granted []time.Duration
	called  []time.Duration // of the positions that went to the backend
}

func newExtending(extensions int) *extending {
	x := &extending{granted: make([]time.Duration, extensions)}
	x.settleCall = settleCall[Extension, driver.Extension]{
		operation: capability.OpExtend,
		op:        "extend",
		receipt:   func(e *Extension) string { return e.Receipt },
		convert: func(_ *queueUse, e *Extension, r driver.Receipt) driver.Extension {
			return driver.Extension{Receipt: r, Visibility: e.Visibility, Progress: e.Progress}
		},
		call: func(ctx context.Context, q *queueUse, es []driver.Extension) (err error) {
			x.called, err = q.handle.Extend(ctx, es)
			return err
		},
		start: func(q *queueUse, r *completion.Round, es []driver.Extension, done completion.Settled) {
			q.started.StartExtend(r, es, func(r *completion.Round, granted []time.Duration, err error) {
				x.called = granted
				done(r, err)
			})
		},
		done: func(u *queueUse, at position, e *Extension, r driver.Receipt) {
			visibility := e.Visibility
			if at.called < len(x.called) {
				visibility = x.called[at.called]
			}
			x.granted[at.element] = visibility
			u.extended(r, visibility, e.Progress)
		},
	}
	return x
}

// result returns what was granted, unless the whole call failed.
func (x *extending) result(err error) ([]time.Duration, error) {
	if _, ok := errors.AsType[*driver.BatchError](err); err != nil && !ok {
		return nil, err
	}
	return x.granted, err
}

// DeadLetter dead-letters deliveries, as driver.Queue.DeadLetter does. Like Nack it
// needs a token for nack. Codes per position: ErrReceiptExpired, ErrInvalid (reason), ErrFull; for
// the call: ErrUnsupported (the backend keeps no dead letters).
func (c Caller) DeadLetter(ctx context.Context, queue string, requests []DeadLetterRequest) error {
	return settle(ctx, &c, queue, requests, deadLettering)
}

// deadLettering is how DeadLetter settles.
var deadLettering = &settleCall[DeadLetterRequest, driver.DeadLetterRequest]{
	operation: capability.OpNack,
	op:        "dead-letter",
	receipt:   func(b *DeadLetterRequest) string { return b.Receipt },
	convert: func(_ *queueUse, b *DeadLetterRequest, r driver.Receipt) driver.DeadLetterRequest {
		return driver.DeadLetterRequest{Receipt: r, Reason: b.Reason, Error: text(b.Error), ErrorType: text(b.ErrorType)}
	},
	call: func(ctx context.Context, q *queueUse, bs []driver.DeadLetterRequest) error {
		if err := q.lacksDeadLetters("dead-letter"); err != nil {
			return err
		}
		return q.handle.DeadLetter(ctx, bs)
	},
	start: func(q *queueUse, r *completion.Round, bs []driver.DeadLetterRequest, done completion.Settled) {
		if err := q.lacksDeadLetters("dead-letter"); err != nil {
			done(r, err)
			return
		}
		q.started.StartDeadLetter(r, bs, done)
	},
	done: func(u *queueUse, _ position, b *DeadLetterRequest, r driver.Receipt) {
		if decidedByBackend(b.Reason) {
			u.gone = append(u.gone, endedLease{r, endedFailed}) // observe has traced it
		} else {
			u.ended(r, endedFailed, EventDeadLettered, string(b.Reason))
		}
	},
}

// text makes the error text of a worker valid UTF-8: some wires carry nothing else, and
// every message must be deliverable on each of them.
func text(said string) string { return strings.ToValidUTF8(said, "\ufffd") }

// A settleCall is one way to settle deliveries, such as ack or nack. E is its type in
// the broker, D in the backend.
type settleCall[E, D any] struct {
	operation capability.Operation
	op        string
	receipt   func(*E) string
	convert   func(*queueUse, *E, driver.Receipt) D
	call      func(context.Context, *queueUse, []D) error
	start     func(*queueUse, *completion.Round, []D, completion.Settled) // call, without waiting
	spare     sync.Pool                                                   // of *settling, for start
	// done is called for each position that succeeded.
	done func(*queueUse, position, *E, driver.Receipt)
	// outcome is what metrics call an element; nil means op.
	outcome func(*E) string
}

// A position is the index of an element in the call, and among the elements that went
// to the backend.
type position struct{ element, called int }

// A queueUse is a queue during one operation of a caller.
type queueUse struct {
	*queue
	broker *Broker
	by     holder
	now    time.Time
	gone   []endedLease // those that end with the operation
}

// ended ends the lease of a delivery and traces why.
func (u *queueUse) ended(r driver.Receipt, how leaseEnd, kind EventKind, note string) {
	u.gone = append(u.gone, endedLease{r, how})
	u.broker.traces.note(&u.queueKey, r.Handle, u.by, kind, 0, note, u.now)
}

// extended notes that a lease was extended. progress is the report of its holder, or nil.
func (u *queueUse) extended(r driver.Receipt, visibility time.Duration, progress *driver.Progress) {
	if visibility == 0 {
		u.ended(r, endedOtherwise, EventExtended, "0s")
		return
	}
	u.leases.extend(r.Handle, r, u.broker.now()+visibility, progress)
	u.broker.traces.note(&u.queueKey, r.Handle, u.by, EventExtended, 0, visibility.String(), u.now)
}

// settle authorises, unseals receipts, calls the backend with the positions that are
// allowed, and returns the results at their positions.
func settle[E, D any](ctx context.Context, c *Caller, name string, elements []E, how *settleCall[E, D]) error {
	failed, err := authorizeSettle(ctx, c, name, elements, how)
	if err != nil {
		return err
	}
	q, err := c.use(ctx, how.op, name, false)
	if err != nil {
		return err
	}
	var s settling[E, D]
	defer func() { q.release(c.broker.now()) }()
	if err := s.prepare(c, q, elements, failed, how); err != nil {
		return err
	}
	if err := c.turn(ctx, how.op, name, 1); err != nil {
		return err
	}
	err = how.call(ctx, &s.queueUse, s.good)
	c.done(1)
	return s.finish(err)
}

// authorizeSettle returns the refusals by position, nil if there are none, or an error of the
// whole call. The queue need not exist: an invalid token does not learn whether it does.
func authorizeSettle[E, D any](ctx context.Context, c *Caller, name string, elements []E, how *settleCall[E, D]) (failed []error, err error) {
	whole, err := c.authorizeSettling(ctx, how.operation, name, len(elements))
	if err != nil {
		return nil, err
	}
	if err := c.broker.admit(how.op, name, lastForSettling); err != nil {
		return nil, err
	}
	if !whole {
		var any bool
		if failed, any = authorizeEach(ctx, c, name, elements, how); !any {
			return nil, wholeError(failed)
		}
	}
	return failed, nil
}

// settling is the state of one call that settles deliveries.
type settling[E, D any] struct {
	queueUse
	caller   *Caller
	how      *settleCall[E, D]
	elements []E
	failed   []error          // by position; nil while none has failed
	good     []D              // those that have not failed, for the backend
	receipts []driver.Receipt // of good

	// Of a call that is not waited for.
	done completion.Settled
	then completion.Settled // complete, made once
}

// prepare unseals the receipts.
func (s *settling[E, D]) prepare(c *Caller, q *queue, elements []E, failed []error, how *settleCall[E, D]) error {
	s.caller, s.how, s.elements, s.failed = c, how, elements, failed
	s.queueUse = queueUse{queue: q, broker: c.broker, by: c.holder, now: time.Now(), gone: s.gone[:0]}
	traits := q.traits(c.limits())
	if err := c.checkBatch(how.op, q, &traits, len(elements)); err != nil {
		return err
	}
	s.unseal()
	return nil
}

// finish counts what was settled, and returns the results at their positions. err is that of
// the backend.
func (s *settling[E, D]) finish(err error) error {
	s.caller.used(s.queue, err)
	if batch, ok := errors.AsType[*driver.BatchError](err); err != nil && !ok {
		return localised(err, s.queue)
	} else if ok {
		err = batch
	}
	finish(&s.queueUse, s.elements, s.receipts, s.failed, err, s.how)
	if s.how.operation == capability.OpAck {
		s.broker.metrics.Ack.Observe(time.Since(s.now).Seconds())
	}
	if s.failed == nil {
		return localised(err, s.queue)
	}
	_, err = Spread(nil, err, s.failed)
	return localised(err, s.queue)
}

// authorizeEach authorises each position on its own. It returns the refusals by
// position, nil if there are none, and whether any position is allowed.
func authorizeEach[E, D any](ctx context.Context, c *Caller, name string, elements []E, how *settleCall[E, D]) (failed []error, any bool) {
	backend, err := backendName(c.tenant, name)
	for i := range elements {
		refusal := err
		if err == nil {
			sealed := how.receipt(&elements[i])
			_, by, _ := c.broker.receipts.open(sealed, backend)
			request := c.request(how.operation, name)
			request.Receipt, request.Lease = sealed, verify.Lease{Token: by.token, TakenAt: by.at}
			_, refusal = c.authorizeRequest(ctx, request)
		}
		if refusal == nil {
			any = true
			continue
		}
		failed = driver.FailAt(failed, len(elements), i, refusal)
	}
	return failed, any
}

// unseal sets the elements for the backend and their receipts, for all positions that have not
// failed.
func (s *settling[E, D]) unseal() {
	s.good = slices.Grow(s.good[:0], len(s.elements))
	s.receipts = slices.Grow(s.receipts[:0], len(s.elements))
	for i := range s.elements {
		if s.failed != nil && s.failed[i] != nil {
			continue
		}
		receipt, _, ok := s.broker.receipts.open(s.how.receipt(&s.elements[i]), s.backend)
		if !ok {
			// The backend refuses an empty receipt, after it has checked everything else.
			receipt = driver.Receipt{}
		}
		s.good = append(s.good, s.how.convert(&s.queueUse, &s.elements[i], receipt))
		s.receipts = append(s.receipts, receipt)
	}
}

// finish calls done for the positions that succeeded, and names malformed receipts.
func finish[E, D any](use *queueUse, elements []E, receipts []driver.Receipt, failed []error, err error, how *settleCall[E, D]) {
	next, worked := 0, 0
	for i := range elements {
		if failed != nil && failed[i] != nil {
			continue
		}
		switch failure := driver.At(err, next); {
		case failure == nil:
			if how.outcome == nil {
				worked++
			} else {
				use.settled(how.outcome(&elements[i]), 1)
			}
			how.done(use, position{i, next}, &elements[i], receipts[next])
		case errors.Is(failure, driver.ErrReceiptExpired):
			use.gone = append(use.gone, endedLease{receipts[next], endedExpired})
			if _, _, ok := readReceipt(how.receipt(&elements[i])); !ok {
				setAt(err, next, malformedReceipt(how.op, use.backend))
			}
		}
		next++
	}
	use.leases.remove(use.gone...)
	use.settled(how.op, worked)
}

// settled counts deliveries that were settled in one way.
func (q *queue) settled(how string, n int) {
	q.meter.Settled(how, n)
	switch how {
	case "ack":
		q.flow.acked.Add(uint64(n))
	case "nack", "dead-letter":
		q.flow.failed.Add(uint64(n))
	}
}

// setAt replaces the error of a position.
func setAt(err error, i int, with error) {
	if batch, ok := errors.AsType[*driver.BatchError](err); ok {
		batch.Errs[i] = with
	}
}

// authorizeSettling authorises a whole batch at once if possible. whole is false if
// each position must be authorised on its own: the token is for one receipt, or is not
// valid any more but may have been when the delivery was taken.
func (c *Caller) authorizeSettling(ctx context.Context, operation capability.Operation, queue string, elements int) (whole bool, err error) {
	if c.returns {
		return true, nil
	}
	_, err = c.broker.verifier.Authorize(ctx, c.token, c.request(operation, queue))
	switch capability.ReasonOf(err) {
	case verify.ReasonReceipt, capability.ReasonRevoked, capability.ReasonKeyRetired:
		if elements > 0 {
			return false, nil
		}
	}
	if err != nil {
		c.refused(ctx, c.request(operation, queue), err)
	}
	return err == nil, err
}

// wholeError returns an error of the whole call if the token was refused at every
// position, and the errors by position otherwise.
func wholeError(errs []error) error {
	for _, err := range errs {
		if !errors.Is(err, driver.ErrUnauthenticated) && !errors.Is(err, driver.ErrForbidden) {
			return driver.NewBatchError(errs)
		}
	}
	return errs[0]
}

// backoff returns the delay after a failed attempt: at random, so that messages that
// failed together do not return together.
func (b *Broker) backoff(attempt int) time.Duration {
	limits := b.limits.Load()
	bound := limits.BackoffMax
	if attempt < 30 {
		if grown := limits.BackoffBase << max(attempt, 0); grown > 0 {
			bound = min(bound, grown)
		}
	}
	return rand.N(bound + 1)
}
