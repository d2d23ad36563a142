package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// accessRows reads the table of operations by task: command, operations, queues.
func accessRows(t *testing.T) (rows [][3]string) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) == 4 && strings.HasPrefix(cells[1], "`mailbox ") {
			rows = append(rows, [3]string{strings.Trim(cells[1], "`"), strings.ReplaceAll(cells[2], "`", ""), strings.Trim(cells[3], "`")})
		}
	}
	if len(rows) < 15 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	return rows
}

func TestDocumentedOperationsAreNeededAndEnough(t *testing.T) {
	d := start(t, onDisk())
	dir := t.TempDir()
	d.must(t, "queues", "create", "jobs", "--fair-groups") // so that groups can be throttled
	for i, row := range accessRows(t) {
		id := d.must(t, "send", "jobs", "x")
		slot := "slot-" + id
		d.post(t, "/v1/replies/create", `{"slot":"`+slot+`"}`)
		operations := strings.Split(row[1], ", ")
		queue := row[2]
		if queue == "all" {
			queue = "*"
		}
		run := func(name string, operations []string) result {
			file := filepath.Join(dir, name)
			d.must(t, "cap", "mint", "--op", strings.Join(operations, ","), "--queue", queue, "--expires", "1h", "--out", file)
			words := strings.Fields(strings.NewReplacer(" ID", " "+id, " SLOT", " "+slot, " FILE", " "+filepath.Join(dir, "backup")).Replace(row[0]))
			return mailbox(t, d.environ("MAILBOX_TOKEN_FILE="+file), words[1:]...)
		}
		for j := range operations {
			others := slices.Delete(slices.Clone(operations), j, j+1)
			if len(others) == 0 {
				others = []string{"extend"} // a token must allow something
			}
			if r := run(string(rune('a'+i))+string(rune('0'+j)), others); r.code != 4 || !strings.Contains(r.stderr, `does not allow "`+operations[j]+`"`) {
				t.Errorf("%s works without %s: exit code %d, %s", row[0], operations[j], r.code, r.stderr)
			}
		}
		if r := run(string(rune('a'+i)), operations); r.code != 0 {
			t.Errorf("%s does not work with %s: exit code %d, %s", row[0], row[1], r.code, r.stderr)
		}
	}
}
