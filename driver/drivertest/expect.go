package drivertest

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// failf ends the case and names the broken rule. Only the goroutine of the case may call it,
// and the functions below.
func (e *env) failf(format string, args ...any) {
	e.t.Helper()
	failure := fmt.Sprintf("%s: %s", e.rule, fmt.Sprintf(format, args...))
	if e.mayBeSlow() {
		e.repeat(fmt.Sprintf("%s, but the case lost %v", failure, e.lost()))
	}
	e.t.Fatal(failure)
}

// ok checks that err is nil.
func (e *env) ok(err error, what string, args ...any) {
	e.t.Helper()
	if err != nil {
		e.failf("%s: got %v, want no error", fmt.Sprintf(what, args...), err)
	}
}

// expectCode checks that err has a code, and is an *Error or a batch of one.
func (e *env) expectCode(err error, want driver.Code, what string, args ...any) {
	e.t.Helper()
	what = fmt.Sprintf(what, args...)
	if err == nil {
		e.failf("%s: got nil, want %s", what, codeName(want))
	}
	if !errors.Is(err, want) {
		e.failf("%s: got %q, want %s", what, err, codeName(want))
	}
	if _, ok := errors.AsType[*driver.Error](err); !ok {
		e.failf("%s: got %s as a bare %T, want a *driver.Error", what, codeName(want), err)
	}
}

// fine is the code of a position that succeeded.
const fine driver.Code = ""

// expectPositions checks the error of a batch position by position.
func (e *env) expectPositions(err error, what string, want ...driver.Code) {
	e.t.Helper()
	batch, ok := errors.AsType[*driver.BatchError](err)
	if !ok {
		e.failf("%s: got %v (%T), want a *driver.BatchError", what, err, err)
	}
	if len(batch.Errs) != len(want) {
		e.failf("%s: the batch error has %d positions, want %d", what, len(batch.Errs), len(want))
	}
	for i, code := range want {
		at := fmt.Sprintf("%s: position %d", what, i)
		if code == fine {
			e.ok(batch.Errs[i], "%s", at)
		} else {
			e.expectCode(batch.Errs[i], code, "%s", at)
		}
	}
}

// expectInvalid checks an error about bad input: its code, the field it names, and the limit.
func (e *env) expectInvalid(err error, code driver.Code, limit, what string) {
	e.t.Helper()
	e.expectCode(err, code, "%s", what)
	detail, _ := errors.AsType[*driver.Error](err)
	if detail.Field == "" {
		e.failf("%s: the error does not name the field: %v", what, err)
	}
	if !strings.Contains(err.Error(), limit) {
		e.failf("%s: the error does not name the limit %q: %v", what, limit, err)
	}
}

// expectClosed checks the error of a call on something closed: it concerns the whole call, not
// its positions.
func (e *env) expectClosed(err error, what string) {
	e.t.Helper()
	e.expectCode(err, driver.ErrClosed, "%s", what)
	if _, ok := errors.AsType[*driver.BatchError](err); ok {
		e.failf("%s: got ErrClosed as a *driver.BatchError, want a plain *driver.Error", what)
	}
}

// expectFull checks that err is ErrFull with a RetryAfter.
func (e *env) expectFull(err error, what string) {
	e.t.Helper()
	e.expectCode(err, driver.ErrFull, "%s", what)
	if driver.RetryAfter(err) <= 0 {
		e.failf("%s: ErrFull has no RetryAfter: %v", what, err)
	}
}

// expectExpired checks that a receipt fails in ack, nack, extend and, if the queue supports it,
// DeadLetter.
func (e *env) expectExpired(q driver.Queue, d driver.Delivery, which string) {
	e.t.Helper()
	e.expectCode(tryAck(e, q, d), driver.ErrReceiptExpired, "ack with %s", which)
	e.expectCode(tryNack(e, q, d, 0, "stale"), driver.ErrReceiptExpired, "nack with %s", which)
	e.expectCode(tryExtend(e, q, d, e.hold), driver.ErrReceiptExpired, "extend with %s", which)
	if q.Traits().DeadLetters {
		err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
		e.expectCode(err, driver.ErrReceiptExpired, "dead-letter with %s", which)
	}
}

// expectNext receives the messages with these bodies, which must be next in this order. In a
// queue without order they may come in any order; they are returned in this one.
func (e *env) expectNext(q driver.Queue, want ...string) []driver.Delivery {
	e.t.Helper()
	return e.expectBodies(q, e.receive(q, len(want)), want...)
}

// expectArrival waits for messages that must come when due, not before, and then at once.
func (e *env) expectArrival(q driver.Queue, due time.Time, want ...string) []driver.Delivery {
	e.t.Helper()
	got := e.take(q, len(want), e.hold, due)
	now := time.Now()
	got = e.expectBodies(q, got, want...)
	e.expectTime(now, due, fmt.Sprintf("delivery of %q", want))
	return got
}

