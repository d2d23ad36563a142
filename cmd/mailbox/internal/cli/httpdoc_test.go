package cli_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/server"
)

// A values finds the values that differ in each run of a document: ids and receipts, in the
// order of their appearance.
type values struct{ ids, receipts []string }

var (
	deliveryReceipts = regexp.MustCompile(`"receipt":"([^"]+)"`)
	hashes           = regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`)
	correlations     = regexp.MustCompile(`"corr_id":"[^"]+"`)
	versions         = regexp.MustCompile(`"version":"[^"]+"`)
)

func (v *values) add(output string) {
	for _, id := range ulids.FindAllString(output, -1) {
		if !slices.Contains(v.ids, id) {
			v.ids = append(v.ids, id)
		}
	}
	for _, match := range deliveryReceipts.FindAllStringSubmatch(output, -1) {
		v.receipts = append(v.receipts, match[1])
	}
}

// rewrite replaces the values of v by those of other.
func (v *values) rewrite(text string, other *values) string {
	var pairs []string
	for _, lists := range [][2][]string{{v.ids, other.ids}, {v.receipts, other.receipts}} {
		for i := range min(len(lists[0]), len(lists[1])) {
			pairs = append(pairs, lists[0][i], lists[1][i])
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// steady removes from an output what differs in each run and is not compared.
func steady(output string) string {
	output = hashes.ReplaceAllString(output, "HASH")
	output = correlations.ReplaceAllString(output, `"corr_id":"ID"`)
	output = versions.ReplaceAllString(output, `"version":"V"`)
	output = moments.ReplaceAllString(output, "TIME")
	return output
}

// TestHTTPDocumentIsTrue runs the commands of docs/http.md in their order and
// compares their output. With -update it writes their output into the document.
func TestHTTPDocumentIsTrue(t *testing.T) {
	const path = "../../../../docs/http.md"
	proctest.Find(t, "curl")
	d := start(t, inMemory())
	token, err := os.ReadFile(d.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	environ := append(os.Environ(), "MAILBOX=http://"+d.Address(server.HTTP), "AUTH=Authorization: Bearer "+strings.TrimSpace(string(token)))
	var said, got values // of the document, and of this run
	var written strings.Builder
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	console, commands := false, 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		written.WriteString(said.rewrite(line, &got) + "\n")
		if strings.HasPrefix(line, "```") {
			console = line == "```console"
			continue
		}
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok || !console {
			continue
		}
		commands++
		var want strings.Builder
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && !strings.HasPrefix(lines[i+1], "```") {
			i++
			want.WriteString(lines[i] + "\n")
		}
		shell := exec.CommandContext(t.Context(), "sh", "-c", said.rewrite(command, &got))
		shell.Env = environ
		output, err := shell.Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		said.add(want.String())
		got.add(string(output))
		written.Write(output)
		if !*update {
			compareLines(t, steady(string(output)), steady(said.rewrite(want.String(), &got)))
		}
	}
	if commands < 20 {
		t.Errorf("the document has only %d commands", commands)
	}
	if *update {
		if err := os.WriteFile(path, []byte(written.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
