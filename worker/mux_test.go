package worker_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// A drink is the body of the kind "drink", as JSON.
type drink struct {
	Name    string `json:"name"`
	Request string `json:"request,omitempty"`
}

func (d drink) RequestID() string { return d.Request }

type works = mailbox.Message[worker.Work]

// sendKind sends a body that codec encodes, nil for JSON, as a kind.
func sendKind[T any](s *env, queue, kind string, codec mailbox.Codec[T], body T, more ...mailbox.SendOption) {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, queue, &mailbox.Options[T]{Codec: codec})
	s.Must(err)
	defer m.Close()
	if kind != "" {
		more = append(more, mailbox.WithKind(kind))
	}
	_, err = m.Send(s.Context(), body, more...)
	s.Must(err)
}

// openMux opens the mailbox of a mux.
func (s *env) openMux(name string, mux *worker.Mux) *mailbox.Mailbox[worker.Work] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, name, mux.Options(&mailbox.Options[worker.Work]{
		Replies: s.Faults.Replies(s.replies), Resolver: s.resolver, Logger: s.Logs.Logger(),
	}))
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// newMux makes a mux for drinks and bytes.
func (s *env) newMux(options *worker.MuxOptions, done *ruletest.Recorder, more ...worker.KindHandler) *worker.Mux {
	s.Helper()
	mux, err := worker.NewMux(options, append([]worker.KindHandler{
		worker.Kind("drink", nil, func(_ context.Context, m *mailbox.Message[drink]) error {
			done.Add(m.Kind() + " " + m.Body.Name)
			if m.Body.Name == "mud" {
				return errMilk
			}
			return nil
		}),
		worker.Kind("picture", mailbox.Bytes(), func(_ context.Context, m *mailbox.Message[[]byte]) error {
			done.Add(m.Kind() + " " + string(m.Body))
			return nil
		}),
	}, more...)...)
	s.Must(err)
	return mux
}

func TestMuxHandlesByKind(t *testing.T) {
	runRule(t, "FLOW-7", []rule{
		{"each kind has its type and codec", func(s *env) {
			done := ruletest.NewRecorder()
			mux := s.newMux(nil, done, worker.Kind("", mailbox.String(), func(_ context.Context, m *message) error {
				done.Add("no kind " + m.Body)
				return nil
			}))
			jobs := s.openMux("jobs", mux)
			sendKind(s, "jobs", "drink", nil, drink{Name: "tea"})
			sendKind(s, "jobs", "picture", mailbox.Bytes(), []byte{'\x00', 'x'})
			sendKind(s, "jobs", "", mailbox.String(), "plain")
			stop := s.run(worker.New(jobs, mux.Handle, nil))
			s.Pass(time.Second)
			if got := done.List(); !slices.Equal(got, []string{"drink tea", "picture \x00x", "no kind plain"}) {
				s.Errorf("handled were %q", got)
			}
			stats, err := jobs.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "stats", stats, mailbox.Stats{})
			s.Must(stop())
		}},
		{"a result is that of the message", func(s *env) {
			done := ruletest.NewRecorder()
			mux := s.newMux(nil, done)
			jobs := s.openMux("jobs", mux)
			sendKind(s, "jobs", "drink", nil, drink{Name: "mud"})
			sendKind(s, "jobs", "drink", nil, drink{Name: "tea"})
			stop := s.run(worker.New(jobs, mux.Handle, nil))
			s.Pass(time.Second)
			stats, err := jobs.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "stats", stats, mailbox.Stats{Delayed: 1})
			s.Must(stop())
		}},
		{"handlers settle and answer the delivery of the loop", func(s *env) {
			done := ruletest.NewRecorder()
			mux := s.newMux(nil, done,
				worker.Kind("question", nil, worker.Serve(func(_ context.Context, m *message) (string, error) { return m.Body + "!", nil }, nil)),
				worker.Kind("own", nil, func(ctx context.Context, m *message) error { return m.Nack(ctx, time.Hour, errMilk) }))
			jobs := s.openMux("jobs", mux)
			var settled []worker.SettledEvent
			loop := worker.New(jobs, mux.Handle, &worker.Options[worker.Work]{Hooks: worker.Hooks{
				Settled: func(_ context.Context, event worker.SettledEvent) { settled = append(settled, event) },
			}})
			questions, err := mailbox.Open[string](s.Context(), s.Faults, "jobs", nil)
			s.Must(err)
			defer questions.Close()
			client := reply.NewClient[string, string](questions, s.replies, nil)
			future, err := client.Send(s.Context(), "tea", mailbox.WithKind("question"))
			s.Must(err)
			sendKind(s, "jobs", "own", nil, "later")
			stop := s.run(loop)
			s.Pass(time.Second)
			answer, ready, err := future.Poll(s.Context())
			if !ready || err != nil || answer != "tea!" {
				s.Errorf("the answer is %q, %v, %v", answer, ready, err)
			}
			s.Must(stop())
			if len(settled) != 2 || settled[0].Result != worker.ResultAcked || settled[1].Result != worker.ResultHandler {
				s.Errorf("settled were %+v", settled)
			}
			stats, err := jobs.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "stats", stats, mailbox.Stats{Delayed: 1})
		}},
	})
}

