package doctest

import (
	"os"
	"path/filepath"
	"testing"
)

const page = "# A page\n\n```sh\nexport NAME=tea\nmailboxd\n```\n\n1. First:\n\n   ```console\n   $ echo \"$NAME\"; exit 3\n   coffee\n   $ test -e a.txt\n   ```\n\n```text a.txt\nat 127.0.0.1:1\n```\n\n```console\n$ cat a.txt\n```\n"

func TestPageIsWrittenWithItsOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page.md")
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	var others []string
	p := Page{
		Path: path, Dir: dir, Update: true, Addresses: map[string]string{"127.0.0.1:1": "127.0.0.1:2"},
		Environ: []string{"PATH=/usr/bin:/bin"}, Other: func(line string) { others = append(others, line) },
	}
	p.Run(t)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	CompareLines(t, string(got), "# A page\n\n```sh\nexport NAME=tea\nmailboxd\n```\n\n1. First:\n\n   ```console\n   $ echo \"$NAME\"; exit 3\n   tea\n   (exit code 3)\n   $ test -e a.txt\n   (exit code 1)\n   ```\n\n```text a.txt\nat 127.0.0.1:1\n```\n\n```console\n$ cat a.txt\nat 127.0.0.1:1\n```\n")
	if len(others) != 1 || others[0] != "mailboxd" {
		t.Errorf("lines that set no variable: %q", others)
	}
	if written, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(written) != "at 127.0.0.1:2\n" {
		t.Errorf("the file has %q, %v", written, err)
	}
	p = Page{Path: path, Dir: t.TempDir(), Environ: p.Environ, Addresses: p.Addresses}
	p.Run(t) // and what was written is true
}

func TestPageNeedsTheProgramsThatItsCommandsName(t *testing.T) {
	t.Setenv("MAILBOX_REQUIRE_SERVERS", "")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sh"), nil, 0o700); err != nil { //nolint:gosec // it is looked for
		t.Fatal(err)
	}
	skipped := false
	t.Run("page", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		p := Page{Environ: []string{"PATH=" + bin}}
		p.need(t, "```console\n$ echo\npython3\n```\n```sh\nnode a.mjs\n```\n")
		p.need(t, "```console\n$ x=1 python3 -c ''\n```\n")
		t.Error("went on without python3")
	})
	if !skipped {
		t.Error("the test was not skipped")
	}
}

func TestBlocksThatAreRun(t *testing.T) {
	blocks := Blocks(page + "```sh\nexport A=b\n```\n```go\n```\n")
	want := []bool{false, true, true, true, true, false}
	if len(blocks) != len(want) || blocks[0].Line != 4 || blocks[1].Lines[1] != "coffee" {
		t.Fatalf("got %+v", blocks)
	}
	for i, b := range blocks {
		if b.IsRun() != want[i] {
			t.Errorf("block %d: %v, want %v", i, b.IsRun(), want[i])
		}
	}
}
