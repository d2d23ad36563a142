package drivertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// mortal is a queue whose messages die of a second failed delivery.
var mortal = always(driver.Config{MaxDeliveries: 2})

var deadLetterCases = []testCase{
	{
		id: "DLQ-1", title: "a nack at the delivery limit makes a dead letter",
		config: mortal, needs: []need{needDeadLetters}, run: nackAtLimitKills,
	},
	{
		id: "DLQ-1", title: "a nack with a delay at the delivery limit makes a dead letter at once",
		config: mortal, needs: []need{needDeadLetters}, run: delayedNackAtLimitKills,
	},
	{
		id: "DLQ-1", title: "a lease that runs out at the delivery limit makes a dead letter, by the clock alone",
		config: mortal, needs: []need{needDeadLetters}, run: expiryAtLimitKills,
	},
	{
		id: "DLQ-1", title: "an extend to zero at the delivery limit makes a dead letter",
		config: mortal, needs: []need{needDeadLetters}, run: extendToZeroAtLimitKills,
	},
	{
		id: "DLQ-1", title: "visibility zero at the delivery limit makes a dead letter",
		config: mortal, needs: []need{needDeadLetters}, run: visibilityZeroAtLimitKills,
	},
	{
		id: "DLQ-1", title: "an ack at the delivery limit is an ack",
		config: mortal, needs: []need{needDeadLetters}, run: ackAtLimitIsAnAck,
	},
	{
		id: "DLQ-1", title: "without a limit a message is delivered again and again",
		config: always(driver.Config{}), run: noLimitNoDeath,
	},
	{
		id: "DLQ-1", title: "a message over a limit that was lowered is moved, not delivered",
		config: always(driver.Config{MaxDeliveries: 5}), needs: []need{needDeadLetters}, run: loweredLimitMoves,
	},
	{id: "DLQ-1", title: "a message can be dead-lettered for each reason", needs: []need{needDeadLetters}, run: everyReasonIsKept},
	{id: "DLQ-1", title: "an unknown reason is refused and the message stays in flight", needs: []need{needDeadLetters}, run: unknownReasonIsRefused},
	{id: "DLQ-1", title: "dead-lettering a batch keeps the positions of what failed", needs: []need{needDeadLetters}, run: burialKeepsPositions},
	{id: "DLQ-1", title: "a dead letter is not delivered, and its receipt fails", needs: []need{needDeadLetters}, run: deadIsNotDelivered},
	{
		id: "DLQ-1", title: "the move is one step: nothing is in two places or in none",
		needs: []need{needDeadLetters, needExactStats}, run: moveIsOneStep,
	},

	{id: "DLQ-4", title: "the record of a message that was dead-lettered is complete", needs: []need{needDeadLetters}, run: recordOfBurial},
	{
		id: "DLQ-4", title: "the record of a message that died of a nack is complete",
		config: mortal, needs: []need{needDeadLetters}, run: recordOfNack,
	},
	{
		id: "DLQ-4", title: "the record of a message that died of an expired lease is complete",
		config: mortal, needs: []need{needDeadLetters}, run: recordOfExpiry,
	},
	{id: "DLQ-4", title: "an error that is too long is cut, not refused", needs: []need{needDeadLetters}, run: longBurialErrorIsCut},
}

// bury dead-letters a delivery.
func (s *session) bury(q driver.Queue, d driver.Delivery, reason driver.Reason) {
	s.t.Helper()
	err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: reason}})
	s.ok(err, "dead-letter %q with reason %q", brief(d.Body), reason)
}

// dead lists the dead letters.
func (s *session) dead(q driver.Queue) []driver.DeadLetter {
	s.t.Helper()
	var letters []driver.DeadLetter
	for letter, err := range q.DeadLetters(s.ctx()) {
		s.ok(err, "list dead letters")
		letters = append(letters, letter)
	}
	return letters
}

// onlyDead returns the dead letter, of which there must be one.
func (s *session) onlyDead(q driver.Queue) driver.DeadLetter {
	s.t.Helper()
	letters := s.dead(q)
	if len(letters) != 1 {
		s.failf("got %d dead letters, want 1", len(letters))
	}
	return letters[0]
}

