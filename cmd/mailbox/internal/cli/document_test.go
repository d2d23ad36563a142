package cli_test

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
	"github.com/mailboxmq/mailbox/server"
)

// A values finds the values that differ in each run of a document: ids and receipts, in the
// order of their appearance.
type values struct{ ids, receipts []string }

var (
	deliveryReceipts = regexp.MustCompile(`"receipt":"([^"]+)"`)
	hashes           = regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`)
	correlations     = regexp.MustCompile(`"corr_id":"[^"]+"`)
	zoned            = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d`)
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
	output = zoned.ReplaceAllString(output, "TIME")
	output = moments.ReplaceAllString(output, "TIME")
	return output
}

// A document is a page with commands, and what it needs beside a shell.
type document struct {
	path    string
	config  server.Config
	sqs     string // the address of the document for clients of SQS, or ""
	modules string // of Python
}

var documents = []document{
	{path: "http.md", config: inMemory()},
	{path: "tutorial.md", config: onDisk()},
	{path: "dead-letters.md", config: inMemory()},
	{path: "schedules.md", config: inMemory()},
	{path: "errors.md", config: inMemory()},
	{path: "from/localstack.md", config: emulator("localstack"), sqs: "127.0.0.1:4566", modules: "boto3"},
	{path: "from/elasticmq.md", config: emulator("elasticmq"), sqs: "127.0.0.1:9324", modules: "boto3"},
	{path: "from/sqs.md", config: inMemory(), modules: "boto3"},
	{path: "from/bullmq.md", config: inMemory()},
	{path: "from/celery.md", config: emulator("localstack"), sqs: "127.0.0.1:4566", modules: "celery, kombu, boto3, pycurl"},
	{path: "from/rabbitmq.md", config: inMemory()},
}

// emulator returns the configuration of a daemon that stands in for one of SQS.
func emulator(name string) server.Config {
	return server.Config{Backend: "memory:", ListenSQS: "127.0.0.1:0", SQS: server.SQSConfig{Unsigned: true, Compatibility: name}}
}

// TestDocumentsAreTrue runs the commands of documents in their order and compares their
// output. A code block with a file name behind its language is written to that file before.
// With -update the output is written into the document.
func TestDocumentsAreTrue(t *testing.T) {
	for _, d := range documents {
		t.Run(d.path, func(t *testing.T) {
			path := filepath.Join("../../../../docs", d.path)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			d.need(t)
			p := &printed{t: t, dir: t.TempDir()}
			p.connect(start(t, d.config), d.sqs)
			written := p.run(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
			if p.commands == 0 {
				t.Error("the document has no commands")
			}
			if *update {
				if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// need ends a test whose programs are missing.
func (d *document) need(t *testing.T) {
	t.Helper()
	proctest.Find(t, "curl")
	if d.modules == "" {
		return
	}
	if output, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import "+d.modules).CombinedOutput(); err != nil {
		proctest.End(t, &proctest.MissingError{Program: "Python with " + d.modules, Err: fmt.Errorf("%w: %s", err, output)})
	}
}

// A printed document is run against a daemon.
type printed struct {
	t           *testing.T
	dir         string // where its commands run
	environ     []string
	real, shown *strings.Replacer // addresses of the daemon, and of the document
	said, got   values            // of the document, and of this run
	commands    int
}

// connect prepares the environment of commands: variables, addresses, and mailbox in the path.
func (p *printed) connect(d *daemon, sqs string) {
	p.t.Helper()
	program, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	bin := p.t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asProgram, program)
	if err := os.WriteFile(filepath.Join(bin, "mailbox"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		p.t.Fatal(err)
	}
	token := d.OperatorToken().Reveal()
	p.environ = d.environ("PATH="+bin+":/usr/bin:/bin", "MAILBOX=http://"+d.Address(server.HTTP), "AUTH=Authorization: Bearer "+token, "MAILBOX_TOKEN="+token)
	var pairs, back []string
	for address, at := range map[string]string{"127.0.0.1:9410": d.Address(server.HTTP), "127.0.0.1:9411": d.Address(server.OAP), sqs: d.Address(server.SQS)} {
		if address != "" {
			pairs, back = append(pairs, address, at), append(back, at, address)
		}
	}
	p.real, p.shown = strings.NewReplacer(pairs...), strings.NewReplacer(back...)
}

// run runs the document, and returns it with the output of this run.
func (p *printed) run(lines []string) string {
	var written strings.Builder
	language, file := "", ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		written.WriteString(p.said.rewrite(line, &p.got) + "\n")
		if fence, ok := strings.CutPrefix(line, "```"); ok {
			language, file, _ = strings.Cut(fence, " ")
			continue
		}
		if file != "" {
			p.append(file, line)
		}
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok || language != "console" {
			continue
		}
		var want strings.Builder
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && !strings.HasPrefix(lines[i+1], "```") {
			i++
			want.WriteString(lines[i] + "\n")
		}
		written.WriteString(p.command(command, want.String()))
	}
	return written.String()
}

// append adds a line to a file of the document.
func (p *printed) append(file, line string) {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.dir, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(p.real.Replace(line) + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// command runs a command, compares its output, and returns it.
func (p *printed) command(command, want string) string {
	p.t.Helper()
	p.commands++
	shell := exec.CommandContext(p.t.Context(), "sh", "-c", p.real.Replace(p.said.rewrite(command, &p.got)))
	shell.Env, shell.Dir = p.environ, p.dir
	output, err := shell.CombinedOutput()
	if len(output) > 0 && output[len(output)-1] != '\n' {
		output = append(output, '\n')
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		output = fmt.Appendf(output, "(exit code %d)\n", exit.ExitCode())
	} else if err != nil {
		p.t.Fatalf("%s: %v", command, err)
	}
	text := p.shown.Replace(string(output))
	p.said.add(want)
	p.got.add(text)
	if !*update {
		compareLines(p.t, "$ "+command+"\n"+steady(text), "$ "+command+"\n"+steady(p.said.rewrite(want, &p.got)))
	}
	return text
}
