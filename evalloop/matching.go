package evalloop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// ExactMatch passes if the output is what was expected.
func ExactMatch[T comparable]() Evaluator[T, T] {
	return func(_ context.Context, trial Trial[T, T]) (Score, error) {
		return verdict(trial.Output == trial.Expected, fmt.Sprintf("got %v, expected %v", trial.Output, trial.Expected)), nil
	}
}

// Contains passes if the expected text is part of the output, letter by letter. An
// empty one always is.
func Contains() Evaluator[string, string] {
	return func(_ context.Context, trial Trial[string, string]) (Score, error) {
		return verdict(strings.Contains(trial.Output, trial.Expected), fmt.Sprintf("%q is not in it", trial.Expected)), nil
	}
}

// Number is a type that has an order and differences.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Within passes if the output differs from what was expected by tolerance at most.
// What is no number passes for nothing.
func Within[T Number](tolerance float64) Evaluator[T, T] {
	return func(_ context.Context, trial Trial[T, T]) (Score, error) {
		apart := math.Abs(float64(trial.Output) - float64(trial.Expected))
		equal := trial.Output == trial.Expected // infinities have no difference
		return verdict(equal || apart <= tolerance, fmt.Sprintf("got %v, expected %v, at most %v apart", trial.Output, trial.Expected, tolerance)), nil
	}
}

// JSONEqual passes if output and expectation are the same as JSON: the order of
// fields and the writing of numbers do not matter. Texts, bytes and
// json.RawMessage are taken for JSON; other values are encoded. An output that is
// no JSON fails; an expectation that is none is an error.
func JSONEqual[Out, Expected any]() Evaluator[Out, Expected] {
	return func(_ context.Context, trial Trial[Out, Expected]) (Score, error) {
		expected, err := asJSON(trial.Expected)
		if err != nil {
			return Score{}, evaluatorError("what is expected is no JSON", err)
		}
		output, err := asJSON(trial.Output)
		if err != nil {
			return verdict(false, fmt.Sprintf("the output is no JSON: %v", err)), nil
		}
		return verdict(reflect.DeepEqual(output, expected), fmt.Sprintf("got %v, expected %v", output, expected)), nil
	}
}

// asJSON is a value as JSON knows it, with exact numbers.
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
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("there is something after it")
	}
	return decoded, nil
}
