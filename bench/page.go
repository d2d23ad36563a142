package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// writePage renders files that -json wrote as a page of the documentation.
func writePage(page string, files []string) error {
	text, err := renderPage(files)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

func renderPage(files []string) (string, error) {
	var out strings.Builder
	fmt.Fprint(&out, pageHead)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		var d daemonResults
		if err := json.Unmarshal(text, &d); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		d.render(&out, filepath.Base(file))
	}
	fmt.Fprint(&out, pageFoot)
	return out.String(), nil
}

const pageHead = `# Benchmarks

<!-- Written by make bench-page from the files in bench/results. Do not edit. -->

` + "`mailboxd`" + ` beside the servers that it may replace, each as its users run it, on one machine, clients included. Read the
ratios, not the rates: a machine with other work differs by half from one minute to the next. All servers of a workload run in
turns, round by round; a ratio is taken within each round, and the median of the ratios counts. Processor time a message moves least with
other work on the machine.

| server | how it runs |
|---|---|
| mailboxd | default settings, ` + "`remotebox`" + `, one connection shared by all workers. Memory: nothing is kept. Disk: synced before each answer |
| baseline | an earlier build of mailboxd, with the same client |
| redis | lists; a message moves to the list of its consumer and is removed from it by the ack. Disk: ` + "`appendonly yes`, `appendfsync always`" + ` |
| beanstalkd | one job a command. Disk: ` + "`-b DIR -f0`" + ` |
| nats | JetStream, a work queue, pulled some messages ahead; publishing and acks are confirmed. Disk: ` + "`sync_interval: always`" + ` |
| rabbitmq | a quorum queue, publisher confirms, some messages sent ahead; its protocol does not confirm acks |
| river | River on PostgreSQL with default settings, fetching as often as River allows; it completes jobs after the worker has returned |
| redisbox | the library on a Redis without a file |
| fauxqs, goaws | emulators of Amazon SQS, on Node.js and in Go, in memory (S1 and S2) |

In S1 and S2 all servers, mailboxd too, are asked over the JSON protocol of SQS, with a connection for each worker. Requests have the headers and
the signature of an SDK; mailboxd verifies it, the emulators do not. The client signs sends before the clock starts and deletions while
it runs. For the start of a server mailboxd runs as in [tests](testing.md), and verifies nothing either; the client asks every millisecond.

Peers have a client that does no more than it must, or their own, with a connection for each worker. Bodies have 256 random bytes unless a
table says otherwise. Every run checks that each message came exactly once.
`

const pageFoot = `
## What the figures do not say

- Clients and servers share the processors. On two machines a server that needs less processor time gains more than these rates show;
  compare the columns of processor time.
- A list of Redis and a tube of beanstalkd have no dead letters that keep their reason, no dedup keys and no tokens. A consumer of a
  Redis list that dies leaves its messages in its own list.
- The emulators of SQS (S1 and S2) neither verify signatures nor seal messages, and keep nothing on the disk.
- Everything is on one machine: no replication, no TLS, no network between client and server.
- "Synced" is what the system says. A disk that acknowledges a flush early makes all servers faster and none durable.
- Flushes are calls of fsync and fdatasync by the server. Context switches are those of threads that live at the end of a round.

## Measure yours

` + "```sh" + `
make bench-daemon                                              # all workloads and peers: half an hour
make bench-daemon BENCHFLAGS="-run W1,W2,W3 -peers redis -rounds 1"    # below a minute
make bench-daemon BENCHFLAGS="-baseline /tmp/mailboxd-before -run W1"  # two builds in turns
make bench-daemon BENCHFLAGS="-peers mailboxd-redis -connections 2 -run W1,W2"  # mailboxd with its queues in Redis
make bench-sqs                                                 # S1 and S2, beside emulators of SQS
make bench-start                                               # the start of a server for tests: two minutes
cd bench && go run . -suite growth                             # how cost grows
` + "```" + `

Peers that are not installed are named in the output. ` + "`-json FILE`" + ` writes every figure of every round. Flushes are counted for root with tracefs
mounted at ` + "`/sys/kernel/tracing`" + `.
`

// render writes what one file has.
func (d *daemonResults) render(out io.Writer, file string) {
	rounds := fmt.Sprintf("%d rounds of %s", d.Rounds, d.Slot)
	title := "How cost grows"
	switch d.Suite {
	case "growth":
	case "start":
		title, rounds = "The start of a server for tests", fmt.Sprintf("%d starts of each, in turns", d.Rounds)
	default:
		var ran []string
		for _, w := range d.workloads() {
			if len(d.tables(w.name)) > 0 {
				ran = append(ran, w.name)
			}
		}
		title = "Workloads " + strings.Join(ran, ", ")
	}
	fmt.Fprintf(out, "\n## %s\n\n", title)
	m := d.Machine
	other := "load average " + m.Load + " at the start"
	if m.Priority != "" {
		other += ", run with " + m.Priority + " beside other work"
	}
	fmt.Fprintf(out, "`%s` on %s, %d processors (%s), %d GiB, Linux %s, %s; %s; %s. All figures: `bench/results/%s`.\n",
		d.Command, d.Time.Format("2 January 2006"), m.Cores, m.Processor, m.MemoryGiB, m.Kernel, m.Filesystem, rounds, other, file)
	fmt.Fprintf(out, "\nVersions: ")
	for i, name := range sortedKeys(d.Versions) {
		if i > 0 {
			fmt.Fprint(out, ", ")
		}
		fmt.Fprintf(out, "%s %s", name, d.Versions[name])
	}
	fmt.Fprintln(out, ".")
	for _, t := range d.allTables() {
		t.markdown(out)
	}
	for _, a := range d.Absent {
		fmt.Fprintf(out, "\n%s, %s: %s.\n", a.Workload, a.Server, firstLine([]byte(a.Why), nil))
	}
}

// allTables returns every table of a run.
func (d *daemonResults) allTables() []daemonTable {
	var tables []daemonTable
	if d.Suite == "start" {
		return append(tables, d.startTable())
	}
	if d.Suite == "growth" {
		for _, axis := range growthAxes(d.Backlog) {
			if t := d.growthTable(axis); len(t.rows) > 0 {
				tables = append(tables, t)
			}
		}
		if len(d.Idle) > 0 {
			tables = append(tables, d.idleTable())
		}
		return tables
	}
	if len(d.Comparisons) > 0 {
		tables = append(tables, d.standing())
	}
	for _, w := range d.workloads() {
		tables = append(tables, d.tables(w.name)...)
	}
	return tables
}

func (t daemonTable) markdown(out io.Writer) {
	fmt.Fprintf(out, "\n### %s\n\n", t.title)
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
}

// The table of a page is between these lines, of which the first names the file with its figures.
const (
	tableBegin = "<!-- Written by make bench-page from %s. Do not edit. -->\n"
	tableEnd   = "<!-- The end of what is written. -->\n"
)

// rewritePage returns a page with the table that render writes from the figures of a file.
func rewritePage[R any](page, name, file string, render func(*strings.Builder, *R)) (string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	figures, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var results R
	if err := json.Unmarshal(figures, &results); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	begin := fmt.Sprintf(tableBegin, name)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, tableEnd)
	if !ok || !found {
		return "", fmt.Errorf("%s: the lines around the table are missing", page)
	}
	var table strings.Builder
	table.WriteString("\n")
	render(&table, &results)
	return before + begin + table.String() + "\n" + tableEnd + after, nil
}
