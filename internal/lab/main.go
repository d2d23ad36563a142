// Command lab shows that the tests hold the promises.
//
//	go run ./internal/lab bugs    seeds each bug of bugs/ in turn, and notes which test catches it
//	go run ./internal/lab run     runs the experiments at a size, and notes what was done
//	go run ./internal/lab page    writes docs/evidence.md from what was noted
//
// Results are in results/, and are kept from run to run: those of experiments add up, and a bug that
// was caught is not run again unless its patch or its tests were changed, or -again is given.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// The files of the lab, from the root of the repository.
const (
	bugsFolder = "internal/lab/bugs"
	bugsFile   = "internal/lab/results/bugs.json"
	runsFile   = "internal/lab/results/runs.json"
	pageFile   = "docs/evidence.md"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: lab bugs|run|page [flags]")
	}
	flags := flag.NewFlagSet("lab "+args[0], flag.ContinueOnError)
	only := flags.String("only", "", "run only bugs or experiments whose id matches this pattern")
	size := flags.Float64("size", 0.001, "the length of experiments; 1 is that of the goals")
	again := flags.Bool("again", false, "run bugs again that were caught")
	tests := flags.String("tests", "", "of a bug's packages run only tests whose name matches this pattern; bugs that survive them have no result")
	begin := flags.Duration("for", 0, "begin nothing after this time; 0 means no bound")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	switch args[0] {
	case "bugs":
		err = runBugs(pattern, *tests, *again, *begin)
	case "run":
		err = runExperiments(pattern, *size, *begin)
	case "page":
		err = writePage()
	default:
		err = fmt.Errorf("unknown command %q; want bugs, run or page", args[0])
	}
	return err
}

// runBugs runs the bugs that have no result, and fails if one is not caught.
func runBugs(only *regexp.Regexp, tests string, again bool, within time.Duration) error {
	bugs, err := readBugs(bugsFolder)
	if err != nil {
		return err
	}
	results, err := readResults[bugResult](bugsFile)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	skip, err := lonelyTests()
	if err != nil {
		return err
	}
	where, err := here()
	if err != nil {
		return err
	}
	missed, began := 0, time.Now()
	for i := range bugs {
		b := &bugs[i]
		known := resultOf(results, b)
		if !only.MatchString(b.ID) || (known != nil && known.Outcome == caught && !again) {
			continue
		}
		if within > 0 && time.Since(began) > within {
			_, _ = fmt.Fprintln(os.Stdout, "there are more; run the same command again")
			break
		}
		result, err := b.run(root, tests, skip)
		if err != nil {
			return err
		}
		result.place = where
		_, _ = fmt.Fprintf(os.Stdout, "%-34s %-8s %6.1f s  %s\n", b.ID, result.Outcome, result.Seconds, result.Test)
		if result.Outcome != caught {
			if missed++; tests != "" {
				continue
			}
		}
		results = replaceResult(results, result)
		if err := writeResults(bugsFile, results); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d bugs were not caught", missed)
	}
	return nil
}

// resultOf returns the result of a bug as it is now, or nil.
func resultOf(results []bugResult, b *bug) *bugResult {
	for i := range results {
		if results[i].ID == b.ID && results[i].Patch == b.patch() {
			return &results[i]
		}
	}
	return nil
}

func replaceResult(results []bugResult, with bugResult) []bugResult {
	for i := range results {
		if results[i].ID == with.ID {
			results[i] = with
			return results
		}
	}
	return append(results, with)
}

// lonelyTests returns a pattern of the tests that fail on a loaded machine, which make test runs
// alone: a bug must not seem caught because the machine is busy.
func lonelyTests() (string, error) {
	const find = `find . -name '*_test.go' -not -path './.*' | xargs awk -v calls='Alone|Measures' -v names=1 -f tools/marked.awk`
	text, err := exec.Command("sh", "-c", find).Output()
	return strings.TrimSpace(string(text)), err
}
