package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// writePage writes the page of what was shown.
func writePage() error {
	text, err := page(".")
	if err != nil {
		return err
	}
	return os.WriteFile(pageFile, text, 0o644) //nolint:gosec // a file of the repository
}

// page returns the page, from the files below root.
func page(root string) ([]byte, error) {
	bugs, err := readBugs(root + "/" + bugsFolder)
	if err != nil {
		return nil, err
	}
	bugResults, err := readResults[bugResult](root + "/" + bugsFile)
	if err != nil {
		return nil, err
	}
	runs, err := readResults[runResult](root + "/" + runsFile)
	if err != nil {
		return nil, err
	}
	p := &pageWriter{}
	p.WriteString(`# Evidence

What the promises of [semantics](semantics.md) were held against, and what came out. This page is written by ` + "`go run ./internal/lab page`" + ` from
the results in ` + "`internal/lab/results`" + `; nothing on it is typed by hand. Each row has the commit it was measured at, and the [machines](#machines) are at the end.

`)
	p.experiments(runs)
	p.bugs(bugs, bugResults)
	p.machines(bugResults, runs)
	return p.Bytes(), nil
}

type pageWriter struct{ bytes.Buffer }

func (p *pageWriter) printf(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

// experiments writes a row for each experiment, with the sum of all its runs, and a row for each run.
func (p *pageWriter) experiments(runs []runResult) {
	p.WriteString("## Experiments\n\n`make lab SIZE=1` runs all of them to their goals, which takes days; `SIZE=0.01` a hundredth of it. Runs add up: those with a seed begin behind the seeds of earlier ones, and those without at 1.\n\n" +
		"| rule | promise | done | goal | hours | failed |\n|---|---|---|---|---|---|\n")
	for i := range experiments {
		e := &experiments[i]
		failed, seconds := 0, 0.0
		for _, r := range runs {
			if r.ID != e.ID {
				continue
			}
			seconds += r.Seconds
			if r.Failure != "" {
				failed++
			}
		}
		p.printf("| %s | %s | %s %s | %s | %.2f | %d |\n", e.Rule, e.Promise, grouped(e.done(runs)), e.Unit, e.goal(), seconds/3600, failed)
	}
	p.WriteString("\n### Runs\n\n| done | command | seconds | commit | date | [machine](#machines) | failure |\n|---|---|---|---|---|---|---|\n")
	machines := machinesOf(nil, runs)
	for i := range experiments {
		for _, r := range runs {
			if r.ID == experiments[i].ID {
				p.printf("| %s %s | `%s` | %.0f | %s | %s | %d | %s |\n", grouped(r.Figure), experiments[i].Unit, r.Command, r.Seconds, r.Commit, r.Date,
					1+slices.Index(machines, r.Machine), r.Failure)
			}
		}
	}
	p.WriteString("\n")
	for i := range experiments {
		p.notes(experiments[i].ID, runs)
	}
}

// notes repeats those of the longest run of an experiment.
func (p *pageWriter) notes(id string, runs []runResult) {
	var longest runResult
	for _, r := range runs {
		if r.ID == id && r.Seconds > longest.Seconds {
			longest = r
		}
	}
	if len(longest.Notes) > 0 {
		p.printf("`%s`, at %s:\n\n```text\n%s\n```\n\n", longest.Command, longest.Commit, strings.Join(longest.Notes, "\n"))
	}
}

// grouped returns a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// bugs writes a row for each seeded bug.
func (p *pageWriter) bugs(bugs []bug, results []bugResult) {
	var rows bytes.Buffer
	caughtNow, ran := 0, 0
	for i := range bugs {
		b := &bugs[i]
		outcome, took, commit := "not run since it was written or changed", "", ""
		if r := resultOf(results, b); r != nil {
			ran++
			outcome, took, commit = r.Outcome, fmt.Sprint(r.Seconds), r.Commit
			if r.Outcome == caught {
				caughtNow++
				outcome = "`" + strings.ReplaceAll(r.Test, "|", "/") + "`"
			}
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | `%s` | %s | %s | %s |\n", b.Rule, b.ID, b.What, b.Edits[0].File, outcome, took, commit)
	}
	p.printf(`## Seeded bugs

A test that never fails proves nothing. So %d defects that could be made in earnest are in `+"`internal/lab/bugs`"+`, as patches. `+"`make lab-bugs`"+` seeds one at a
time into a copy of the files it changes, and runs all tests of the packages that must notice, or with `+"`-tests`"+` those whose names match, at the volume of `+"`make test`"+` without the race detector and without the tests
that `+"`make test`"+` runs alone, until the first one fails. The seconds are from the start of that package's tests; the machine did other work meanwhile, so they are rough.

**%d of the %d bugs that were run were caught.**

| rule | bug | what it does | in | caught by | seconds | commit |
|---|---|---|---|---|---|---|
%s
`, len(bugs), caughtNow, ran, rows.String())
}

// machinesOf returns the machines of all results.
func machinesOf(bugs []bugResult, runs []runResult) (machines []string) {
	add := func(where place) {
		if !slices.Contains(machines, where.Machine) {
			machines = append(machines, where.Machine)
		}
	}
	for _, r := range runs {
		add(r.place)
	}
	for _, r := range bugs {
		add(r.place)
	}
	return machines
}

// machines lists the machines of all results, by the numbers that runs name.
func (p *pageWriter) machines(bugs []bugResult, runs []runResult) {
	p.WriteString("## Machines\n\n")
	for i, m := range machinesOf(bugs, runs) {
		p.printf("%d. %s\n", i+1, m)
	}
}