// expectArrivals waits for messages that each have their own due time.
func (e *env) expectArrivals(q driver.Queue, due map[string]time.Time) {
	e.t.Helper()
	latest := slices.MaxFunc(slices.Collect(maps.Values(due)), time.Time.Compare)
	seen := make(map[string]bool)
	for range due {
		got := e.take(q, 1, e.hold, latest)
		now := time.Now()
		if len(got) == 0 {
			e.failf("receive: got only %d messages of %d", len(seen), len(due))
		}
		body := string(got[0].Body)
		at, known := due[body]
		if !known || seen[body] {
			e.failf("receive: got %q, which is unknown or came before", body)
		}
		seen[body] = true
		e.expectTime(now, at, fmt.Sprintf("delivery of %q", body))
	}
}

// expectTime checks that something happened when due: never before, and in
// virtual time no later than promptness.
func (e *env) expectTime(at, due time.Time, what string) {
	e.t.Helper()
	if early := due.Sub(at); early > e.slack {
		e.failf("%s: %v too early", what, early)
	}
	if late := at.Sub(due); e.backend.Virtual && late > promptness {
		e.failf("%s: %v too late, at most %v are allowed", what, late, promptness)
	}
}

// expectWallTime checks a time that the backend recorded: it is in UTC, and close to want. The wall
// clocks of two machines may be two minutes apart.
func (e *env) expectWallTime(got, want time.Time, what string) {
	e.t.Helper()
	tolerance := 2 * time.Minute
	if e.backend.Virtual {
		tolerance = promptness
	}
	if off := got.Sub(want).Abs(); off > tolerance || !isUTC(got) {
		e.failf("%s: got %v, %v off, or not in UTC", what, got, off)
	}
}

// expectBodies checks deliveries, and returns them in the order of want.
func (e *env) expectBodies(q driver.Queue, got []driver.Delivery, want ...string) []driver.Delivery {
	e.t.Helper()
	if q.Traits().Ordering == driver.OrderingNone {
		got = slices.SortedStableFunc(slices.Values(got), func(a, b driver.Delivery) int {
			return slices.Index(want, string(a.Body)) - slices.Index(want, string(b.Body))
		})
	}
	if texts := bodies(got); !slices.Equal(texts, want) {
		e.failf("receive: got %q, want %q", texts, want)
	}
	return got
}

// expectNothing checks that no message can be received now.
func (e *env) expectNothing(q driver.Queue) {
	e.t.Helper()
	if got := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: e.hold}); len(got) > 0 {
		e.failf("receive: got %q, want nothing", bodies(got))
	}
}

// expectStats checks the counts of a queue that counts exactly.
func (e *env) expectStats(q driver.Queue, want driver.Stats) {
	e.t.Helper()
	got, err := q.Stats(e.ctx())
	e.ok(err, "stats")
	if q.Traits().ExactStats && got != want {
		e.failf("stats: got %+v, want %+v", got, want)
	}
}

// expectEmpty checks that the queue holds nothing, dead letters included.
func (e *env) expectEmpty(q driver.Queue) {
	e.t.Helper()
	e.expectStats(q, driver.Stats{})
	e.expectNothing(q)
}

// expectPrompt checks that no noticeable time has passed since start.
func (e *env) expectPrompt(start time.Time, what string) {
	e.t.Helper()
	allowed := e.patience
	if e.backend.Virtual {
		allowed = promptness
	}
	if took := time.Since(start); took > allowed {
		e.failf("%s: took %v, want at most %v", what, took, allowed)
	}
}

// expectHandedTo checks that a background receive ends now, with one message.
func (e *env) expectHandedTo(waiting <-chan outcome, want, why string) driver.Delivery {
	e.t.Helper()
	return e.expectHanded(e.await(waiting, why), want, why)
}

// expectHanded checks that a background receive ended with one message.
func (e *env) expectHanded(got outcome, want, why string) driver.Delivery {
	e.t.Helper()
	e.ok(got.err, "%s: the waiting receive", why)
	if texts := bodies(got.deliveries); !slices.Equal(texts, []string{want}) {
		e.failf("%s: the waiting receiver got %q, want %q", why, texts, want)
	}
	return got.deliveries[0]
}

// sequenceError returns the error that ended a sequence, if any.
func sequenceError[T any](sequence iter.Seq2[T, error]) error {
	for _, err := range sequence {
		if err != nil {
			return err
		}
	}
	return nil
}

// codeName returns the name of a code's constant.
func codeName(code driver.Code) string {
	switch code {
	case driver.ErrInvalid:
		return "ErrInvalid"
	case driver.ErrTooLarge:
		return "ErrTooLarge"
	case driver.ErrFull:
		return "ErrFull"
	case driver.ErrConflict:
		return "ErrConflict"
	case driver.ErrReceiptExpired:
		return "ErrReceiptExpired"
	case driver.ErrNotFound:
		return "ErrNotFound"
	case driver.ErrUnsupported:
		return "ErrUnsupported"
	case driver.ErrClosed:
		return "ErrClosed"
	}
	return fmt.Sprintf("code %q", string(code))
}
