package redisrules_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

func deadLetterRules() []rule {
	return []rule{
		{"DLQ-1", []ruleCase{
			{"a message that kills its workers becomes a dead letter", killsWorkers},
			{"and so does one that fails as often", failsTooOften},
		}},
		{"DLQ-2", []ruleCase{
			{"the last delivery is the policy's", policyCounts},
			{"always means at once, and never beats it", policyLists},
		}},
		{"DLQ-3", []ruleCase{
			{"dead letter, reply, ack, in this order", deadLetterReplyAck},
			{"a dead letter that cannot be written is a nack, and no reply", deadLetterFails},
			{"a crash after the dead letter was written makes no second one", func(s *env) { crashAfter(s, "dead letter") }},
			{"a crash after the reply loses nothing", func(s *env) { crashAfter(s, "reply") }},
		}},
		{"DLQ-4", []ruleCase{
			{"that the backend keeps", func(s *env) { deadLetterHasDetails(s, &policy{MaxDeliveries: 2}) }},
			{"that is in a mailbox", func(s *env) { deadLetterHasDetails(s, &policy{MaxDeliveries: 2, Mailbox: s.openDeadLetters("dead")}) }},
		}},
		{"DLQ-5", []ruleCase{
			{"dead letters that the backend keeps wait for a person", func(s *env) { deadLettersWait(s, nil) }},
			{"dead letters in a queue wait for a person", func(s *env) { deadLettersWait(s, s.openDeadLetters("dead")) }},
		}},
		{"DLQ-6", []ruleCase{{"failures wait as long as the backoff says, and no longer than its ceiling", backoffIsKept}}},
		{"DLQ-7", []ruleCase{
			{"without a policy a failed request is answered and acked", failureIsAnswered},
			{"with a policy only the last failure is answered", lastFailureIsAnswered},
		}},
		{"DLQ-8", []ruleCase{{"dead letters go to another queue, and come back", deadLettersAreForwarded}}},
		{"DLQ-9", []ruleCase{{"dead letters move back to their sources, to a worker that can do it", deadMessagesMoveToSources}}},
	}
}

// deadLetterNext dead-letters the next message.
func (s *env) deadLetterNext(m *box, in *deadletter.Queue[string]) {
	s.Helper()
	got, err := m.Receive(s.Context())
	s.Must(err)
	if len(got) != 1 {
		s.Fatal("the queue has no message to dead-letter")
	}
	_, err = in.DeadLetter(s.Context(), got[0], mailbox.ReasonFatal, errMilk)
	s.Must(err)
}

// deadLetterAll sends bodies and dead-letters them.
func (s *env) deadLetterAll(m *box, in *deadletter.Queue[string], bodies ...string) {
	s.Helper()
	for _, body := range bodies {
		s.send(m, body)
		s.deadLetterNext(m, in)
	}
}

func killsWorkers(s *env) {
	s.Configure("orders", driver.Config{MaxDeliveries: 2})
	orders := s.open("orders")
	s.send(orders, "bomb")
	for range 2 {
		ctx, cancel := context.WithCancel(s.Context())
		var held driver.Receipt
		s.Must(worker.New(orders, func(_ context.Context, m *message) error {
			held = m.Receipt
			s.Faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable}) // later calls of the dead process have no effect
			cancel()
			return nil
		}, s.options(options{Drain: -1})).Run(ctx))
		s.Faults.Clear()
		s.Must(s.Faults.Expire(s.Context(), orders.Name(), held))
	}
	s.expectStats(orders, mailbox.Stats{Dead: 1})
	got := s.listDead(deadletter.NewQueue(orders, nil))
	if len(got) != 1 || got[0].Reason != mailbox.ReasonMaxDeliveries || got[0].Deliveries != 2 {
		s.Errorf("the dead letters are %+v", got)
	}
}

func failsTooOften(s *env) {
	s.Configure("orders", driver.Config{MaxDeliveries: 2})
	orders, tried := s.open("orders"), ruletest.NewRecorder()
	s.send(orders, "tea")
	s.run(worker.New(orders, fails(errMilk, tried), s.options(options{})))
	s.expectStats(orders, mailbox.Stats{Dead: 1})
	ruletest.Equal(s, "deliveries", tried.Count(), 2)
}

