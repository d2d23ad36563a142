package evalloop

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
)

// A Score is how good an answer is.
type Score struct {
	// Value is from 0, wrong, to 1, right.
	Value  float64 `json:"value"`
	Passed bool    `json:"passed"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
}

// verdict is the score of a yes or no.
func verdict(passed bool, reason string) Score {
	if passed {
		return Score{Value: 1, Passed: true}
	}
	return Score{Reason: reason}
}

// A Trial is what an agent has made of one sample.
type Trial[Out, Expected any] struct {
	Output   Out
	Expected Expected
	// Session is what happened on the way. It may be nil where an evaluator is
	// called by hand.
	Session *mainloop.Session
	Latency time.Duration
}

// An Evaluator scores one trial. An error says that it could not, and not that the
// answer is bad. It must be safe for concurrent use.
type Evaluator[Out, Expected any] func(ctx context.Context, trial Trial[Out, Expected]) (Score, error)

// All passes if every evaluator does. Its value is the mean of theirs, and its
// reason is made of those that they give.
func All[Out, Expected any](evaluators ...Evaluator[Out, Expected]) Evaluator[Out, Expected] {
	return combine(evaluators, func(scores []Score) Score {
		all := Score{Passed: true}
		for _, score := range scores {
			all.Value += score.Value / float64(len(scores))
			all.Passed = all.Passed && score.Passed
		}
		return all
	})
}

// Any passes if some evaluator does. Its value is the highest of theirs, and its
// reason is made of those that they give.
func Any[Out, Expected any](evaluators ...Evaluator[Out, Expected]) Evaluator[Out, Expected] {
	return combine(evaluators, func(scores []Score) Score {
		var highest Score
		for _, score := range scores {
			highest.Value = max(highest.Value, score.Value)
			highest.Passed = highest.Passed || score.Passed
		}
		return highest
	})
}

// combine asks all evaluators and makes one score of theirs.
func combine[Out, Expected any](evaluators []Evaluator[Out, Expected], merge func([]Score) Score) Evaluator[Out, Expected] {
	return func(ctx context.Context, trial Trial[Out, Expected]) (Score, error) {
		if len(evaluators) == 0 {
			return Score{}, evaluatorError("there is none to combine", nil)
		}
		scores := make([]Score, len(evaluators))
		var reasons []string
		for i, evaluate := range evaluators {
			var err error
			if scores[i], err = evaluate(ctx, trial); err != nil {
				return Score{}, err
			}
			if scores[i].Reason != "" {
				reasons = append(reasons, scores[i].Reason)
			}
		}
		merged := merge(scores)
		merged.Reason = strings.Join(reasons, "; ")
		return merged, nil
	}
}

// Adapt makes an evaluator of outputs and expectations of one type usable for
// those of another.
func Adapt[Out, Expected, Out2, Expected2 any](evaluate Evaluator[Out2, Expected2], output func(Out) Out2, expected func(Expected) Expected2) Evaluator[Out, Expected] {
	return func(ctx context.Context, trial Trial[Out, Expected]) (Score, error) {
		return evaluate(ctx, Trial[Out2, Expected2]{
			Output: output(trial.Output), Expected: expected(trial.Expected), Session: trial.Session, Latency: trial.Latency,
		})
	}
}

// check makes the score of somebody's evaluator one that can be reported.
func (s Score) check() (Score, error) {
	if !(s.Value >= 0 && s.Value <= 1) { // which NaN is not either
		return Score{}, evaluatorError(fmt.Sprintf("the score %v is outside 0…1", s.Value), nil)
	}
	return s, nil
}

func evaluatorError(detail string, err error) error {
	return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "evaluate", Detail: detail, Err: err}
}