// expectDead checks the dead letters: that they have these bodies, and are
// listed oldest death first. Those that died at the same instant may be listed
// in any order.
func (s *session) expectDead(q driver.Queue, want ...string) []driver.DeadLetter {
	s.t.Helper()
	letters := s.dead(q)
	if !slices.IsSortedFunc(letters, func(a, b driver.DeadLetter) int { return a.DeadAt.Compare(b.DeadAt) }) {
		s.failf("dead letters are not listed oldest death first: %+v", letters)
	}
	slices.SortStableFunc(letters, func(a, b driver.DeadLetter) int {
		return cmp.Or(a.DeadAt.Compare(b.DeadAt), slices.Index(want, string(a.Body))-slices.Index(want, string(b.Body)))
	})
	got := make([]string, len(letters))
	for i, letter := range letters {
		got[i] = brief(letter.Body)
	}
	if !slices.Equal(got, want) {
		s.failf("dead letters: got %q, want %q", got, want)
	}
	return letters
}

// secondDelivery sends a message and returns its second delivery, which is the
// last one in a mortal queue.
func (s *session) secondDelivery(q driver.Queue, body string) driver.Delivery {
	s.t.Helper()
	s.send(q, body)
	s.nack(q, s.expectNext(q, body)[0], 0, "first failure")
	got := s.expectNext(q, body)[0]
	if got.Deliveries != 2 {
		s.failf("delivery after a nack: got Deliveries %d, want 2", got.Deliveries)
	}
	return got
}

func nackAtLimitKills(s *session, q driver.Queue) {
	s.nack(q, s.secondDelivery(q, "a"), 0, "second failure")
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectNothing(q)
	letter := s.expectDead(q, "a")[0]
	if letter.Reason != driver.ReasonMaxDeliveries || letter.LastError != "second failure" {
		s.failf("dead letter: got reason %q, last error %q; want %q and the cause of the last nack",
			letter.Reason, letter.LastError, driver.ReasonMaxDeliveries)
	}
}

func delayedNackAtLimitKills(s *session, q driver.Queue) {
	s.nack(q, s.secondDelivery(q, "a"), s.hold, "second failure")
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectDead(q, "a")
}

func expiryAtLimitKills(s *session, q driver.Queue) {
	last := s.secondDelivery(q, "a")
	start := time.Now()
	s.extend(q, last, s.tick)
	if q.Traits().ExactStats {
		s.expectStatsAt(q, start.Add(s.tick), driver.Stats{Dead: 1}, "the death of a message whose last lease ran out")
	} else {
		s.sleep(s.tick)
	}
	s.expectNothing(q)
	if letter := s.expectDead(q, "a")[0]; letter.Reason != driver.ReasonMaxDeliveries {
		s.failf("dead letter: got reason %q, want %q", letter.Reason, driver.ReasonMaxDeliveries)
	}
}

func extendToZeroAtLimitKills(s *session, q driver.Queue) {
	s.expire(q, s.secondDelivery(q, "a"))
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectNothing(q)
	s.expectDead(q, "a")
}

func visibilityZeroAtLimitKills(s *session, q driver.Queue) {
	s.send(q, "a")
	for delivery := 1; delivery <= 2; delivery++ {
		got := s.receiveOnce(q, driver.ReceiveRequest{Max: 1})
		if len(got) != 1 || got[0].Deliveries != delivery {
			s.failf("receive %d with visibility 0 and a limit of two: got %d messages", delivery, len(got))
		}
	}
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Dead: 1})
}

func ackAtLimitIsAnAck(s *session, q driver.Queue) {
	s.ack(q, s.secondDelivery(q, "a"))
	s.expectEmpty(q)
	s.expectDead(q)
}

func noLimitNoDeath(s *session, q driver.Queue) {
	s.send(q, "a")
	for delivery := 1; delivery <= 12; delivery++ {
		got := s.expectNext(q, "a")[0]
		if got.Deliveries != delivery {
			s.failf("delivery %d: got Deliveries %d", delivery, got.Deliveries)
		}
		if delivery%2 == 0 {
			s.nack(q, got, 0, "")
		} else {
			s.expire(q, got)
		}
	}
	s.expectStats(q, driver.Stats{Ready: 1})
}