func policyCounts(s *env) {
	orders, tried := s.open("orders"), ruletest.NewRecorder()
	s.send(orders, "tea")
	s.run(worker.New(orders, fails(errMilk, tried), s.options(options{DeadLetters: &policy{}})))
	s.expectStats(orders, mailbox.Stats{Dead: 1})
	ruletest.Equal(s, "deliveries", tried.Count(), 5)
}

func policyLists(s *env) {
	milk := []deadletter.Matcher{deadletter.Is(errMilk)}
	orders, tried := s.open("orders"), ruletest.NewRecorder()
	s.send(orders, "tea")
	s.run(worker.New(orders, fails(fmt.Errorf("brewing: %w", errMilk), tried), s.options(options{DeadLetters: &policy{Always: milk}})))
	s.expectStats(orders, mailbox.Stats{Dead: 1})
	ruletest.Equal(s, "deliveries", tried.Count(), 1)

	s.Configure("others", driver.Config{MaxDeliveries: driver.Off})
	others, patient := s.open("others"), ruletest.NewRecorder()
	s.send(others, "tea")
	s.run(worker.New(others, fails(errMilk, patient), s.options(options{DeadLetters: &policy{Never: milk, Always: milk, MaxDeliveries: 1}})))
	s.Eventually("it to be tried again and again", func() bool { return patient.Count() > 2*5 })
}

func deadLetterReplyAck(s *env) {
	steps := ruletest.NewRecorder()
	requests := s.openTraced("requests", mailbox.Hooks{
		Replied: func(context.Context, mailbox.RepliedEvent) { steps.Add("reply") },
		Settled: func(_ context.Context, event mailbox.SettledEvent) { steps.Add(string(event.Outcome)) },
	})
	dead := open(s, "dead", deadletter.Codec[string](nil), mailbox.Hooks{
		Sent: func(context.Context, mailbox.SentEvent) { steps.Add("dead letter") },
	})
	future := s.ask(requests, "tea")
	s.run(worker.New(requests, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: &policy{MaxDeliveries: 1, Mailbox: dead}})))
	if _, err := future.Wait(s.Context()); err == nil {
		s.Error("the request has an answer without an error")
	}
	s.expectCount(steps, 3)
	if got := steps.List(); !slices.Equal(got, []string{"dead letter", "reply", "ack"}) {
		s.Errorf("the steps were %v", got)
	}
	s.expectStats(requests, mailbox.Stats{})
}

func deadLetterFails(s *env) {
	requests, dead := s.open("requests"), s.openDeadLetters("dead")
	future := s.ask(requests, "tea")
	remove := s.Faults.Add(mailboxtest.Fault{Op: "send", Queue: "dead", Err: mailbox.ErrFull})
	tried := ruletest.NewRecorder()
	s.run(worker.New(requests, fails(errMilk, tried), s.options(options{DeadLetters: &policy{MaxDeliveries: 1, Mailbox: dead}})))
	s.Eventually("it to be given back", func() bool { return tried.Count() > 2 })
	if _, ready, err := future.Poll(s.Context()); ready || err != nil {
		s.Errorf("the request is answered, with %v", err)
	}
	remove()
	if _, err := future.Wait(s.Context()); err == nil {
		s.Error("the request has an answer without an error")
	}
	s.expectStats(requests, mailbox.Stats{})
	s.expectStats(dead, mailbox.Stats{Ready: 1})
}

