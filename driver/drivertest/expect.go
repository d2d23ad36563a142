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

// failf ends the case, saying which rule is broken. Only the goroutine of the
// case may call it, and the functions below.
func (s *session) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s", s.rule, fmt.Sprintf(format, args...))
}

// ok checks that something worked.
func (s *session) ok(err error, what string, args ...any) {
	s.t.Helper()
	if err != nil {
		s.failf("%s: got %v, want no error", fmt.Sprintf(what, args...), err)
	}
}

// expectCode checks that err has a code, and that it is an *Error or a batch
// of one.
func (s *session) expectCode(err error, want driver.Code, what string, args ...any) {
	s.t.Helper()
	what = fmt.Sprintf(what, args...)
	if err == nil {
		s.failf("%s: got nil, want %s", what, codeName(want))
	}
	if !errors.Is(err, want) {
		s.failf("%s: got %q, want %s", what, err, codeName(want))
	}
	if _, ok := errors.AsType[*driver.Error](err); !ok {
		s.failf("%s: got %s as a bare %T, want a *driver.Error", what, codeName(want), err)
	}
}

// fine is the code of a position that worked.
const fine driver.Code = ""

// expectPositions checks a batch's error position by position.
func (s *session) expectPositions(err error, what string, want ...driver.Code) {
	s.t.Helper()
	batch, ok := errors.AsType[*driver.BatchError](err)
	if !ok {
		s.failf("%s: got %v (%T), want a *driver.BatchError", what, err, err)
	}
	if len(batch.Errs) != len(want) {
		s.failf("%s: the batch error has %d positions, want %d", what, len(batch.Errs), len(want))
	}
	for i, code := range want {
		at := fmt.Sprintf("%s: position %d", what, i)
		if code == fine {
			s.ok(batch.Errs[i], "%s", at)
		} else {
			s.expectCode(batch.Errs[i], code, "%s", at)
		}
	}
}

// expectInvalid checks an error about bad input: its code, that it names the
// field, and that it tells the limit.
func (s *session) expectInvalid(err error, code driver.Code, limit, what string) {
	s.t.Helper()
	s.expectCode(err, code, "%s", what)
	detail, _ := errors.AsType[*driver.Error](err)
	if detail.Field == "" {
		s.failf("%s: the error does not say which field is wrong: %v", what, err)
	}
	if !strings.Contains(err.Error(), limit) {
		s.failf("%s: the error does not name the limit %q: %v", what, limit, err)
	}
}

// expectClosed checks the error of a call on something closed: it concerns the
// whole call, not its positions.
func (s *session) expectClosed(err error, what string) {
	s.t.Helper()
	s.expectCode(err, driver.ErrClosed, "%s", what)
	if _, ok := errors.AsType[*driver.BatchError](err); ok {
		s.failf("%s: got ErrClosed as a *driver.BatchError, want a plain *driver.Error", what)
	}
}

// expectFull checks an ErrFull, and that it hints when to try again.
func (s *session) expectFull(err error, what string) {
	s.t.Helper()
	s.expectCode(err, driver.ErrFull, "%s", what)
	if driver.RetryAfter(err) <= 0 {
		s.failf("%s: ErrFull has no RetryAfter: %v", what, err)
	}
}

// expectExpired checks that a receipt is worth nothing to ack, nack, extend
// and, where the queue has it, DeadLetter.
func (s *session) expectExpired(q driver.Queue, d driver.Delivery, which string) {
	s.t.Helper()
	s.expectCode(tryAck(s, q, d), driver.ErrReceiptExpired, "ack with %s", which)
	s.expectCode(tryNack(s, q, d, 0, "stale"), driver.ErrReceiptExpired, "nack with %s", which)
	s.expectCode(tryExtend(s, q, d, s.hold), driver.ErrReceiptExpired, "extend with %s", which)
	if q.Traits().DeadLetters {
		err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
		s.expectCode(err, driver.ErrReceiptExpired, "dead-letter with %s", which)
	}
}

// expectNext receives the messages with these bodies, which must be next in
// this order. In a queue without order they may come in any, and are returned
// in this one.
func (s *session) expectNext(q driver.Queue, want ...string) []driver.Delivery {
	s.t.Helper()
	return s.expectBodies(q, s.receive(q, len(want)), want...)
}

// expectArrival waits for messages that must come when due, not before, and
// then at once.
func (s *session) expectArrival(q driver.Queue, due time.Time, want ...string) []driver.Delivery {
	s.t.Helper()
	got := s.take(q, len(want), s.hold, due.Add(s.patience))
	now := time.Now()
	got = s.expectBodies(q, got, want...)
	s.expectTime(now, due, fmt.Sprintf("delivery of %q", want))
	return got
}

