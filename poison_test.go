package mailbox_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// numbersAndText opens two mailboxes on one queue: one of numbers, and one of
// text that can put poison among them.
func numbersAndText(t *testing.T, config driver.Config, options *mailbox.Options[int]) (*mailbox.Mailbox[int], *mailbox.Mailbox[string]) {
	t.Helper()
	backend := membox.New(&membox.Options{Defaults: config})
	numbers, err := mailbox.Open(t.Context(), backend, "orders", options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := mailbox.Open(t.Context(), backend, "orders", &mailbox.Options[string]{Codec: mailbox.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { numbers.Close(); text.Close(); backend.Close() })
	return numbers, text
}

func TestUndecodableMessageIsDeadLetteredAlone(t *testing.T) {
	numbers, text := numbersAndText(t, driver.Config{}, nil)
	mustSend(t, text, "1", "poison", "3", "4 4", "5")
	got, err := numbers.Receive(t.Context(), mailbox.WithMax(10))
	wantError(t, err, nil)
	wantSame(t, "bodies", bodies(got), []int{1, 3, 5})
	wantStats(t, numbers, mailbox.Stats{InFlight: 3, Dead: 2})
	var dead []string
	for letter, err := range text.DeadLetters(t.Context()) {
		wantError(t, err, nil)
		dead = append(dead, letter.Body)
		wantEqual(t, "reason", letter.Reason, mailbox.ReasonParse)
		wantEqual(t, "type of the error", letter.ErrorType, "*encoding/json.SyntaxError")
		if letter.LastError == "" {
			t.Error("the letter does not say what was wrong")
		}
	}
	wantSame(t, "dead letters", dead, []string{"poison", "4 4"})
}

func TestUndecodableMessageIsNackedWithoutDeadLetters(t *testing.T) {
	for _, longest := range []time.Duration{time.Hour, time.Minute} {
		queue := newFake()
		queue.traits.MaxVisibility = longest
		queue.receive = deliver([]driver.Delivery{delivery("1", "poison"), delivery("2", "2")})
		var nacks []driver.Nack
		queue.nack = func(_ context.Context, n []driver.Nack) error {
			nacks = append(nacks, n...)
			return nil
		}
		m := mailbox.New[int]("orders", queue, nil)
		got, err := m.Receive(t.Context(), mailbox.WithMax(2))
		wantError(t, err, nil)
		wantSame(t, "bodies", bodies(got), []int{2})
		wantEqual(t, "number of nacks", len(nacks), 1)
		wantEqual(t, "receipt", nacks[0].Receipt.Handle, "1")
		wantEqual(t, "delay", nacks[0].Delay, min(15*time.Minute, longest))
		if !strings.Contains(nacks[0].Cause, "invalid character") {
			t.Errorf("cause is %q", nacks[0].Cause)
		}
	}
}

func TestUndecodableMessageIsNackedIfDeadLettersFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []mailbox.PoisonedEvent
		hooks := mailbox.Hooks{Poisoned: func(_ context.Context, e mailbox.PoisonedEvent) { events = append(events, e) }}
		numbers, text := numbersAndText(t, driver.Config{MaxDead: 1}, &mailbox.Options[int]{Hooks: hooks})
		mustSend(t, text, "poison", "more poison", "3")
		got, err := numbers.Receive(t.Context(), mailbox.WithMax(10))
		wantError(t, err, nil)
		wantSame(t, "bodies", bodies(got), []int{3})
		wantStats(t, numbers, mailbox.Stats{InFlight: 1, Delayed: 1, Dead: 1})
		wantEqual(t, "first disposition", events[0].Disposition.String(), "dead-letter")
		wantEqual(t, "second disposition", events[1].Disposition.String(), "nack after 15m0s")
		for _, event := range events {
			wantError(t, event.Err, nil)
		}
	})
}

func TestPoisonFunctionDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decide := func(_ context.Context, d driver.Delivery, err error) mailbox.Disposition {
			wantError(t, err, mailbox.ErrEncoding)
			if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.MessageID != d.ID || e.Queue != "orders" {
				t.Errorf("error is %#v", err)
			}
			switch string(d.Body) {
			case "later":
				return mailbox.Disposition{Action: mailbox.PoisonNack, Delay: time.Minute}
			case "much later":
				return mailbox.Disposition{Action: mailbox.PoisonNack, Delay: 1000 * time.Hour}
			case "gone":
				return mailbox.Disposition{Action: mailbox.PoisonAck}
			}
			return mailbox.Disposition{}
		}
		numbers, text := numbersAndText(t, driver.Config{}, &mailbox.Options[int]{Poison: decide})
		mustSend(t, text, "later", "gone", "dead", "much later")
		_, err := numbers.Receive(t.Context(), mailbox.WithMax(10))
		wantError(t, err, nil)
		wantStats(t, numbers, mailbox.Stats{Delayed: 2, Dead: 1})
		time.Sleep(time.Minute)
		wantEqual(t, "body", mustReceive(t, text, 1)[0].Body, "later")
		time.Sleep(driver.DefaultMaxVisibility)
		wantStats(t, numbers, mailbox.Stats{Ready: 2, Dead: 1})
	})
}

func TestReceiveContinuesAfterUndecodableBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbers, text := numbersAndText(t, driver.Config{}, nil)
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { mustSend(t, text, "poison") })
		time.AfterFunc(7*time.Second, func() { mustSend(t, text, "7") })
		got, err := numbers.Receive(t.Context(), mailbox.WithWait(20*time.Second))
		wantError(t, err, nil)
		wantSame(t, "bodies", bodies(got), []int{7})
		wantEqual(t, "time waited", time.Since(start), 7*time.Second)

		time.AfterFunc(3*time.Second, func() { mustSend(t, text, "poison") })
		start = time.Now()
		got, err = numbers.Receive(t.Context(), mailbox.WithWait(20*time.Second))
		wantError(t, err, nil)
		wantEqual(t, "messages", len(got), 0)
		wantEqual(t, "time waited", time.Since(start), 20*time.Second)
	})
}

func TestReceiveWithoutWaitSkipsUndecodableMessages(t *testing.T) {
	numbers, text := numbersAndText(t, driver.Config{}, nil)
	mustSend(t, text, "poison", "more poison", "3")
	wantEqual(t, "body", mustReceive(t, numbers, 1)[0].Body, 3)
	wantStats(t, numbers, mailbox.Stats{InFlight: 1, Dead: 2})
}

func TestReceivePausesWhenUndecodableMessageReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := func(context.Context, driver.Delivery, error) mailbox.Disposition {
			return mailbox.Disposition{Action: mailbox.PoisonNack}
		}
		polls := 0
		hooks := mailbox.Hooks{Polled: func(context.Context, mailbox.PolledEvent) { polls++ }}
		numbers, text := numbersAndText(t, driver.Config{}, &mailbox.Options[int]{Poison: back, Hooks: hooks})
		mustSend(t, text, "poison")
		start := time.Now()
		got, err := numbers.Receive(t.Context(), mailbox.WithWait(20*time.Second))
		wantError(t, err, nil)
		wantEqual(t, "messages", len(got), 0)
		wantEqual(t, "time waited", time.Since(start), 20*time.Second)
		if polls > 40 {
			t.Errorf("%d calls of the backend in 20 s", polls)
		}

		polls = 0
		_, err = numbers.Receive(t.Context())
		wantError(t, err, nil)
		wantEqual(t, "calls of the backend without a wait", polls, 1)
	})
}

func TestFailedDispositionIsReported(t *testing.T) {
	queue := newFake()
	queue.receive = deliver([]driver.Delivery{delivery("1", "secret poison")})
	queue.nack = func(context.Context, []driver.Nack) error { return errUnavailable }
	var log bytes.Buffer
	var events []mailbox.PoisonedEvent
	m := mailbox.New("orders", queue, &mailbox.Options[int]{
		Logger: textLogger(&log),
		Hooks:  mailbox.Hooks{Poisoned: func(_ context.Context, e mailbox.PoisonedEvent) { events = append(events, e) }},
	})
	_, err := m.Receive(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "number of events", len(events), 1)
	wantError(t, events[0].Err, mailbox.ErrUnavailable)
	wantError(t, events[0].Cause, mailbox.ErrEncoding)
	for _, want := range []string{"level=ERROR", "queue=orders", "id=1", "body_bytes=13", "the cable was cut"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %q: %s", want, &log)
		}
	}
}

