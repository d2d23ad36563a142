package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// A daemonColumn is a column of a table.
type daemonColumn struct {
	head   string
	format func([]daemonPace) string
}

// ranged shows the median and the range; plain the median only.
func ranged(figure func(daemonPace) float64) func([]daemonPace) string {
	return func(paces []daemonPace) string {
		s := spreadOf((&daemonSeries{Rounds: paces}).of(figure))
		return fmt.Sprintf("%s (%s–%s)", grouped(s.Median), grouped(s.Low), grouped(s.High))
	}
}

func plain(digits int, figures ...func(daemonPace) float64) func([]daemonPace) string {
	return func(paces []daemonPace) string {
		var parts []string
		for _, figure := range figures {
			parts = append(parts, fmt.Sprintf("%.*f", digits, spreadOf((&daemonSeries{Rounds: paces}).of(figure)).Median))
		}
		return strings.Join(parts, " / ")
	}
}

// flushes shows how often a second the server flushed, where it was counted.
func flushes(paces []daemonPace) string {
	var counted []float64
	for _, p := range paces {
		if p.Flushes != nil {
			counted = append(counted, *p.Flushes)
		}
	}
	if len(counted) == 0 {
		return "not counted"
	}
	return grouped(median(counted))
}

// bytesWaiting shows the memory of a waiting message; nothing for a drain.
func bytesWaiting(paces []daemonPace) string {
	if paces[0].Waiting == 0 {
		return ""
	}
	return plain(0, func(p daemonPace) float64 { return p.BytesWaiting })(paces)
}

// grouped writes a number without decimals, with commas between thousands.
func grouped(f float64) string {
	text := fmt.Sprintf("%.0f", f)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

var (
	cpuColumn = daemonColumn{"CPU µs a message, server / client", plain(1,
		func(p daemonPace) float64 { return p.ServerCPU }, func(p daemonPace) float64 { return p.ClientCPU })}
	switchColumn = daemonColumn{"context switches a message, server / client", plain(2,
		func(p daemonPace) float64 { return p.ServerSwitches }, func(p daemonPace) float64 { return p.ClientSwitches })}
	flushColumn  = daemonColumn{"flushes/s", flushes}
	memoryColumn = daemonColumn{"server MiB", plain(0, func(p daemonPace) float64 { return p.Resident })}
	bytesColumn  = daemonColumn{"RSS bytes a waiting message", bytesWaiting}
	rateColumn   = daemonColumn{"messages/s (range)", ranged(daemonRateOf)}
)

// Columns of servers whose cost is that of requests.
var (
	requestColumn    = daemonColumn{"requests/s (range)", ranged(func(p daemonPace) float64 { return p.Rate * p.Requests })}
	requestCPUColumn = daemonColumn{"CPU µs a request, server / client", plain(1,
		aRequest(func(p daemonPace) float64 { return p.ServerCPU }), aRequest(func(p daemonPace) float64 { return p.ClientCPU }))}
	requestSwitchColumn = daemonColumn{"context switches a request, server / client", plain(2,
		aRequest(func(p daemonPace) float64 { return p.ServerSwitches }), aRequest(func(p daemonPace) float64 { return p.ClientSwitches }))}
)

// aRequest turns a figure of a message into that of a request.
func aRequest(figure func(daemonPace) float64) func(daemonPace) float64 {
	return func(p daemonPace) float64 { return figure(p) / max(p.Requests, 1e-9) }
}

// daemonColumns are the columns of the table of a workload.
func daemonColumns(workload string) []daemonColumn {
	switch workload {
	case "W3":
		return []daemonColumn{
			{"p50 µs (range)", ranged(daemonP50)},
			{"p99 µs (range)", ranged(func(p daemonPace) float64 { return p.P99 })},
			cpuColumn, switchColumn, flushColumn,
		}
	case "W4 send":
		return []daemonColumn{
			rateColumn, cpuColumn, switchColumn, flushColumn,
			{"waiting", plain(0, func(p daemonPace) float64 { return float64(p.Waiting) })},
			bytesColumn,
		}
	}
	if slices.ContainsFunc(sqsWorkloads(), func(w daemonWorkload) bool { return w.name == workload }) {
		return []daemonColumn{rateColumn, requestColumn, requestCPUColumn, requestSwitchColumn, flushColumn, memoryColumn}
	}
	return []daemonColumn{rateColumn, cpuColumn, switchColumn, flushColumn, memoryColumn}
}

// daemonTable is a table of texts, for the terminal and for the page.
type daemonTable struct {
	title string
	head  []string
	rows  [][]string
}

// tables returns the tables of a workload; W4 has two.
func (d *daemonResults) tables(workload string) []daemonTable {
	var names []string
	for _, s := range d.Series {
		if (s.Workload == workload || strings.HasPrefix(s.Workload, workload+" ")) && !slices.Contains(names, s.Workload) {
			names = append(names, s.Workload)
		}
	}
	var tables []daemonTable
	for _, name := range names {
		t := daemonTable{title: name, head: []string{""}}
		for _, w := range d.workloads() {
			if strings.HasPrefix(name, w.name) {
				t.title += ": " + w.title
			}
		}
		columns := daemonColumns(name)
		for _, c := range columns {
			t.head = append(t.head, c.head)
		}
		for _, s := range d.Series {
			if s.Workload != name {
				continue
			}
			row := []string{s.Server}
			for _, c := range columns {
				row = append(row, c.format(s.Rounds))
			}
			t.rows = append(t.rows, row)
		}
		tables = append(tables, t)
	}
	return tables
}

func (t daemonTable) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n", t.title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(table, "  "+strings.Join(row, "\t"))
	}
	_ = table.Flush()
}

// showWorkload prints the tables of a workload, and the servers that did not run it.
func (d *daemonResults) showWorkload(out io.Writer, workload string) {
	for _, t := range d.tables(workload) {
		t.print(out)
	}
	d.showAbsent(out, workload)
}

// showAbsent prints the servers that did not run a workload.
func (d *daemonResults) showAbsent(out io.Writer, workload string) {
	for _, a := range d.Absent {
		if a.Workload == workload {
			fmt.Fprintf(out, "  %s: %s\n", a.Server, a.Why)
		}
	}
}

// standing is the table of the comparisons.
func (d *daemonResults) standing() daemonTable {
	t := daemonTable{
		title: "where we stand: ratios within each round, their median and range",
		head:  []string{"", "ratio", "range", "at least", "goal", "met", "CPU a message"},
	}
	for _, c := range d.Comparisons {
		least, goal, ratio, between, cpu := "", "", "–", "", ""
		if c.Least > 0 {
			least, goal = fmt.Sprintf("%.2f×", c.Least), fmt.Sprintf("%.2f×", c.Goal)
		}
		if c.Rounds > 0 {
			ratio, between = fmt.Sprintf("%.2f×", c.Ratio.Median), fmt.Sprintf("%.2f–%.2f", c.Ratio.Low, c.Ratio.High)
			cpu = fmt.Sprintf("%.2f×", c.CPU)
		}
		t.rows = append(t.rows, []string{c.What, ratio, between, least, goal, c.met(), cpu})
	}
	return t
}

func (d *daemonResults) showComparisons(out io.Writer) {
	if len(d.Comparisons) > 0 {
		d.standing().print(out)
	}
}