func loweredLimitMoves(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	for range 2 {
		s.expire(q, s.expectNext(q, "a")[0])
	}
	s.configure(queueName, driver.Config{MaxDeliveries: 2})
	s.expectNext(q, "b")
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{InFlight: 1, Dead: 1})
	if letter := s.expectDead(q, "a")[0]; letter.Reason != driver.ReasonMaxDeliveries || letter.Deliveries != 2 {
		s.failf("dead letter: got reason %q, %d deliveries; want %q and 2", letter.Reason, letter.Deliveries, driver.ReasonMaxDeliveries)
	}
}

var reasons = []driver.Reason{
	driver.ReasonMaxDeliveries, driver.ReasonFatal, driver.ReasonParse,
	driver.ReasonIntegrity, driver.ReasonExpired, driver.ReasonOperator,
}

func everyReasonIsKept(s *session, q driver.Queue) {
	for _, reason := range reasons {
		s.send(q, string(reason))
		s.bury(q, s.receive(q, 1)[0], reason)
	}
	s.expectStats(q, driver.Stats{Dead: len(reasons)})
	for _, letter := range s.dead(q) {
		if string(letter.Reason) != string(letter.Body) {
			s.failf("dead letter %q: got reason %q", letter.Body, letter.Reason)
		}
	}
}

func unknownReasonIsRefused(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	for _, reason := range []driver.Reason{"", "boredom"} {
		err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: reason}})
		s.expectPositions(err, fmt.Sprintf("dead-letter with reason %q", reason), driver.ErrInvalid)
	}
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.ack(q, held)
}

func burialKeepsPositions(s *session, q driver.Queue) {
	held := s.someExpired(q)
	burials := make([]driver.DeadLetterRequest, len(held))
	for i, d := range held {
		burials[i] = driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal}
	}
	burials[0].Reason = "boredom"
	err := q.DeadLetter(s.ctx(), burials)
	s.expectPositions(err, "dead-letter of five receipts, two of them expired and one with a bad reason",
		driver.ErrInvalid, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine)
	s.expectStats(q, driver.Stats{Ready: 2, InFlight: 1, Dead: 2})
	s.expectDead(q, "c", "e")
}

func deadIsNotDelivered(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.bury(q, held, driver.ReasonFatal)
	s.expectExpired(q, held, "the receipt of a dead letter")
	s.expectNothing(q)
	if s.backend.Virtual {
		s.sleep(30 * 24 * time.Hour) // nothing reprocesses itself
		s.expectNothing(q)
	}
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectDead(q, "a")
}

func moveIsOneStep(s *session, q driver.Queue) {
	const messages = 100
	s.send(q, numbered("m", messages)...)
	held := s.receive(q, messages)
	var watching sync.WaitGroup
	stop, problem := make(chan struct{}), make(chan string, 1)
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := q.Stats(s.ctx())
			if err != nil || got.InFlight+got.Dead != messages || got.Ready+got.Delayed != 0 {
				problem <- fmt.Sprintf("while %d messages in flight are dead-lettered: got %+v, error %v", messages, got, err)
				return
			}
		}
	})
	for _, d := range held {
		s.bury(q, d, driver.ReasonFatal)
	}
	close(stop)
	watching.Wait()
	select {
	case text := <-problem:
		s.failf("%s", text)
	default:
	}
	s.expectStats(q, driver.Stats{Dead: messages})
}

// doomed is a message with everything a record must keep.
func doomed(q driver.Queue) driver.Outgoing {
	msg := driver.Outgoing{
		Body:          []byte("doomed \x00 body"),
		Attributes:    map[string]string{"k": "v", "ü": "✓"},
		ReplyTo:       "replies",
		CorrelationID: "corr",
	}
	if q.Traits().Groups {
		msg.Group = "g"
	}
	return msg
}