func TestMuxTreatsUnknownKindsAsConfigured(t *testing.T) {
	runRule(t, "FLOW-7", []rule{
		{"they are dead-lettered with reason parse", func(s *env) {
			done := ruletest.NewRecorder()
			mux := s.newMux(nil, done)
			jobs := s.openMux("jobs", mux)
			sendKind(s, "jobs", "sandwich", nil, "ham")
			sendKind(s, "jobs", "", nil, "none")
			sendKind(s, "jobs", "drink", mailbox.String(), "{not json")
			sendKind(s, "jobs", "drink", nil, drink{Name: "tea"})
			stop := s.run(worker.New(jobs, mux.Handle, nil))
			s.Pass(time.Second)
			s.Must(stop())
			if got := done.List(); !slices.Equal(got, []string{"drink tea"}) {
				s.Errorf("handled were %q", got)
			}
			var errs []string
			for letter, err := range jobs.DeadLetters(s.Context()) {
				s.Must(err)
				ruletest.Equal(s, "reason", letter.Reason, mailbox.ReasonParse)
				errs = append(errs, letter.LastError)
			}
			if len(errs) != 3 || !strings.Contains(strings.Join(errs, "\n"), `"sandwich" has no handler here; want "drink", "picture"`) {
				s.Errorf("the errors are %q", errs)
			}
		}},
		{"they are given back with a delay", func(s *env) {
			done := ruletest.NewRecorder()
			mux := s.newMux(&worker.MuxOptions{Unknown: mailbox.Disposition{Action: mailbox.PoisonPutBack, Delay: time.Minute}}, done)
			jobs := s.openMux("jobs", mux)
			sendKind(s, "jobs", "sandwich", nil, "ham")
			sendKind(s, "jobs", "drink", mailbox.String(), "{not json")
			stop := s.run(worker.New(jobs, mux.Handle, nil))
			s.Pass(time.Second)
			s.Must(stop())
			stats, err := jobs.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "stats", stats, mailbox.Stats{Delayed: 1, Dead: 1})
			kitchen, err := worker.NewMux(nil, worker.Kind("sandwich", nil, func(_ context.Context, m *message) error {
				done.Add(m.Kind() + " " + m.Body)
				return nil
			}))
			s.Must(err)
			stop = s.run(worker.New(s.openMux("jobs", kitchen), kitchen.Handle, nil))
			s.Pass(time.Minute)
			s.Must(stop())
			if got := done.List(); !slices.Equal(got, []string{"sandwich ham"}) {
				s.Errorf("handled were %q", got)
			}
		}},
		{"other undecodable bodies are for Options.Poison", func(s *env) {
			mux := s.newMux(nil, ruletest.NewRecorder())
			var causes []error
			jobs, err := mailbox.Open(s.Context(), s.Faults, "jobs", mux.Options(&mailbox.Options[worker.Work]{
				Poison: func(_ context.Context, _ driver.Delivery, err error) mailbox.Disposition {
					causes = append(causes, err)
					return mailbox.Disposition{Action: mailbox.PoisonAck}
				},
			}))
			s.Must(err)
			defer jobs.Close()
			sendKind(s, "jobs", "sandwich", nil, "ham")
			sendKind(s, "jobs", "drink", mailbox.String(), "{not json")
			_, err = worker.New(jobs, mux.Handle, nil).RunOnce(s.Context())
			s.Must(err)
			_, err = worker.New(jobs, mux.Handle, nil).RunOnce(s.Context())
			s.Must(err)
			stats, err := jobs.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "stats", stats, mailbox.Stats{Dead: 1})
			if len(causes) != 1 || errors.Is(causes[0], worker.ErrUnknownKind) {
				s.Errorf("Poison got %v", causes)
			}
		}},
	})
}

