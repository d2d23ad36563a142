package redisrules_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/worker"
)

func flowRules() []rule {
	return []rule{{"FLOW-7", []ruleCase{
		{"a mux handles kinds and dead-letters unknown ones", muxHandlesKinds},
		{"a batch settles each message", batchSettlesEach},
	}}}
}

func muxHandlesKinds(s *env) {
	done := ruletest.NewRecorder()
	handle := func(_ context.Context, m *message) error {
		done.Add(m.Kind() + " " + m.Body)
		return nil
	}
	mux, err := worker.NewMux(nil, worker.Kind("tea", nil, handle), worker.Kind("note", mailbox.String(), handle))
	s.Must(err)
	jobs, err := mailbox.Open(s.Context(), s.Faults, "jobs", mux.Options(nil))
	s.Must(err)
	defer jobs.Close()
	notes, err := mailbox.Open(s.Context(), s.Faults, "jobs", &mailbox.Options[string]{Codec: mailbox.String()})
	s.Must(err)
	defer notes.Close()
	for _, kind := range []string{"tea", "note", "riddle"} {
		_, err := notes.Send(s.Context(), `"green"`, mailbox.WithKind(kind))
		s.Must(err)
	}
	stop := s.run(worker.New(jobs, mux.Handle, nil))
	s.expectStats(jobs, mailbox.Stats{Dead: 1})
	s.Must(stop())
	if got := slices.Sorted(slices.Values(done.List())); !slices.Equal(got, []string{`note "green"`, "tea green"}) {
		s.Errorf("handled were %q", got)
	}
	for letter, err := range jobs.DeadLetters(s.Context()) {
		s.Must(err)
		ruletest.Equal(s, "reason", letter.Reason, mailbox.ReasonParse)
	}
}

func batchSettlesEach(s *env) {
	orders, done := s.open("orders"), ruletest.NewRecorder()
	for i := range 25 {
		s.send(orders, fmt.Sprint(i))
	}
	stop := s.run(worker.NewBatch(orders, func(_ context.Context, batch []*message) error {
		errs := make([]error, len(batch))
		for i, m := range batch {
			done.Add(m.Body)
			if strings.HasSuffix(m.Body, "3") {
				errs[i] = worker.Permanent(errMilk)
			}
		}
		return &mailbox.BatchError{Errs: errs}
	}, &worker.BatchOptions[string]{Size: 10, Fill: 50 * time.Millisecond}))
	s.expectStats(orders, mailbox.Stats{Dead: 3})
	s.Must(stop())
	ruletest.Equal(s, "handled", done.Count(), 25)
}
