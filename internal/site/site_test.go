package site

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// program is the compiled generator.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "site-")
	if err == nil {
		program = filepath.Join(dir, "site")
		build := exec.Command("go", "build", "-o", program, ".")
		build.Dir = "../../tools/site"
		var output []byte
		if output, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("build of tools/site: %w: %s", err, output)
		}
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build runs the generator, and returns the folder of the version.
func build(t *testing.T, source, version, out string) (string, error) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), program, "-source", source, "-version", version, "-out", out).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return filepath.Join(out, version), err
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocumentationHasNoDeadLinks(t *testing.T) {
	out := t.TempDir()
	dir, err := build(t, "../..", "v0.1.0", out)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d pages in docs: %v", len(pages), err)
	}
	list := read(t, dir, "llms.txt")
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		html := read(t, dir, name+".html")
		if !strings.Contains(html, `<a href="llms.txt">`) || !strings.Contains(read(t, dir, name+".md"), "# ") {
			t.Errorf("%s has no frame, or no Markdown", name)
		}
		if name != "index" && !strings.Contains(list, "]("+name+".md): ") {
			t.Errorf("llms.txt does not name %s", name)
		}
	}
	if _, err := build(t, "../..", "next", out); err != nil {
		t.Fatal(err)
	}
	if versions := read(t, out, "versions.js"); versions != "siteVersions = [\"next\",\"v0.1.0\"];\n" {
		t.Errorf("versions.js says %s", versions)
	}
	if redirect := read(t, out, "index.html"); !strings.Contains(redirect, "url=v0.1.0/index.html") {
		t.Errorf("the first page leads to another version than the newest release: %s", redirect)
	}
	findsWords(t, dir)
}

// findsWords checks what a search finds, with the script of the site.
func findsWords(t *testing.T, dir string) {
	t.Helper()
	for words, want := range map[string]string{"dedup window": "semantics.html", "helm": "deploying.html", "xyzzy": ""} {
		script := `globalThis.document = { documentElement: { dataset: {} }, addEventListener() {} }; globalThis.matchMedia = () => ({});` +
			read(t, dir, "assets", "search.js") + read(t, dir, "assets", "site.js") +
			fmt.Sprintf(`; for (const [row] of find(%q.split(" ")).slice(0, 12)) console.log(row[0])`, words)
		node := exec.CommandContext(t.Context(), proctest.Find(t, "node"), "-")
		node.Stdin = strings.NewReader(strings.Replace(strings.Replace(script, "searchIndex = ", "var searchIndex = ", 1), `"use strict";`, "", 1))
		found, err := node.CombinedOutput()
		if err != nil || !strings.Contains(string(found), want) || want == "" && len(found) > 0 {
			t.Errorf("%q finds %s (%v), want %s", words, bytes.TrimSpace(found), err, want)
		}
	}
}

func TestBuildNoticesWhatIsWrong(t *testing.T) {
	const index = "# Mailbox\n\nIt is a queue.\n\n## Start\n\n- [One](one.md): the first.\n- [Changelog](../CHANGELOG.md): what changed.\n"
	for name, c := range map[string]struct{ index, one, want string }{
		"sound":              {index, "# One\n\n[back](index.md#start)\n", ""},
		"missing page":       {index, "# One\n\n[two](two.md)\n", "two.md"},
		"missing heading":    {index, "# One\n\n[back](index.md#end)\n", "one.html: index.html#end: no such heading"},
		"missing picture":    {index, "# One\n\n![all](all.png)\n", "all.png"},
		"page without entry": {strings.Replace(index, "one.md", "index.md", 1), "# One\n", "docs/one.md is not listed"},
		"page without title": {index, "One\n", "docs/one.md: no title"},
	} {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			for file, text := range map[string]string{
				"docs/index.md": c.index, "docs/one.md": c.one, "CHANGELOG.md": "# Changelog\n",
				"server/internal/console/assets/console.css": ":root {}\n* {}\n",
			} {
				file = filepath.Join(source, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := build(t, source, "next", t.TempDir())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}
