package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The suite runs with a real daemon and, where it is installed, Redis, and writes figures
// of every workload.
func TestSuiteWritesFiguresOfAllWorkloads(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the daemon, which takes a minute: run it without -short")
	}
	dir := t.TempDir()
	mailboxd, err := buildMailboxd(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &report{
		rounds: 2, each: 10 * time.Millisecond, dir: dir, backlog: 2000,
		peers: []string{"redis", "mailboxd-redis"}, mailboxd: mailboxd, json: filepath.Join(dir, "figures.json"),
	}
	if err := r.daemons(); err != nil {
		t.Fatal(err)
	}
	d := readResults(t, r.json)
	servers := []string{"mailboxd memory", "mailboxd disk"}
	if _, err := exec.LookPath("redis-server"); err == nil {
		servers = append(servers, "redis memory", "redis disk", "mailboxd-redis memory", "mailboxd-redis disk")
	}
	for _, workload := range []string{"W1", "W2", "W3", "W4 send", "W4 drain"} {
		for _, server := range servers {
			s := d.series(workload, server)
			if s == nil || len(s.Rounds) != r.rounds {
				t.Errorf("%s, %s: got %+v, want %d rounds", workload, server, s, r.rounds)
				continue
			}
			for _, pace := range s.Rounds {
				if pace.Rate <= 0 || pace.ServerCPU <= 0 || pace.ClientCPU <= 0 || pace.ServerSwitches <= 0 {
					t.Errorf("%s, %s: got %+v, want a rate, processor time and context switches", workload, server, pace)
				}
				if workload == "W3" && (pace.P50 <= 0 || pace.P99 < pace.P50) {
					t.Errorf("%s: got p50 %v and p99 %v", server, pace.P50, pace.P99)
				}
				if workload == "W4 send" && pace.Waiting != uint64(r.backlog) {
					t.Errorf("%s: %d messages waited, want %d", server, pace.Waiting, r.backlog)
				}
			}
		}
	}
	if len(servers) > 2 && slices.ContainsFunc(d.Comparisons, func(c daemonComparison) bool { return c.Rounds == 0 && c.What[:2] != "W1" }) {
		t.Errorf("got comparisons that were not made: %+v", d.Comparisons)
	}
}

// The SQS suite runs with a real daemon and, where it is installed, an emulator, and counts
// requests.
func TestSQSSuiteWritesFiguresOfRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the daemon, which takes a minute: run it without -short")
	}
	dir := t.TempDir()
	mailboxd, err := buildMailboxd(dir)
	if err != nil {
		t.Fatal(err)
	}
	expectVerified(t, mailboxd)
	r := &report{
		rounds: 1, each: 10 * time.Millisecond, dir: dir, peers: []string{"fauxqs"}, mailboxd: mailboxd, json: filepath.Join(dir, "figures.json"),
	}
	if err := r.sqs(); err != nil {
		t.Fatal(err)
	}
	d := readResults(t, r.json)
	servers := []string{"mailboxd memory", "mailboxd disk"}
	if _, err := os.Stat(fauxqsPackage); err == nil {
		servers = append(servers, "fauxqs memory")
	} else {
		t.Log("without fauxqs, which is not installed: tools/fauxqs.sh installs it")
	}
	for workload, least := range map[string]float64{"S1": 3, "S2": 0.3} {
		for _, server := range servers {
			s := d.series(workload, server)
			if s == nil || len(s.Rounds) != 1 {
				t.Errorf("%s, %s: got %+v, want one round", workload, server, s)
				continue
			}
			if pace := s.Rounds[0]; pace.Rate <= 0 || pace.ServerCPU <= 0 || pace.ClientCPU <= 0 || pace.Requests < least {
				t.Errorf("%s, %s: got %+v, want a rate, processor time and at least %v requests a message", workload, server, pace, least)
			}
		}
	}
}

// The start suite keeps the time and the memory of each start.
func TestStartSuiteWritesTimeAndMemoryOfEachStart(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the daemon, which takes a minute: run it without -short")
	}
	dir := t.TempDir()
	r := &report{rounds: 2, dir: dir, json: filepath.Join(dir, "figures.json")}
	if err := r.starts(); err != nil {
		t.Fatal(err)
	}
	d := readResults(t, r.json)
	servers := map[string]int{}
	for _, s := range d.Starts {
		servers[s.Server]++
		if s.Milliseconds <= 0 || s.Idle <= 1 || s.After <= 1 {
			t.Errorf("got %+v, want a time and memory", s)
		}
	}
	if servers["mailboxd memory"] != 2 || servers["fauxqs memory"] != 2 && len(d.Absent) == 0 {
		t.Errorf("got starts of %v, without %v", servers, d.Absent)
	}
}

// The page about tests quotes the figures of a start that are kept.
func TestPageAboutTestsQuotesKeptFigures(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := readResults(t, "results/5-start.json").startSentence(); !strings.Contains(string(page), want) {
		t.Errorf("docs/testing.md lacks %q", want)
	}
}

// The growth suite keeps a figure for each point of an axis.
func TestGrowthHasFigureForEachPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the daemon, which takes a minute: run it without -short")
	}
	dir := t.TempDir()
	mailboxd, err := buildMailboxd(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &report{
		rounds: 1, each: 10 * time.Millisecond, dir: dir, backlog: 1000, workloads: []string{"body", "waiting"},
		storage: "memory", mailboxd: mailboxd, json: filepath.Join(dir, "figures.json"),
	}
	if err := r.growth(); err != nil {
		t.Fatal(err)
	}
	d := readResults(t, r.json)
	for _, point := range []string{"body 256", "body 4096", "body 65536", "waiting 1000 send", "waiting 1000 drain"} {
		if s := d.series(point, "mailboxd memory"); s == nil || len(s.Rounds) != 1 || s.Rounds[0].Rate <= 0 {
			t.Errorf("%s: got %+v, want one round with a rate", point, s)
		}
	}
	if len(d.Series) != 5 {
		t.Errorf("got %d series, want those of body and waiting only", len(d.Series))
	}
}

func readResults(t *testing.T, file string) *daemonResults {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d daemonResults
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// The page of the documentation shows the figures that are kept, and no others.
func TestPageShowsKeptFigures(t *testing.T) {
	files, err := filepath.Glob("results/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("got files %v and %v", files, err)
	}
	want, err := renderPage(files)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/benchmarks.md differs from bench/results: run make bench-page")
	}
}

// The fleet suite keeps a figure for each step and size of a call.
func TestFleetHasFigureForEachStep(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the daemon, which takes a minute: run it without -short")
	}
	dir := t.TempDir()
	r := &report{rounds: 1, each: 10 * time.Millisecond, dir: dir, workloads: []string{"disk"}, json: filepath.Join(dir, "figures.json")}
	if err := r.fleet(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.json)
	if err != nil {
		t.Fatal(err)
	}
	var results fleetResults
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	if len(results.Figures) != len(fleetBatches) || results.Figures[0].Rate <= 0 || results.Figures[0].DaemonCPU <= 0 {
		t.Errorf("got %+v", results.Figures)
	}
}

// The pages about growing and about PostgreSQL show the figures that are kept.
func TestPagesShowKeptFigures(t *testing.T) {
	for _, test := range []struct {
		page, figures string
		render        func(page, file string) (string, error)
	}{
		{"../docs/scaling.md", "results/fleet/fleet.json", fleetPage},
		{"../docs/postgres.md", "results/postgres/rates.json", ratesPage},
	} {
		want, err := test.render(test.page, test.figures)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(test.page)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s differs from %s: run make bench-page", test.page, test.figures)
		}
	}
}
