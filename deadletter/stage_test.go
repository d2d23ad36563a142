package deadletter_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The short names of what the cases are about.
type (
	message   = mailbox.Message[string]
	letter    = deadletter.Letter[string]
	selection = deadletter.Selection[string]
)

var errMilk = errors.New("no milk")

// A rule is a case of one rule of docs/semantics.md. It is played with letters
// that the backend keeps and with letters in a mailbox.
type rule struct {
	name string
	play func(s *stage)
}

// play plays the cases of a rule on every backend.
func play(t *testing.T, id string, rules []rule) {
	var cases []ruletest.Case
	for _, rule := range rules {
		cases = append(cases,
			ruletest.Case{Name: rule.name + "/kept", Play: func(s *ruletest.Stage) { rule.play(newStage(s, true)) }},
			ruletest.Case{Name: rule.name + "/sent", Play: func(s *ruletest.Stage) { rule.play(newStage(s, false)) }})
	}
	ruletest.Play(t, id, cases)
}

// A stage is what a case is played on: a mailbox of orders, and a box for those
// that die.
type stage struct {
	*ruletest.Stage
	orders  *mailbox.Mailbox[string]
	letters *mailbox.Mailbox[letter] // nil if the backend keeps them
	box     *deadletter.Box[string]
}

func newStage(on *ruletest.Stage, kept bool) *stage {
	s := &stage{Stage: on}
	var err error
	s.orders, err = mailbox.Open(s.Context(), s.Faults, "orders", &mailbox.Options[string]{Replies: reply.NewMemory(nil)})
	s.Must(err)
	if !kept {
		s.Configure("dead", driver.Config{MaxDeliveries: driver.Off})
		s.letters, err = mailbox.Open(s.Context(), s.Faults, "dead", &mailbox.Options[letter]{Codec: deadletter.Codec[string](nil)})
		s.Must(err)
	}
	s.box = deadletter.NewBox(s.orders, s.letters)
	return s
}

// bury sends bodies and makes dead letters of them, and returns their ids.
func (s *stage) bury(bodies ...string) []string {
	s.Helper()
	var ids []string
	for _, body := range bodies {
		_, err := s.orders.Send(s.Context(), body, mailbox.WithAttribute("kind", body), mailbox.WithCorrelationID("c-"+body))
		s.Must(err)
		m := s.take()
		_, err = s.box.Bury(s.Context(), m, mailbox.ReasonFatal, errMilk)
		s.Must(err)
		ids = append(ids, m.ID)
	}
	return ids
}

// take receives an order.
func (s *stage) take() *message {
	s.Helper()
	got, err := s.orders.Receive(s.Context())
	s.Must(err)
	if len(got) != 1 {
		s.Fatal("there is no order")
	}
	return got[0]
}

// bodies returns those of the letters in the box.
func (s *stage) bodies() []string {
	s.Helper()
	var all []string
	for letter, err := range s.box.Letters(s.Context()) {
		s.Must(err)
		all = append(all, letter.Body)
	}
	return all
}

func (s *stage) depth(want int) {
	s.Helper()
	got, err := s.box.Depth(s.Context())
	s.Must(err)
	ruletest.Equal(s, "depth", got, want)
}

// ready checks how many orders wait.
func (s *stage) ready(want int) {
	s.Helper()
	stats, err := s.orders.Stats(s.Context())
	s.Must(err)
	ruletest.Equal(s, "orders that are ready", stats.Ready, want)
}

// run runs a consumer until the function that it returns is called.
func (s *stage) run(c *deadletter.Consumer[string]) (stop func() error) {
	ctx, cancel := context.WithCancel(s.Context())
	var result error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = c.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return result
	}
	s.Cleanup(func() { _ = stop() }) // what it returns is for who calls it
	return stop
}