// crashAfter runs a worker that dies after a step of dead-lettering, and another one
// later. In the end there is one dead letter, one answer and no request.
func crashAfter(s *env, step string) {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var once sync.Once
	did := func(what string, err error) {
		if what == step && err == nil {
			once.Do(func() {
				s.Faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable}) // later calls of the dead process have no effect
				cancel()
			})
		}
	}
	requests := s.openTraced("requests", mailbox.Hooks{
		Replied: func(_ context.Context, event mailbox.RepliedEvent) { did("reply", event.Err) },
	})
	p := &policy{MaxDeliveries: 1, Mailbox: open(s, "dead", deadletter.Codec[string](nil), mailbox.Hooks{
		Sent: func(_ context.Context, event mailbox.SentEvent) { did("dead letter", event.Err) },
	})}
	future := s.ask(requests, "tea")
	dying := s.options(options{DeadLetters: p, Visibility: 4 * short, Drain: -1})
	s.Must(worker.New(requests, fails(errMilk, ruletest.NewRecorder()), dying).Run(ctx))
	s.Faults.Clear()
	if _, _, answer := future.Poll(s.Context()); (answer != nil) != (step == "reply") {
		s.Errorf("after the crash, the answer is %v", answer)
	}

	s.run(worker.New(requests, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: p})))
	if _, err := future.Wait(s.Context()); err == nil {
		s.Error("the request has an answer without an error")
	}
	s.expectStats(requests, mailbox.Stats{})
	s.expectStats(p.Mailbox, mailbox.Stats{Ready: 1})
}

func deadLetterHasDetails(s *env, p *policy) {
	orders := s.open("orders")
	before := time.Now().Add(-time.Minute) // the server's clock may differ
	sent, err := orders.Send(s.Context(), "tea", mailbox.WithReplyTo("answers"), mailbox.WithCorrelationID("c-7"), mailbox.WithAttribute("colour", "green"))
	s.Must(err)
	tried := ruletest.NewRecorder()
	s.run(worker.New(orders, fails(errMilk, tried), s.options(options{DeadLetters: p})))
	dead := p.Queue(orders)
	s.Eventually("it to die", func() bool { return len(s.listDead(dead)) == 1 })
	got := s.listDead(dead)[0]
	if got.MessageID != sent.ID || got.Body != "tea" || got.Source != "orders" || got.Reason != mailbox.ReasonMaxDeliveries || got.Deliveries != 2 ||
		got.LastError != "no milk" || got.ErrorType != "*errors.errorString" || got.ReplyTo != "answers" || got.CorrelationID != "c-7" || got.Attributes["colour"] != "green" {
		s.Errorf("the dead letter is %+v", got)
	}
	if got.EnqueuedAt.Before(before) || got.FirstReceivedAt.Before(got.EnqueuedAt) || got.DeadAt.Before(got.FirstReceivedAt) {
		s.Errorf("the times are %v, %v and %v", got.EnqueuedAt, got.FirstReceivedAt, got.DeadAt)
	}
}

func deadLettersWait(s *env, in *mailbox.Mailbox[deadLetter]) {
	orders := s.open("orders")
	dead := deadletter.NewQueue(orders, in)
	s.deadLetterAll(orders, dead, "a", "b", "c", "d")
	var bodies []string
	ids := map[string]string{}
	for _, l := range s.listDead(dead) {
		bodies = append(bodies, l.Body)
		ids[l.Body] = l.MessageID
	}
	if !slices.Equal(bodies, []string{"a", "b", "c", "d"}) {
		s.Errorf("the dead letters are %v", bodies)
	}
	moved, err := dead.Redrive(s.Context(), deadletter.Filter[string]{IDs: []string{ids["c"]}}, nil)
	s.Must(err)
	ruletest.Equal(s, "moved by id", moved.Moved, 1)
	moved, err = dead.Redrive(s.Context(), deadletter.Filter[string]{Match: func(l deadLetter) bool { return l.Body != "a" }, Limit: 1}, nil)
	s.Must(err)
	ruletest.Equal(s, "moved by a predicate, with a limit", moved.Moved, 1)
	removed, err := dead.Discard(s.Context(), deadletter.Filter[string]{IDs: []string{ids["d"]}})
	s.Must(err)
	ruletest.Equal(s, "discarded", removed, 1)
	depth, err := dead.Depth(s.Context())
	s.Must(err)
	ruletest.Equal(s, "dead letters left", depth, 1)
	got, err := orders.Receive(s.Context(), mailbox.WithMax(4))
	s.Must(err)
	if len(got) != 2 || got[0].Body != "c" || got[1].Body != "b" || got[0].Deliveries != 1 {
		s.Errorf("back in the queue are %v", got)
	}
}

