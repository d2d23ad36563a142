package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// An experiment is a test that can run at any length.
type experiment struct {
	ID      string
	Rule    string
	Promise string
	Command string // for a shell; %d is the length
	Goal    int    // the length at size 1
	Length  string // that length in words, if its unit is not that of the figure
	// Seeded: a run begins with the seed behind those of earlier runs (volume.Seed).
	Seeded bool
	// Figure finds what was done in the lines of the output: the sum of its group, or the number of
	// lines if it has none. A run that did nothing has failed.
	Figure *regexp.Regexp
	Unit   string
	// Notes finds lines of the output that the page repeats, those of the longest run; nil means none.
	Notes *regexp.Regexp
}

// A failure of servers is one experiment, so that each kind has its own figure and goal.
var experiments = []experiment{
	{"crash", "SND-1", "no power cut loses what was acknowledged on disk", "make -s crash N=%d", 1_000_000, "", true, regexp.MustCompile(`(\d+) images \(`), "crash images", nil},
	{"kill", "SND-1", "kill -9 of a process loses nothing that was acknowledged on disk", "make -s kill N=%d", 1000, "", true, regexp.MustCompile(`(\d+) processes were killed`), "kills", nil},
	{"simulation", "SND-1", "a daemon whose power and connections fail, with clients that stay, keeps every promise", "make -s simulation N=%d", 10_000, "", true, regexp.MustCompile(`^ +--- PASS: TestDaemonKeepsItsPromises/`), "simulations", nil},
	{"flip", "INT-2", "a flipped bit in the daemon's files is found", volumeTest + "-run '^TestG7FlippedBitsAreFound$' ./internal/gates", 10_000, "", true, regexp.MustCompile(`(\d+) flipped bits`), "flipped bits", nil},
	{"random", "RCV-1", "random programs do what the model does, in memory", "make -s random RANDOM_FOR=%ds", 10_000, "100,000,000", false, regexp.MustCompile(`(\d+) operations in`), "operations", nil},
	{"forgery", "CAP-2", "no forged or misused token is accepted", "make -s forgery N=%d", 1_000_000, "", false, regexp.MustCompile(`(\d+) forgeries`), "forgeries", nil},
	{"failover-kill", "RED-3", "a primary of a Redis Cluster that is killed loses nothing that replicas confirmed", volumeTest + "-race -run '^TestFailoverLosesNothing$/^the primary is killed$' ./redisbox", 200, "", false, healthyAgain, "kills of primaries", nil},
	{"failover-hang", "RED-3", "a primary of a Redis Cluster that hangs until it is replaced loses nothing that replicas confirmed", volumeTest + "-race -run '^TestFailoverLosesNothing$/^the primary hangs for longer than the node timeout$' ./redisbox", 200, "", false, healthyAgain, "hangs of primaries", nil},
	{"failover-takeover", "RED-3", "a replica of a Redis Cluster that takes over by hand loses nothing that replicas confirmed", volumeTest + "-race -run '^TestFailoverLosesNothing$/^a replica takes over by hand$' ./redisbox", 200, "", false, healthyAgain, "takeovers", nil},
	{"failover-slot", "RED-3", "a slot that moves to another primary of a Redis Cluster loses nothing that replicas confirmed", volumeTest + "-race -run '^TestFailoverLosesNothing$/^a slot moves to another primary$' ./redisbox", 200, "", false, healthyAgain, "moves of slots", nil},
	{"redis-kill", "SND-1", "kill -9 of processes that use Redis loses nothing that was confirmed", volumeTest + "-race -run '^TestKilledProcessesLoseNothing$' ./redisbox", 200, "", false, regexp.MustCompile(`(\d+) processes killed`), "kills of processes", nil},
	{"sentinel-kill", "RED-3", "a primary behind Redis Sentinel that is killed loses nothing that replicas confirmed", volumeTest + "-race -run '^TestSentinelFailoverLosesNothing$/^the primary is killed$' ./redisbox", 200, "", false, healthyAgain, "kills of primaries", nil},
	{"sentinel-hang", "RED-3", "a primary behind Redis Sentinel that hangs until it is replaced loses nothing that replicas confirmed", volumeTest + "-race -run '^TestSentinelFailoverLosesNothing$/^the primary hangs$' ./redisbox", 200, "", false, healthyAgain, "hangs of primaries", nil},
	{"pg-failover", "PG-5", "crashes of a PostgreSQL primary with promotion of its synchronous standby lose nothing that was confirmed", volumeTest + "-race -run '^TestFailoverLosesNothingConfirmed$' ./pgbox", 200, "", false, regexp.MustCompile(`(\d+) crashes of the primary`), "crashes of the primary", nil},
	{"pg-failover-async", "PG-5", "before a promotion of an asynchronous standby loses a confirmed message, readiness says that it can", volumeTest + "-race -run '^TestFailoverWithoutSynchronousStandbyLosesAndReadinessSaysSo$' ./server", 200, "", false, regexp.MustCompile(`(\d+) failovers lost`), "crashes of the primary", nil},
	{"gates", "SVC-9", "daemons that are killed under load lose nothing that was confirmed", volumeTest + "-run '^TestG1EitherDaemonMayBeKilled$' ./internal/gates", 200, "", false, regexp.MustCompile(`(\d+) kills in`), "kills of daemons", nil},
	{"hostile", "OPS-4", "a tenant that attacks over every protocol does not harm another", "make -s hostile N=%d", 300, "five minutes", false, regexp.MustCompile(`attack .* done +(\d+)`), "attacks", regexp.MustCompile(`resident memory: .*|(HTTP|gRPC|OAP) .* (under attack|busy process): .*`)},
	{"chaos", "LOOP-3", "workers that fail, hang, are killed and restarted lose nothing", "make -s chaos N=%d", 600, "ten minutes", false, regexp.MustCompile(`(\d+) disturbances`), "disturbances", regexp.MustCompile(`([a-z][a-z0-9 ]*: )?\d+ (messages, .* )?disturbances .*`)},
	{"year", "TIME-1", "five processes that run the same schedules for a year of virtual time send one message for each due time", "go test -v -count=%d -run '^TestFiveRunnersSendOneMessageForEachDueTime$' ./schedule", 20, "", false, regexp.MustCompile(`^--- PASS`), "years", nil},
	{"soak", "SVC-6", "memory, goroutines and open files of a daemon under load do not grow", "MAILBOX_VOLUME=%ds go test -v -count=1 -timeout 0 -run '^TestDaemonDoesNotGrowUnderLoad$' ./internal/gates", 7200, "two hours", false, regexp.MustCompile(`(\d+) operations in`), "operations", regexp.MustCompile(`after +[0-9.]+%: .*`)},
}

