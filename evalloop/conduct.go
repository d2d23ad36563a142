package evalloop

import (
	"context"
	"fmt"

	"github.com/mailboxmq/mailbox/mainloop"
)

// conduct makes an evaluator of what the agent did, regardless of its answer. It
// fails without a session.
func conduct[Out, Expected any](judge func(session *mainloop.Session) Score) Evaluator[Out, Expected] {
	return func(_ context.Context, trial Trial[Out, Expected]) (Score, error) {
		if trial.Session == nil {
			return Score{}, evaluatorError("there is no session", nil)
		}
		return judge(trial.Session), nil
	}
}

// calls counts the uses of a tool.
func calls(session *mainloop.Session, tool string) int {
	n := 0
	for _, use := range session.ToolUses() {
		if use.Name == tool {
			n++
		}
	}
	return n
}

// ToolCalled passes if the agent has called the tool.
func ToolCalled[Out, Expected any](tool string) Evaluator[Out, Expected] {
	return conduct[Out, Expected](func(session *mainloop.Session) Score {
		return verdict(calls(session, tool) > 0, fmt.Sprintf("%s was not called", tool))
	})
}

// ToolCallCount passes if the agent has called the tool at least least and at most
// most times. A negative most means any number, and two zeros mean that it must not be called.
func ToolCallCount[Out, Expected any](tool string, least, most int) Evaluator[Out, Expected] {
	return conduct[Out, Expected](func(session *mainloop.Session) Score {
		n := calls(session, tool)
		return verdict(n >= least && (most < 0 || n <= most), fmt.Sprintf("%s was called %d times", tool, n))
	})
}

// TokensUnder passes if the agent has used at most most tokens, input and output
// together.
func TokensUnder[Out, Expected any](most int) Evaluator[Out, Expected] {
	return conduct[Out, Expected](func(session *mainloop.Session) Score {
		used := session.Usage().TotalTokens()
		return verdict(used <= most, fmt.Sprintf("%d tokens were used, at most %d are allowed", used, most))
	})
}

// Recorded passes if at least least values of type T in the session satisfy the
// predicate. A nil predicate accepts any.
func Recorded[T, Out, Expected any](least int, predicate func(T) bool) Evaluator[Out, Expected] {
	return conduct[Out, Expected](func(session *mainloop.Session) Score {
		n := 0
		for _, value := range mainloop.Recorded[T](session) {
			if predicate == nil || predicate(value) {
				n++
			}
		}
		return verdict(n >= least, fmt.Sprintf("%d such %T were recorded, at least %d are needed", n, *new(T), least))
	})
}
