// Package doctest runs the commands that pages of the documentation show, and compares what they
// print with what the pages say.
//
// In a block of the language console, lines that begin with "$ " are commands, and the lines up
// to the next one are their output, with "(exit code N)" at its end unless N is 0. In a block of
// the language sh, lines that begin with "export " set variables for the commands that follow,
// and others are left to the caller. A block with a file name behind its language is written to
// that file.
package doctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A Page is a page that is run.
type Page struct {
	Path      string            // of the file
	Dir       string            // where its commands run
	Environ   []string          // of its commands
	Addresses map[string]string // those of the page, and what they are in this run
	Other     func(line string) // is called with lines of sh that set no variable; nil ignores them
	Update    bool              // write the output into the page instead of comparing it

	real, shown *strings.Replacer // of addresses
	said, got   values            // of the page, and of this run
	commands    int
}

// A Block is a fenced part of a page.
type Block struct {
	Language, File string
	Line           int // of its first line
	Lines          []string

	indent string
}

// Blocks returns the fenced parts of a page.
func Blocks(page string) (blocks []Block) {
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		indent, fence, ok := strings.Cut(lines[i], "```")
		if !ok || strings.TrimSpace(indent) != "" {
			continue
		}
		b := Block{Line: i + 2, indent: indent}
		b.Language, b.File, _ = strings.Cut(fence, " ")
		for i++; i < len(lines) && lines[i] != indent+"```"; i++ {
			b.Lines = append(b.Lines, strings.TrimPrefix(lines[i], indent))
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// IsRun reports whether [Page.Run] runs or writes all of the block.
func (b *Block) IsRun() bool {
	variables := !slices.ContainsFunc(b.Lines, func(line string) bool { return !strings.HasPrefix(line, "export ") })
	return b.File != "" || b.Language == "console" || b.Language == "sh" && variables
}

// Run runs the page. It ends the test if a program that its commands name is missing, see [proctest.End].
func (p *Page) Run(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(p.Path)
	if err != nil {
		t.Fatal(err)
	}
	p.need(t, string(text))
	var pairs, back []string
	for page, now := range p.Addresses {
		pairs, back = append(pairs, page, now), append(back, now, page)
	}
	p.real, p.shown = strings.NewReplacer(pairs...), strings.NewReplacer(back...)
	lines := strings.Split(string(text), "\n")
	var written []string
	done := 0 // lines
	for _, b := range Blocks(string(text)) {
		written = append(written, lines[done:b.Line-1]...)
		for _, line := range p.block(t, &b) {
			written = append(written, b.indent+line)
		}
		done = b.Line - 1 + len(b.Lines)
	}
	written = append(written, lines[done:]...)
	if p.commands == 0 {
		t.Errorf("%s has no commands", p.Path)
	}
	if p.Update {
		content := p.said.rewrite(strings.Join(written, "\n"), &p.got)
		if err := os.WriteFile(p.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// named matches the programs that commands name, of those that a system may lack.
var named = regexp.MustCompile(`\b(curl|node|python3)\b`)

// need ends the test if the shell is missing from the PATH of the page, or a program that its commands name.
func (p *Page) need(t *testing.T, text string) {
	t.Helper()
	programs := []string{"sh"}
	for _, b := range Blocks(text) {
		for _, line := range b.Lines {
			if command, ok := strings.CutPrefix(line, "$ "); ok && b.Language == "console" {
				programs = append(programs, named.FindAllString(command, -1)...)
			}
		}
	}
	for _, program := range programs {
		if !p.has(program) {
			proctest.End(t, &proctest.MissingError{Program: program})
		}
	}
}

// has reports whether a program is in the PATH of the page.
func (p *Page) has(program string) bool {
	var folders []string
	for _, variable := range p.Environ {
		if list, ok := strings.CutPrefix(variable, "PATH="); ok {
			folders = filepath.SplitList(list)
		}
	}
	return slices.ContainsFunc(folders, func(folder string) bool {
		_, err := exec.LookPath(filepath.Join(folder, program))
		return err == nil
	})
}

// block runs a block, and returns its lines with the output of this run.
func (p *Page) block(t *testing.T, b *Block) []string {
	t.Helper()
	switch {
	case b.File != "":
		content := p.real.Replace(strings.Join(b.Lines, "\n") + "\n")
		if err := os.WriteFile(filepath.Join(p.Dir, b.File), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	case b.Language == "sh":
		for _, line := range b.Lines {
			if assignment, ok := strings.CutPrefix(line, "export "); ok {
				p.export(t, assignment)
			} else if p.Other != nil {
				p.Other(line)
			}
		}
	case b.Language == "console":
		return p.session(t, b.Lines)
	}
	return b.Lines
}

// export adds a variable, whose value the shell computes, to the environment.
func (p *Page) export(t *testing.T, assignment string) {
	t.Helper()
	name, _, _ := strings.Cut(assignment, "=")
	output, err := p.shell(t, assignment+"; printf %s \"$"+name+"\"").Output()
	if err != nil {
		t.Fatalf("export %s: %v", assignment, err)
	}
	p.Environ = append(p.Environ, name+"="+string(output))
}

func (p *Page) shell(t *testing.T, command string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", p.real.Replace(p.said.rewrite(command, &p.got)))
	c.Env, c.Dir = p.Environ, p.Dir
	return c
}

// session runs the commands of a block, and returns its lines with the output of this run.
func (p *Page) session(t *testing.T, lines []string) (written []string) {
	t.Helper()
	for i := 0; i < len(lines); i++ {
		written = append(written, lines[i])
		command, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			t.Fatalf("%s: %q is the output of no command", p.Path, lines[i])
		}
		var want strings.Builder
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") {
			i++
			want.WriteString(lines[i] + "\n")
		}
		if output := p.command(t, command, want.String()); output != "" {
			written = append(written, strings.Split(strings.TrimSuffix(output, "\n"), "\n")...)
		}
	}
	return written
}

// command runs a command, compares its output, and returns it.
func (p *Page) command(t *testing.T, command, want string) string {
	t.Helper()
	p.commands++
	output, err := p.shell(t, command).CombinedOutput()
	if len(output) > 0 && output[len(output)-1] != '\n' {
		output = append(output, '\n')
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		output = fmt.Appendf(output, "(exit code %d)\n", exit.ExitCode())
	} else if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	text := p.shown.Replace(string(output))
	p.said.add(want)
	p.got.add(text)
	if !p.Update {
		CompareLines(t, "$ "+command+"\n"+steady(text), "$ "+command+"\n"+steady(p.said.rewrite(want, &p.got)))
	}
	return text
}

// CompareLines fails the test at the first line that differs, and names the command before it.
func CompareLines(t testing.TB, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	command := ""
	for i := range max(len(gotLines), len(wantLines)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "(nothing)"
		}
		if strings.HasPrefix(line(wantLines), "$ ") {
			command = line(wantLines)
		}
		if line(gotLines) != line(wantLines) {
			t.Fatalf("line %d, in %s\ngot  %s\nwant %s", i+1, command, line(gotLines), line(wantLines))
		}
	}
}