func backoffIsKept(s *env) {
	orders, tried := s.open("orders"), ruletest.NewRecorder()
	s.send(orders, "tea")
	const step, ceiling = 100 * time.Millisecond, 150 * time.Millisecond
	s.run(worker.New(orders, fails(errMilk, tried), s.options(options{Backoff: worker.LinearBackoff(step, ceiling)})))
	s.Eventually("four attempts", func() bool { return tried.Count() >= 4 })
	when := tried.When()
	for i, least := range []time.Duration{step, ceiling, ceiling} {
		if waited := when[i+1] - when[i]; waited < least || waited > least+20*time.Second {
			s.Errorf("after delivery %d it waited %v, want %v", i+1, waited, least)
		}
	}
}

func failureIsAnswered(s *env) {
	requests, tried := s.open("requests"), ruletest.NewRecorder()
	future := s.ask(requests, "tea")
	s.run(worker.New(requests, fails(errMilk, tried), s.options(options{})))
	if _, err := future.Wait(s.Context()); err == nil {
		s.Error("the request has an answer without an error")
	}
	s.expectStats(requests, mailbox.Stats{})
	ruletest.Equal(s, "times it was tried", tried.Count(), 1)
}

func lastFailureIsAnswered(s *env) {
	answers, tried := ruletest.NewRecorder(), ruletest.NewRecorder()
	requests := s.openTraced("requests", mailbox.Hooks{
		Replied: func(context.Context, mailbox.RepliedEvent) { answers.Add(fmt.Sprint(tried.Count())) },
	})
	future := s.ask(requests, "tea")
	s.run(worker.New(requests, fails(errMilk, tried), s.options(options{DeadLetters: &policy{MaxDeliveries: 3}})))
	if _, err := future.Wait(s.Context()); err == nil {
		s.Error("the request has an answer without an error")
	}
	s.expectStats(requests, mailbox.Stats{Dead: 1})
	if got := answers.List(); !slices.Equal(got, []string{"3"}) {
		s.Errorf("it was answered after attempts %v", got)
	}
}

func deadLettersAreForwarded(s *env) {
	s.Configure("orders", driver.Config{MaxDeliveries: 1, DeadLetterTo: "dead"})
	orders, tried := s.open("orders"), ruletest.NewRecorder()
	s.run(worker.NewGroup(&worker.GroupOptions{NoSignals: true},
		worker.New(orders, func(_ context.Context, m *message) error {
			tried.Add(m.Body)
			if tried.Count() > 1 {
				return nil
			}
			return errMilk
		}, s.options(options{})),
		deadletter.NewConsumer(deadletter.NewQueue(orders, s.openDeadLetters("dead")), func(_ context.Context, l deadLetter) (deadletter.Action, error) {
			if l.Body != "tea" || l.Source != "orders" || l.LastError != "no milk" || l.Deliveries != 1 {
				s.Errorf("the dead letter is %+v", l)
			}
			return deadletter.Redrive, nil
		}, &deadletter.ConsumerOptions{Poll: 20 * time.Millisecond})))
	s.send(orders, "tea")
	s.expectCount(tried, 2)
	s.expectStats(orders, mailbox.Stats{})
	s.expectStats(s.open("dead"), mailbox.Stats{})
}

func deadMessagesMoveToSources(s *env) {
	s.Configure("orders", driver.Config{MaxDeliveries: 1, DeadLetterTo: "dead"})
	orders, dead, tried := s.open("orders"), s.open("dead"), ruletest.NewRecorder()
	var milk atomic.Bool
	s.run(worker.New(orders, func(_ context.Context, m *message) error {
		tried.Add(m.Body)
		if !milk.Load() {
			return errMilk
		}
		return nil
	}, s.options(options{})))
	s.send(orders, "tea", "coffee")
	s.expectCount(tried, 2)
	s.expectStats(dead, mailbox.Stats{Ready: 2})
	milk.Store(true)
	queue, err := s.Backend.OpenQueue(s.Context(), "dead")
	s.Must(err)
	moved, err := queue.Move(s.Context(), "", 0)
	s.Must(err)
	if moved != 2 {
		s.Errorf("%d messages moved, want 2", moved)
	}
	s.expectCount(tried, 4)
	s.expectStats(orders, mailbox.Stats{})
	s.expectStats(dead, mailbox.Stats{})
}
