package evalloop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox"
)

// A Sample is an input and the expected output.
type Sample[In, Expected any] struct {
	ID       string   `json:"id"`
	Input    In       `json:"input"`
	Expected Expected `json:"expected"`
}

// A Dataset is an immutable list of samples with different ids.
type Dataset[In, Expected any] struct {
	samples []Sample[In, Expected]
}

// NewDataset returns a dataset. Codes: ErrInvalid if a sample has no id, or the id of
// another one.
func NewDataset[In, Expected any](samples ...Sample[In, Expected]) (*Dataset[In, Expected], error) {
	return newDataset(slices.Clone(samples), func(i int) string { return fmt.Sprintf("sample %d", i+1) })
}

// newDataset checks the ids. name describes a sample in errors.
func newDataset[In, Expected any](samples []Sample[In, Expected], name func(i int) string) (*Dataset[In, Expected], error) {
	seen := make(map[string]int, len(samples))
	for i := range samples {
		id := samples[i].ID
		if id == "" {
			return nil, datasetError(mailbox.ErrInvalid, name(i)+" has no id", nil)
		}
		if other, known := seen[id]; known {
			return nil, datasetError(mailbox.ErrInvalid, fmt.Sprintf("%s has the id %q, as %s has", name(i), id, name(other)), nil)
		}
		seen[id] = i
	}
	return &Dataset[In, Expected]{samples: samples}, nil
}

// byteOrderMark is at the start of files of some editors.
var byteOrderMark = []byte("\xef\xbb\xbf")

// maxLineBytes bounds one line of a dataset.
const maxLineBytes = 16 << 20

// Load reads a dataset of JSON lines: one object a line, with id, input and expected,
// and no other fields. Empty lines are skipped, and so is a byte order mark. Codes: ErrEncoding, ErrInvalid and ErrTooLarge, naming the
// line; and the reader's own errors.
func Load[In, Expected any](from io.Reader) (*Dataset[In, Expected], error) {
	var samples []Sample[In, Expected]
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLineBytes)
	number := 0
	var numbers []int // of the lines that the samples are in
	for lines.Scan() {
		number++
		line := lines.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		sample, err := decodeSample[In, Expected](line)
		if err != nil {
			return nil, datasetError(mailbox.ErrEncoding, fmt.Sprintf("line %d", number), err)
		}
		samples, numbers = append(samples, sample), append(numbers, number)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, datasetError(mailbox.ErrTooLarge, fmt.Sprintf("line %d has more than %d bytes", number+1, maxLineBytes), nil)
	} else if err != nil {
		return nil, err
	}
	return newDataset(samples, func(i int) string { return fmt.Sprintf("line %d", numbers[i]) })
}

// decodeSample decodes one line. Fields that are missing, unknown or of another type
// are errors: a misread sample is worse than none.
func decodeSample[In, Expected any](line []byte) (Sample[In, Expected], error) {
	var sample Sample[In, Expected]
	var present map[string]json.RawMessage
	if err := json.Unmarshal(line, &present); err != nil {
		return sample, err
	}
	for _, field := range []string{"id", "input", "expected"} {
		if _, ok := present[field]; !ok {
			return sample, fmt.Errorf("missing field %q", field)
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	return sample, decoder.Decode(&sample)
}

func datasetError(code mailbox.Code, detail string, err error) error {
	return &mailbox.Error{Code: code, Op: "dataset", Detail: detail, Err: err}
}

// Len returns the number of samples.
func (d *Dataset[In, Expected]) Len() int { return len(d.samples) }

// At returns the sample at a position. It panics if there is none.
func (d *Dataset[In, Expected]) At(i int) Sample[In, Expected] { return d.samples[i] }

// All yields the samples with their positions, in order.
func (d *Dataset[In, Expected]) All() iter.Seq2[int, Sample[In, Expected]] {
	return slices.All(d.samples)
}
