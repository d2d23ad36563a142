package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// daemonResults is what the daemon suite found, and the form of its JSON file.
type daemonResults struct {
	Suite    string            `json:"suite"`
	Command  string            `json:"command"`
	Time     time.Time         `json:"time"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Slot     string            `json:"time_per_round"`
	Backlog  int               `json:"backlog"`
	Series   []*daemonSeries   `json:"series"`
	Idle     []daemonIdle      `json:"idle,omitempty"`
	Starts   []serverStart     `json:"starts,omitempty"`
	// Absent says which servers did not run a workload, and why.
	Absent      []daemonAbsence    `json:"absent,omitempty"`
	Comparisons []daemonComparison `json:"comparisons"`
}

// A daemonSeries is one server in one workload, round by round.
type daemonSeries struct {
	Workload string       `json:"workload"`
	Server   string       `json:"server"`
	Rounds   []daemonPace `json:"rounds"`
}

// A daemonAbsence is a server that did not run a workload.
type daemonAbsence struct {
	Workload string `json:"workload"`
	Server   string `json:"server"`
	Why      string `json:"why"`
	failed   bool
}

func newDaemonResults(suite string, r *report) *daemonResults {
	return &daemonResults{
		Suite:   suite,
		Command: "go run . " + strings.Join(os.Args[1:], " "), Time: time.Now().UTC().Truncate(time.Second),
		Machine: thisMachine(r.dir), Versions: serverVersions(suite),
		Rounds: r.rounds, Slot: (daemonSlot * r.each).String(), Backlog: r.backlog,
	}
}

// workloads returns the workloads of the suite.
func (d *daemonResults) workloads() []daemonWorkload {
	if d.Suite == "sqs" {
		return sqsWorkloads()
	}
	return daemonWorkloads(d.Backlog)
}

func (d *daemonResults) series(workload, server string) *daemonSeries {
	for _, s := range d.Series {
		if s.Workload == workload && s.Server == server {
			return s
		}
	}
	return nil
}

// servers returns the names of the servers, in the order of their first figures.
func (d *daemonResults) servers() []string {
	var names []string
	for _, s := range d.Series {
		if !slices.Contains(names, s.Server) {
			names = append(names, s.Server)
		}
	}
	return names
}

func (d *daemonResults) add(workload string, row daemonRow, pace daemonPace) {
	s := d.series(workload, row.name())
	if s == nil {
		s = &daemonSeries{Workload: workload, Server: row.name()}
		d.Series = append(d.Series, s)
	}
	s.Rounds = append(s.Rounds, pace)
}

// absent records that a row does not run a workload, or runs it no further.
func (d *daemonResults) absent(workload string, row daemonRow, err error) {
	failed := !errors.Is(err, errNoBatches) && !errors.Is(err, errMissing)
	d.Absent = append(d.Absent, daemonAbsence{Workload: workload, Server: row.name(), Why: err.Error(), failed: failed})
}

// failure returns what failed; a server without batches or that is not installed has not.
func (d *daemonResults) failure() error {
	var errs []error
	for _, a := range d.Absent {
		if a.failed {
			errs = append(errs, fmt.Errorf("%s: %s: %s", a.Workload, a.Server, a.Why))
		}
	}
	return errors.Join(errs...)
}

func (d *daemonResults) write(file string) error {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// A spread is the median of a figure over rounds, and its range.
type spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{}
	}
	return spread{Median: median(figures), Low: slices.Min(figures), High: slices.Max(figures)}
}

// of returns a figure of all rounds.
func (s *daemonSeries) of(figure func(daemonPace) float64) []float64 {
	figures := make([]float64, len(s.Rounds))
	for i, p := range s.Rounds {
		figures[i] = figure(p)
	}
	return figures
}

func daemonRateOf(p daemonPace) float64 { return p.Rate }
func daemonP50(p daemonPace) float64    { return p.P50 }

// messagesPerCPU is how many messages a second of processor time is enough for, server and
// client together.
func messagesPerCPU(p daemonPace) float64 { return 1e6 / max(p.ServerCPU+p.ClientCPU, 1e-9) }

// A daemonComparison is a target: ours as a multiple of a peer's figure, or of the best of
// several peers, within each round.
type daemonComparison struct {
	What string `json:"what"`
	// Ratio is that of the rates, or of the latencies where Slower is set.
	Ratio  spread `json:"ratio"`
	Slower bool   `json:"slower,omitempty"`
	// CPU is the median ratio of processor time a message, server and client together, to the
	// least of the peers. Other work on the machine hardly changes it.
	CPU float64 `json:"cpu_ratio"`
	// Least and Goal are 0 where there is no target.
	Least float64 `json:"at_least,omitempty"`
	Goal  float64 `json:"goal,omitempty"`
	// Rounds is how many rounds were compared; 0 if a server did not run.
	Rounds int `json:"rounds"`
}

// met says which of the targets the ratio meets.
func (c daemonComparison) met() string {
	reached := func(target float64) bool { return c.Ratio.Median >= target }
	if c.Slower {
		reached = func(target float64) bool { return c.Ratio.Median <= target }
	}
	switch {
	case c.Rounds == 0:
		return "not measured"
	case c.Least == 0:
		return ""
	case reached(c.Goal):
		return "goal"
	case reached(c.Least):
		return "at least"
	}
	return "MISSED"
}

// A daemonTarget is a comparison that has to be made. The names are those of rows; %s
// stands for each build of mailboxd.
type daemonTarget struct {
	what, workload string
	ours           string
	peers          []string // the best counts
	slower         bool
	least, goal    float64
}

var daemonTargets = []daemonTarget{
	{"W1 synced, against Redis list always", "W1", "%s disk", []string{"redis disk"}, false, 1.5, 2},
	{"W1 memory, against the best of Redis list and beanstalkd", "W1", "%s memory", []string{"redis memory", "beanstalkd memory"}, false, 0.95, 1.1},
	{"W2 synced, against Redis list always", "W2", "%s disk", []string{"redis disk"}, false, 1.5, 2},
	{"W2 memory, against Redis list", "W2", "%s memory", []string{"redis memory"}, false, 1, 1.2},
	{"W3 p50 memory, times slower than Redis list", "W3", "%s memory", []string{"redis memory"}, true, 1.3, 1},
	{"W3 p50 synced, times slower than Redis list always", "W3", "%s disk", []string{"redis disk"}, true, 1.2, 1},
	{"W4 send synced, against Redis list always", "W4 send", "%s disk", []string{"redis disk"}, false, 1, 1.5},
	{"W4 drain synced, against Redis list always", "W4 drain", "%s disk", []string{"redis disk"}, false, 1.2, 2},
	{"redisbox W1, against Redis list", "W1", "redisbox memory", []string{"redis memory"}, false, 0.49, 0.8},
	{"redisbox W2, against Redis list", "W2", "redisbox memory", []string{"redis memory"}, false, 0.53, 0.8},
	{"S1 memory, against fauxqs", "S1", "%s memory", []string{"fauxqs memory"}, false, 5, 5},
	{"S1 synced, against fauxqs in memory", "S1", "%s disk", []string{"fauxqs memory"}, false, 2, 2},
	{"S1 memory, against goaws", "S1", "%s memory", []string{"goaws memory"}, false, 0, 0},
	{"S2 memory, against fauxqs", "S2", "%s memory", []string{"fauxqs memory"}, false, 5, 5},
	{"S2 synced, against fauxqs in memory", "S2", "%s disk", []string{"fauxqs memory"}, false, 2, 2},
	{"S2 memory, against goaws", "S2", "%s memory", []string{"goaws memory"}, false, 0, 0},
}

// compare computes the comparisons from the series: first the targets, then each build of
// mailboxd against the baseline.
func (d *daemonResults) compare() {
	d.Comparisons = nil
	ran := map[string]bool{}
	for _, s := range d.Series {
		ran[strings.Fields(s.Server)[0]] = true
	}
	for _, target := range daemonTargets {
		for _, build := range []string{"mailboxd", "baseline"} {
			own := target
			if strings.Contains(target.ours, "%s") {
				if !ran[build] {
					continue
				}
				own.ours = fmt.Sprintf(target.ours, build)
				if ran["baseline"] {
					own.what = build + ": " + target.what
				}
			} else if build == "baseline" {
				continue
			}
			if d.series(own.workload, own.ours) != nil {
				d.Comparisons = append(d.Comparisons, d.against(own))
			}
		}
	}
	if !ran["baseline"] || !ran["mailboxd"] {
		return
	}
	for _, s := range d.Series {
		name, ok := strings.CutPrefix(s.Server, "mailboxd ")
		if !ok {
			continue
		}
		d.Comparisons = append(d.Comparisons, d.against(daemonTarget{
			what: s.Workload + " " + name + ", against the baseline", workload: s.Workload,
			ours: s.Server, peers: []string{"baseline " + name}, slower: s.Workload == "W3",
		}))
	}
}

// against compares within each round. The best peer is that of the round.
func (d *daemonResults) against(t daemonTarget) daemonComparison {
	c := daemonComparison{What: t.what, Slower: t.slower, Least: t.least, Goal: t.goal}
	figure := daemonRateOf
	if t.slower {
		figure = daemonP50
	}
	ratios := d.ratios(t, figure)
	c.Ratio, c.Rounds = spreadOf(ratios), len(ratios)
	if more := spreadOf(d.ratios(t, messagesPerCPU)).Median; more > 0 {
		c.CPU = 1 / more
	}
	return c
}

// ratios returns those of a figure, round by round; none if a server did not run.
func (d *daemonResults) ratios(t daemonTarget, figure func(daemonPace) float64) []float64 {
	ours := d.series(t.workload, t.ours)
	if ours == nil {
		return nil
	}
	var theirs [][]float64
	for _, name := range t.peers {
		peer := d.series(t.workload, name)
		if peer == nil {
			return nil
		}
		theirs = append(theirs, peer.of(figure))
	}
	return ratiosWithin(ours.of(figure), theirs)
}

// ratiosWithin returns, for each round that all have, ours as a multiple of the largest of
// theirs.
func ratiosWithin(ours []float64, theirs [][]float64) []float64 {
	var ratios []float64
	for round, own := range ours {
		best := 0.0
		for _, peer := range theirs {
			if round >= len(peer) {
				return ratios
			}
			best = max(best, peer[round])
		}
		if best > 0 {
			ratios = append(ratios, own/best)
		}
	}
	return ratios
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
