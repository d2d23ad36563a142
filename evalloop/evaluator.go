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
	// Reason explains the score to a reader.
	Reason string `json:"reason,omitempty"`
}

// verdict returns the score of a yes or no.
func verdict(passed bool, reason string) Score {
	if passed {
		return Score{Value: 1, Passed: true}
	}
	return Score{Reason: reason}
}

// A Trial is the answer of an agent to one sample.
type Trial[Out, Expected any] struct {
	Output   Out
	Expected Expected
	// Session is what the agent did. It may be nil if the caller runs an evaluator
	// itself.
	Session *mainloop.Session
	Latency time.Duration
}

// An Evaluator scores one trial. An error says that it could not, and not that the
// answer is bad. It must be safe for concurrent use.
type Evaluator[Out, Expected any] func(ctx context.Context, trial Trial[Out, Expected]) (Score, error)

// All passes if every evaluator does. Its value is the mean of theirs, and its reason
// joins theirs.
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
// reason joins theirs.
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

// combine runs all evaluators and combines their scores.
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

// Adapt converts an evaluator to other types of outputs and expectations.
func Adapt[Out, Expected, Out2, Expected2 any](evaluate Evaluator[Out2, Expected2], output func(Out) Out2, expected func(Expected) Expected2) Evaluator[Out, Expected] {
	return func(ctx context.Context, trial Trial[Out, Expected]) (Score, error) {
		return evaluate(ctx, Trial[Out2, Expected2]{
			Output: output(trial.Output), Expected: expected(trial.Expected), Session: trial.Session, Latency: trial.Latency,
		})
	}
}

// check returns an error for a score that cannot be reported.
func (s Score) check() (Score, error) {
	if !(s.Value >= 0 && s.Value <= 1) { // also false for NaN
		return Score{}, evaluatorError(fmt.Sprintf("the score %v is outside 0…1", s.Value), nil)
	}
	return s, nil
}

func evaluatorError(detail string, err error) error {
	return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "evaluate", Detail: detail, Err: err}
}