// expectRecord checks what the only dead letter says about its life. First is
// its first delivery, and diedAt the time around which it died.
func (s *session) expectRecord(q driver.Queue, sent driver.Outgoing, first driver.Delivery, want driver.DeadLetter, diedAt time.Time) {
	s.t.Helper()
	s.sleep(s.tick) // the record is of the death, not of the reading
	letter := s.onlyDead(q)
	s.expectMessage(letter.Message, sent, first.ID, want.Deliveries)
	if letter.Reason != want.Reason || letter.LastError != want.LastError || letter.ErrorType != want.ErrorType ||
		letter.Source != queueName || letter.Redrives != want.Redrives {
		s.failf("dead letter: got reason %q, error %q, type %q, source %q, %d redrives; want %q, %q, %q, %q, %d",
			letter.Reason, letter.LastError, letter.ErrorType, letter.Source, letter.Redrives,
			want.Reason, want.LastError, want.ErrorType, queueName, want.Redrives)
	}
	if !letter.EnqueuedAt.Equal(first.EnqueuedAt) || !letter.FirstReceivedAt.Equal(first.FirstReceivedAt) {
		s.failf("dead letter: got enqueued %v, first received %v; the first delivery said %v and %v",
			letter.EnqueuedAt, letter.FirstReceivedAt, first.EnqueuedAt, first.FirstReceivedAt)
	}
	tolerance := 2 * time.Minute // between two machines' clocks
	if s.backend.Virtual {
		tolerance = promptness
	}
	if off := letter.DeadAt.Sub(diedAt).Abs(); off > tolerance {
		s.failf("dead letter: got DeadAt %v, %v off", letter.DeadAt, off)
	}
	if _, offset := letter.DeadAt.Zone(); offset != 0 {
		s.failf("times are UTC: got DeadAt %v", letter.DeadAt)
	}
}

func recordOfBurial(s *session, q driver.Queue) {
	msg := doomed(q)
	s.sendOne(q, msg)
	first := s.receive(q, 1)[0]
	s.nack(q, first, 0, "first failure")
	s.sleep(s.tick)
	err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{
		Receipt: s.receive(q, 1)[0].Receipt, Reason: driver.ReasonParse,
		Error: "unexpected end of JSON input", ErrorType: "*json.SyntaxError",
	}})
	s.ok(err, "dead-letter")
	want := driver.DeadLetter{Reason: driver.ReasonParse, ErrorType: "*json.SyntaxError"}
	want.Deliveries, want.LastError = 2, "unexpected end of JSON input"
	s.expectRecord(q, msg, first, want, time.Now())
}

func recordOfNack(s *session, q driver.Queue) {
	msg := doomed(q)
	s.sendOne(q, msg)
	first := s.receive(q, 1)[0]
	s.nack(q, first, 0, "first failure")
	s.sleep(s.tick)
	s.nack(q, s.receive(q, 1)[0], 0, "second failure")
	want := driver.DeadLetter{Reason: driver.ReasonMaxDeliveries}
	want.Deliveries, want.LastError = 2, "second failure"
	s.expectRecord(q, msg, first, want, time.Now())
}

func recordOfExpiry(s *session, q driver.Queue) {
	msg := doomed(q)
	s.sendOne(q, msg)
	first := s.receive(q, 1)[0]
	s.nack(q, first, 0, "the only failure with a cause")
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	died := time.Now()
	s.expectNothing(q)
	want := driver.DeadLetter{Reason: driver.ReasonMaxDeliveries}
	want.Deliveries, want.LastError = 2, "the only failure with a cause"
	s.expectRecord(q, msg, first, want, died)
}

func longBurialErrorIsCut(s *session, q driver.Queue) {
	s.send(q, "a")
	text := strings.Repeat("漢", driver.MaxCauseBytes)
	err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: s.receive(q, 1)[0].Receipt, Reason: driver.ReasonFatal, Error: text}})
	s.ok(err, "dead-letter with an error of %d bytes", len(text))
	if got := s.onlyDead(q).LastError; got != driver.TrimCause(text) {
		s.failf("dead letter with an error of %d bytes: got %d bytes, want its first %d", len(text), len(got), driver.MaxCauseBytes)
	}
}
