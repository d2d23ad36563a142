// Package golden compares what tests make with files of the repository.
package golden

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

// Update is the flag -update of tests: they write the files instead of comparing them. Review
// the diff.
var Update = flag.Bool("update", false, "write the files that tests compare with")

// Match checks that a file has the content. With -update it writes the file.
func Match(t *testing.T, file string, content []byte) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, want) {
		t.Errorf("%s differs; if the change is meant, run this test with -update. Got:\n%s", file, content)
	}
}

// MatchJSON checks that a file has the value as indented JSON.
func MatchJSON(t *testing.T, file string, value any) {
	t.Helper()
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	Match(t, file, content.Bytes())
}