func TestUndecodableMessageIsLoggedWithoutBody(t *testing.T) {
	var log bytes.Buffer
	numbers, text := numbersAndText(t, driver.Config{}, &mailbox.Options[int]{Logger: textLogger(&log)})
	mustSend(t, text, "secret poison")
	_, err := numbers.Receive(t.Context())
	wantError(t, err, nil)
	for _, want := range []string{"level=WARN", "queue=orders", "disposition=dead-letter", "application/json"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %q: %s", want, &log)
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("log has the body: %s", &log)
	}
}

func TestSendOnlyCodecNeverReceives(t *testing.T) {
	queue := newFake()
	queue.receive = deliver([]driver.Delivery{delivery("1", "tea")})
	codec := mailbox.CodecFunc("text/plain", func(s string) ([]byte, error) { return []byte(s), nil }, nil)
	m := mailbox.New("orders", queue, &mailbox.Options[string]{Codec: codec})
	_, err := m.Receive(t.Context())
	wantField(t, err, mailbox.ErrInvalid, "Codec")
	wantEqual(t, "calls of the backend", queue.count(), 0)
	_, err = m.Send(t.Context(), "tea")
	wantError(t, err, nil)
}

// fragile is a body whose own decoder panics on some inputs.
type fragile string

func (f *fragile) UnmarshalJSON(data []byte) error {
	if len(data) < 4 {
		return nil
	}
	*f = fragile(data[1:99]) // panics unless there is that much
	return nil
}

func TestPanicOfCodecDeadLettersMessage(t *testing.T) {
	backend := membox.New(nil)
	t.Cleanup(func() { backend.Close() })
	var log bytes.Buffer
	bodies, err := mailbox.Open(t.Context(), backend, "orders", &mailbox.Options[fragile]{Logger: textLogger(&log)})
	wantError(t, err, nil)
	text, err := mailbox.Open(t.Context(), backend, "orders", &mailbox.Options[string]{Codec: mailbox.String()})
	wantError(t, err, nil)
	mustSend(t, text, `"poison"`, `""`)

	got, err := bodies.Receive(t.Context(), mailbox.WithMax(10))
	wantError(t, err, nil)
	wantEqual(t, "messages that were received", len(got), 1)
	wantStats(t, bodies, mailbox.Stats{InFlight: 1, Dead: 1})
	for letter, err := range bodies.DeadLetters(t.Context()) { // which decodes it once more
		wantError(t, err, nil)
		wantEqual(t, "reason", letter.Reason, mailbox.ReasonParse)
		wantError(t, letter.DecodeErr, mailbox.ErrEncoding)
		if !strings.Contains(letter.LastError, "panic") || !strings.Contains(letter.LastError, "out of range") {
			t.Errorf("the last error is %q, and does not say that the codec panicked, and with what", letter.LastError)
		}
	}
	if !strings.Contains(log.String(), "UnmarshalJSON") {
		t.Errorf("the log does not say where the codec panicked: %s", log.String())
	}
}

func TestPanickingPoisonFunctionDeadLettersMessage(t *testing.T) {
	numbers, text := numbersAndText(t, driver.Config{}, &mailbox.Options[int]{
		Poison: func(context.Context, driver.Delivery, error) mailbox.Disposition { panic("what is that") },
	})
	mustSend(t, text, "poison", "2")
	got, err := numbers.Receive(t.Context(), mailbox.WithMax(10))
	wantError(t, err, nil)
	wantSame(t, "bodies", bodies(got), []int{2})
	wantStats(t, numbers, mailbox.Stats{InFlight: 1, Dead: 1})
}
