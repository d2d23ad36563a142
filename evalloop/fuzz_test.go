package evalloop_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/mailboxmq/mailbox/evalloop"
)

// FuzzLoad reads datasets. One that is read has an id for each sample, and a sample for
// each line that is not empty.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"id":"1","input":"a","expected":"b"}` + "\n\n" + `{"id":"2","input":"","expected":""}`))
	f.Add([]byte(`{"id":"1","input":1,"expected":null,"more":2}`))
	f.Add([]byte("\xff\x00{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		data, err := evalloop.Load[json.RawMessage, string](bytes.NewReader(text))
		if err != nil {
			return
		}
		lines := 0
		for line := range bytes.Lines(text) {
			if len(bytes.TrimSpace(line)) > 0 {
				lines++
			}
		}
		if data.Len() != lines {
			t.Errorf("%d lines are %d samples", lines, data.Len())
		}
		for i, sample := range data.All() {
			if sample.ID == "" {
				t.Errorf("sample %d has no id", i)
			}
		}
	})
}