// expectArrivals waits for messages that are due each at its own time.
func (s *session) expectArrivals(q driver.Queue, due map[string]time.Time) {
	s.t.Helper()
	latest := slices.MaxFunc(slices.Collect(maps.Values(due)), time.Time.Compare)
	seen := make(map[string]bool)
	for range due {
		got := s.take(q, 1, s.hold, latest.Add(s.patience))
		now := time.Now()
		if len(got) == 0 {
			s.failf("receive: got only %d messages of %d", len(seen), len(due))
		}
		body := string(got[0].Body)
		at, known := due[body]
		if !known || seen[body] {
			s.failf("receive: got %q, which is unknown or came before", body)
		}
		seen[body] = true
		s.expectTime(now, at, fmt.Sprintf("delivery of %q", body))
	}
}

// expectTime checks that something happened when due: never before, and in
// virtual time no later than promptness.
func (s *session) expectTime(at, due time.Time, what string) {
	s.t.Helper()
	if early := due.Sub(at); early > s.slack {
		s.failf("%s: %v too early", what, early)
	}
	if late := at.Sub(due); s.backend.Virtual && late > promptness {
		s.failf("%s: %v too late, at most %v are allowed", what, late, promptness)
	}
}

// expectBodies checks deliveries, and returns them in the order of want.
func (s *session) expectBodies(q driver.Queue, got []driver.Delivery, want ...string) []driver.Delivery {
	s.t.Helper()
	if q.Traits().Ordering == driver.OrderingNone {
		got = slices.SortedStableFunc(slices.Values(got), func(a, b driver.Delivery) int {
			return slices.Index(want, string(a.Body)) - slices.Index(want, string(b.Body))
		})
	}
	if texts := bodies(got); !slices.Equal(texts, want) {
		s.failf("receive: got %q, want %q", texts, want)
	}
	return got
}

// expectNothing checks that no message can be received now.
func (s *session) expectNothing(q driver.Queue) {
	s.t.Helper()
	if got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold}); len(got) > 0 {
		s.failf("receive: got %q, want nothing", bodies(got))
	}
}

// expectStats checks the counts of a queue that counts exactly.
func (s *session) expectStats(q driver.Queue, want driver.Stats) {
	s.t.Helper()
	got, err := q.Stats(s.ctx())
	s.ok(err, "stats")
	if q.Traits().ExactStats && got != want {
		s.failf("stats: got %+v, want %+v", got, want)
	}
}

// expectStatsAt waits for counts that must come true when due, by the clock
// alone, and not before.
func (s *session) expectStatsAt(q driver.Queue, due time.Time, want driver.Stats, what string) {
	s.t.Helper()
	for {
		got, err := q.Stats(s.ctx())
		now := time.Now()
		s.ok(err, "stats")
		if got == want {
			s.expectTime(now, due, what)
			return
		}
		if now.After(due.Add(s.patience)) {
			s.failf("%s: got %+v, want %+v", what, got, want)
		}
		s.nap(due)
	}
}

// expectEmpty checks that the queue holds nothing, dead letters included.
func (s *session) expectEmpty(q driver.Queue) {
	s.t.Helper()
	s.expectStats(q, driver.Stats{})
	s.expectNothing(q)
}

// expectPrompt checks that no time worth speaking of has passed since start.
func (s *session) expectPrompt(start time.Time, what string) {
	s.t.Helper()
	allowed := s.patience
	if s.backend.Virtual {
		allowed = promptness
	}
	if took := time.Since(start); took > allowed {
		s.failf("%s: took %v, want at most %v", what, took, allowed)
	}
}

// expectHandedTo checks that a background receive ends now, with one message.
func (s *session) expectHandedTo(waiting <-chan outcome, want, why string) driver.Delivery {
	s.t.Helper()
	return s.expectHanded(s.await(waiting, why), want, why)
}

// expectHanded checks that a background receive ended with one message.
func (s *session) expectHanded(got outcome, want, why string) driver.Delivery {
	s.t.Helper()
	s.ok(got.err, "%s: the waiting receive", why)
	if texts := bodies(got.deliveries); !slices.Equal(texts, []string{want}) {
		s.failf("%s: the waiting receiver got %q, want %q", why, texts, want)
	}
	return got.deliveries[0]
}

// sequenceError is the error that ended a sequence, if one did.
func sequenceError[T any](sequence iter.Seq2[T, error]) error {
	for _, err := range sequence {
		if err != nil {
			return err
		}
	}
	return nil
}

// codeName is the name of a code's constant, as a reader would look for it.
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
