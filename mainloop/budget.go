package mainloop

import (
	"fmt"
	"math"
	"sync"

	"github.com/mailboxmq/mailbox"
)

// Usage counts tokens.
type Usage struct {
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	// CachedTokens are the input tokens that the server had cached. They count as
	// input.
	CachedTokens int `json:"cached_tokens,omitempty"`
}

// TotalTokens returns the sum of input and output.
func (u Usage) TotalTokens() int { return sum(u.InputTokens, u.OutputTokens) }

// Add returns the sum of two usages.
func (u Usage) Add(other Usage) Usage {
	u.InputTokens = sum(u.InputTokens, other.InputTokens)
	u.OutputTokens = sum(u.OutputTokens, other.OutputTokens)
	u.CachedTokens = sum(u.CachedTokens, other.CachedTokens)
	return u
}

// sum adds without overflow: a bogus count of a server must not wrap to a small
// number.
func sum(a, b int) int {
	if b > 0 && a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// A Budget bounds what one request may use. A limit of zero means no limit.
type Budget struct {
	Deadline        Deadline `json:"deadline,omitzero"`
	MaxInputTokens  int      `json:"max_input_tokens,omitempty"`
	MaxOutputTokens int      `json:"max_output_tokens,omitempty"`
	MaxTotalTokens  int      `json:"max_total_tokens,omitempty"`
}

// check returns ErrInvalid, naming the field, if a limit is negative.
func (b Budget) check() error {
	for _, limit := range []struct {
		field string
		value int
	}{
		{"MaxInputTokens", b.MaxInputTokens},
		{"MaxOutputTokens", b.MaxOutputTokens},
		{"MaxTotalTokens", b.MaxTotalTokens},
	} {
		if limit.value < 0 {
			return &mailbox.Error{
				Code: mailbox.ErrInvalid, Op: "budget", Field: limit.field,
				Detail: fmt.Sprintf("%d is negative; 0 means no limit", limit.value),
			}
		}
	}
	return nil
}

// What a budget limits, in the order in which they are checked.
const (
	dimensionDeadline = "deadline"
	dimensionInput    = "input tokens"
	dimensionOutput   = "output tokens"
	dimensionTotal    = "total tokens"
)

// A BudgetError says that a budget was exceeded. It is ErrBudget, and ErrDeadline too
// if the deadline was exceeded.
type BudgetError struct {
	Budget   Budget
	Consumed Usage
	// Dimension is what was exceeded: "deadline", "input tokens", "output tokens" or
	// "total tokens".
	Dimension string
}

// Error returns the dimension, the limit and the use.
func (e *BudgetError) Error() string {
	used, limit := 0, 0
	switch e.Dimension {
	case dimensionDeadline:
		return fmt.Sprintf("%s: %s: it was %v", ErrBudget, e.Dimension, e.Budget.Deadline.ExpiresAt)
	case dimensionInput:
		used, limit = e.Consumed.InputTokens, e.Budget.MaxInputTokens
	case dimensionOutput:
		used, limit = e.Consumed.OutputTokens, e.Budget.MaxOutputTokens
	case dimensionTotal:
		used, limit = e.Consumed.TotalTokens(), e.Budget.MaxTotalTokens
	}
	return fmt.Sprintf("%s: %s: %d of %d", ErrBudget, e.Dimension, used, limit)
}

// Unwrap returns the codes of this error.
func (e *BudgetError) Unwrap() []error {
	if e.Dimension == dimensionDeadline {
		return []error{ErrBudget, ErrDeadline}
	}
	return []error{ErrBudget}
}

// A Tracker sums the usage of the evaluations of one request and compares it with the
// budget. Make one with NewTracker. It is safe for concurrent use, so agents that call
// several models at once can share it.
type Tracker struct {
	budget Budget

	mu   sync.Mutex // guards used
	used map[string]Usage
}

// NewTracker returns a tracker with zero usage.
func NewTracker(budget Budget) *Tracker {
	return &Tracker{budget: budget, used: make(map[string]Usage)}
}

// Record sets the total usage of an evaluation. It replaces the earlier value for that
// evaluation, because servers report totals. Negative values count as 0.
func (t *Tracker) Record(evaluation string, usage Usage) {
	usage.InputTokens, usage.OutputTokens = max(0, usage.InputTokens), max(0, usage.OutputTokens)
	usage.CachedTokens = max(0, usage.CachedTokens)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used[evaluation] = usage
}

// Consumed returns the sum over all evaluations.
func (t *Tracker) Consumed() Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sum Usage
	for _, usage := range t.used {
		sum = sum.Add(usage)
	}
	return sum
}

// Check returns a *BudgetError for the first dimension that is exceeded: deadline,
// input, output, total. Using exactly the limit does not exceed it.
func (t *Tracker) Check() error {
	consumed := t.Consumed()
	b := t.budget
	over := func(used, limit int) bool { return limit > 0 && used > limit }
	var dimension string
	switch {
	case b.Deadline.Expired():
		dimension = dimensionDeadline
	case over(consumed.InputTokens, b.MaxInputTokens):
		dimension = dimensionInput
	case over(consumed.OutputTokens, b.MaxOutputTokens):
		dimension = dimensionOutput
	case over(consumed.TotalTokens(), b.MaxTotalTokens):
		dimension = dimensionTotal
	default:
		return nil
	}
	return &BudgetError{Budget: b, Consumed: consumed, Dimension: dimension}
}

// allow returns how many output tokens the next evaluation may have: wanted, or less if
// the budget leaves less. 0 means no limit. If nothing is left, it returns a
// *BudgetError.
func (t *Tracker) allow(wanted int) (int, error) {
	consumed := t.Consumed()
	for _, bound := range []struct {
		dimension   string
		limit, used int
	}{
		{dimensionOutput, t.budget.MaxOutputTokens, consumed.OutputTokens},
		{dimensionTotal, t.budget.MaxTotalTokens, consumed.TotalTokens()},
	} {
		if bound.limit == 0 {
			continue
		}
		left := bound.limit - bound.used
		if left <= 0 {
			return 0, &BudgetError{Budget: t.budget, Consumed: consumed, Dimension: bound.dimension}
		}
		if wanted == 0 || left < wanted {
			wanted = left
		}
	}
	return wanted, nil
}