func TestMuxDeadLettersKeepTheirKind(t *testing.T) {
	inMemory(t, func(s *env) {
		done := ruletest.NewRecorder()
		mux := s.newMux(nil, done)
		jobs := s.openMux("jobs", mux)
		letters, err := mailbox.Open(s.Context(), s.Faults, "dead", &mailbox.Options[deadletter.Message[worker.Work]]{Codec: deadletter.Codec(mux.Codec())})
		s.Must(err)
		defer letters.Close()
		p := &deadletter.Policy[worker.Work]{MaxDeliveries: 1, Mailbox: letters}
		sendKind(s, "jobs", "drink", nil, drink{Name: "mud", Request: "r-1"})
		loop := worker.New(jobs, mux.Handle, &worker.Options[worker.Work]{DeadLetters: p})
		_, err = loop.RunOnce(s.Context())
		s.Must(err)
		found := 0
		for letter, err := range p.Queue(jobs).List(s.Context()) {
			s.Must(err)
			found++
			if letter.DecodeErr != nil || letter.Body != (worker.Work{Kind: "drink", Value: drink{Name: "mud", Request: "r-1"}}) || letter.RequestID != "r-1" {
				s.Errorf("the letter is %+v", letter)
			}
		}
		ruletest.Equal(s, "letters", found, 1)
		_, err = p.Queue(jobs).Redrive(s.Context(), deadletter.Filter[worker.Work]{}, nil)
		s.Must(err)
		_, err = loop.RunOnce(s.Context())
		s.Must(err)
		if got := done.List(); !slices.Equal(got, []string{"drink mud", "drink mud"}) {
			s.Errorf("handled were %q", got)
		}
	})
}

func TestMuxRefusesWrongKinds(t *testing.T) {
	handler := func(context.Context, *message) error { return nil }
	sendOnly := mailbox.CodecFunc("text/plain", func(string) ([]byte, error) { return nil, nil }, nil)
	for name, c := range map[string]struct {
		options  *worker.MuxOptions
		handlers []worker.KindHandler
		field    string
	}{
		"none":         {field: "handlers"},
		"twice":        {handlers: []worker.KindHandler{worker.Kind("a", nil, handler), worker.Kind("a", nil, handler)}, field: `kind "a"`},
		"nil handler":  {handlers: []worker.KindHandler{worker.Kind[string]("a", nil, nil)}, field: `kind "a"`},
		"not made":     {handlers: []worker.KindHandler{{}}, field: `kind ""`},
		"only sends":   {handlers: []worker.KindHandler{worker.Kind("a", sendOnly, handler)}, field: `kind "a"`},
		"wrong action": {options: &worker.MuxOptions{Unknown: mailbox.Disposition{Action: "eat"}}, handlers: []worker.KindHandler{worker.Kind("a", nil, handler)}, field: "Unknown"},
	} {
		_, err := worker.NewMux(c.options, c.handlers...)
		e, ok := errors.AsType[*mailbox.Error](err)
		if !ok || e.Code != mailbox.ErrInvalid || e.Field != c.field || e.Detail == "" {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestMuxCodecRefusesWhatHasNoKind(t *testing.T) {
	mux, err := worker.NewMux(nil, worker.Kind("text", mailbox.String(), func(context.Context, *message) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	codec := mux.Codec()
	if _, err := codec.Decode([]byte("tea")); err == nil {
		t.Error("a body without attributes was decoded")
	}
	if _, err := codec.Encode(worker.Work{Kind: "other", Value: "tea"}); !errors.Is(err, worker.ErrUnknownKind) {
		t.Errorf("encoding an unknown kind: %v", err)
	}
	if _, err := codec.Encode(worker.Work{Kind: "text", Value: 7}); err == nil {
		t.Error("a number was encoded as a string")
	}
	if data, err := codec.Encode(worker.Work{Kind: "text", Value: "tea"}); err != nil || !bytes.Equal(data, []byte("tea")) {
		t.Errorf("encoded is %q, %v", data, err)
	}
	decoder := codec.(mailbox.MessageDecoder[worker.Work])
	_, err = decoder.DecodeMessage(&driver.Message{Attributes: map[string]string{mailbox.AttributeKind: "text", replyslot.AttributeError: "no"}})
	if err == nil {
		t.Error("an error reply was decoded")
	}
	err = mux.Handle(t.Context(), &works{Body: worker.Work{Kind: "other"}})
	if !errors.Is(err, worker.ErrUnknownKind) {
		t.Errorf("handling an unknown kind: %v", err)
	}
	if err := mux.Handle(t.Context(), &works{Body: worker.Work{Kind: "text", Value: 7}}); err == nil {
		t.Error("a number was handled as a string")
	}
}