// volumeTest begins the command of an experiment that is one test.
const volumeTest = "MAILBOX_VOLUME=%d go test -v -count=1 -timeout 0 "

// healthyAgain is logged after each failure of a Redis server.
var healthyAgain = regexp.MustCompile(`healthy again after`)

// A runResult is what one run of an experiment showed.
type runResult struct {
	ID      string
	Command string
	Figure  int64
	Seconds float64
	Failure string // the lines that say what failed; empty if nothing did
	Notes   []string
	place
}

// runExperiments runs experiments at a size, and fails if one of them does.
func runExperiments(only *regexp.Regexp, size float64, within time.Duration) error {
	where, err := here()
	if err != nil {
		return err
	}
	failed, began := 0, time.Now()
	for i := range experiments {
		e := &experiments[i]
		if !only.MatchString(e.ID) {
			continue
		}
		if within > 0 && time.Since(began) > within {
			_, _ = fmt.Fprintln(os.Stdout, "there are more; run them with -only")
			break
		}
		earlier, err := readResults[runResult](runsFile)
		if err != nil {
			return err
		}
		result := e.run(size, e.done(earlier))
		result.place = where
		_, _ = fmt.Fprintf(os.Stdout, "%-12s %10d %s in %.0f s %s\n", e.ID, result.Figure, e.Unit, result.Seconds, result.Failure)
		if result.Failure != "" {
			failed++
		}
		if err := writeResults(runsFile, append(earlier, result)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d experiments failed; they stay on the page until the results say why", failed)
	}
	return nil
}

// goal describes the length at size 1, or says that it is not counted in the unit of the figure.
func (e *experiment) goal() string {
	if e.Length == "" {
		return grouped(int64(e.Goal))
	}
	return e.Length
}

// done returns what the runs of the experiment add up to.
func (e *experiment) done(runs []runResult) (sum int64) {
	for i := range runs {
		if runs[i].ID == e.ID {
			sum += runs[i].Figure
		}
	}
	return sum
}

// run runs the experiment, after runs that have done something.
func (e *experiment) run(size float64, done int64) runResult {
	length := max(1, int(float64(e.Goal)*size))
	result := runResult{ID: e.ID, Command: fmt.Sprintf(e.Command, length)}
	if e.Seeded {
		result.Command = fmt.Sprintf("MAILBOX_SEED=%d %s", done+1, result.Command) // one seed for each at most
	}
	command := exec.Command("sh", "-c", result.Command)
	command.Stderr = os.Stderr
	began := time.Now()
	output, err := command.Output()
	result.Seconds = seconds(began)
	result.Figure = e.figure(string(output))
	if e.Notes != nil {
		result.Notes = e.Notes.FindAllString(string(output), -1)
	}
	switch {
	case err != nil:
		result.Failure, result.Figure = failureIn(string(output), err), 0
	case result.Figure == 0:
		result.Failure = "its output names no " + e.Unit
	}
	if result.Failure != "" {
		_, _ = os.Stderr.Write(output) // results name the tests that failed, and not why
	}
	return result
}

// figure returns what was done, according to the output.
func (e *experiment) figure(output string) (sum int64) {
	for line := range strings.Lines(output) {
		switch found := e.Figure.FindStringSubmatch(line); len(found) {
		case 0:
		case 1:
			sum++
		default:
			n, _ := strconv.ParseInt(found[1], 10, 64) // the pattern has digits only
			sum += n
		}
	}
	return sum
}

// failureIn returns the lines of an output that name what failed.
func failureIn(output string, err error) string {
	failed := []string{err.Error()}
	for line := range strings.Lines(output) {
		if strings.Contains(line, "--- FAIL") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	return strings.Join(failed, "; ")
}
