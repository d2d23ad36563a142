package evalloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// ExactMatch passes if the output equals the expected output.
func ExactMatch[T comparable]() Evaluator[T, T] {
	return func(_ context.Context, trial Trial[T, T]) (Score, error) {
		return verdict(trial.Output == trial.Expected, fmt.Sprintf("got %v, expected %v", trial.Output, trial.Expected)), nil
	}
}

// Contains passes if the output contains the expected text exactly. An empty text
// always passes.
func Contains() Evaluator[string, string] {
	return func(_ context.Context, trial Trial[string, string]) (Score, error) {
		return verdict(strings.Contains(trial.Output, trial.Expected), fmt.Sprintf("%q is not in it", trial.Expected)), nil
	}
}

// number is a numeric type.
type number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Within passes if the output differs from the expected number by at most tolerance.
// NaN never passes.
func Within[T number](tolerance float64) Evaluator[T, T] {
	return func(_ context.Context, trial Trial[T, T]) (Score, error) {
		equal := trial.Output == trial.Expected // infinities have no difference
		return verdict(equal || apart(trial.Output, trial.Expected) <= tolerance, fmt.Sprintf("got %v, expected %v, at most %v apart", trial.Output, trial.Expected, tolerance)), nil
	}
}

// apart returns the difference of two numbers. For integers it is exact until it is
// converted to float64.
func apart[T number](a, b T) float64 {
	one, two := T(1), T(2)
	if whole := one/two == 0; !whole {
		return math.Abs(float64(a) - float64(b))
	}
	// Correct also for negative numbers, and for differences that overflow T.
	return float64(uint64(max(a, b)) - uint64(min(a, b)))
}

// JSONEqual passes if output and expectation are equal as JSON: the order of fields
// and the format of numbers do not matter. Strings, bytes and json.RawMessage are
// parsed as JSON; other values are encoded. An output that is not JSON fails; an
// expectation that is not JSON is an error.
func JSONEqual[Out, Expected any]() Evaluator[Out, Expected] {
	return func(_ context.Context, trial Trial[Out, Expected]) (Score, error) {
		expected, err := asJSON(trial.Expected)
		if err != nil {
			return Score{}, evaluatorError("the expectation is not JSON", err)
		}
		output, err := asJSON(trial.Output)
		if err != nil {
			return verdict(false, fmt.Sprintf("the output is not JSON: %v", err)), nil
		}
		return verdict(sameJSON(output, expected), fmt.Sprintf("got %v, expected %v", output, expected)), nil
	}
}

// asJSON returns a value as decoded JSON, with exact numbers.
func asJSON(value any) (any, error) {
	var text []byte
	switch v := value.(type) {
	case string:
		text = []byte(v)
	case []byte:
		text = v
	case json.RawMessage:
		text = v
	default:
		var err error
		if text, err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the JSON value")
	}
	return decoded, nil
}

// sameJSON compares two results of asJSON.
func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameJSON)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameJSON)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a, b)
	}
	return a == b
}

// sameNumber compares whole numbers digit by digit, and others as float64.
func sameNumber(a, b json.Number) bool {
	whole := func(n json.Number) bool { return !strings.ContainsAny(n.String(), ".eE") }
	if a == b {
		return true
	}
	if whole(a) && whole(b) {
		return strings.TrimPrefix(a.String(), "-") == "0" && strings.TrimPrefix(b.String(), "-") == "0"
	}
	x, err := a.Float64()
	if err != nil {
		return false // outside the range of float64
	}
	y, err := b.Float64()
	return err == nil && x == y
}
