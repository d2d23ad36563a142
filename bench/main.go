// Command bench runs Mailbox side by side with its peers and with the limits of
// the machine, in one process and one run, and prints ratios. Figures from two
// runs, or two machines, mean little; ratios within a run mean more.
//
//	go run . [-suite memory] [-rounds 3] [-time 300ms] [-dir /mnt/disk] [-backlog 10000000]
//	go run . -suite daemon [-run W1,W2] [-peers redis,nats] [-baseline OLD] [-json FILE]
//	go run . -suite sqs [-run S1] [-peers fauxqs,goaws] [-baseline OLD] [-json FILE]
//	go run . -suite start [-json FILE]
//	go run . -suite postgres [-run held,rates] [-peers river] [-held 30m] [-json FILE]
//	go run . -suite redis [-run calls] [-mailboxd FILE]
//	go run . -suite fleet [-run disk] [-json FILE]
//
// It is a module of its own, so that users of Mailbox do not download its peers.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// suites by name, in the order they run, and how many rounds each has by default.
var suites = []struct {
	name   string
	rounds int
	run    func(*report)
}{
	{"memory", 3, memorySuite},
	{"disk", 3, diskSuite},
	{"redis", 3, redisSuite},
	{"reply", 3, replySuite},
	{"worker", 3, workerSuite},
	{"daemon", 5, daemonSuite},
	{"growth", 3, growthSuite},
	{"sqs", 5, sqsSuite},
	{"start", 20, startSuite},
	{"postgres", 3, postgresSuite},
	{"fleet", 3, fleetSuite},
}

func main() {
	testing.Init()
	var r report
	only := flag.String("suite", "", "run only this suite")
	rounds := flag.Int("rounds", 0, "how often each case runs; the median counts (default 3, in the daemon and SQS suites 5, in the start suite 20)")
	flag.DurationVar(&r.each, "time", 300*time.Millisecond, "how long one case runs; in the daemon, growth and SQS suites five times as long")
	flag.StringVar(&r.dir, "dir", os.TempDir(), "where servers and the disk suite make their files; it measures that disk")
	flag.IntVar(&r.backlog, "backlog", 500_000, "how many messages wait in the disk suite's backlog and in W4")
	page := flag.String("page", "", "write this page of the documentation from the JSON files that are arguments, and measure nothing")
	chart := flag.String("chart", "", "write this chart of claims under a held transaction from the JSON file that is the argument, and measure nothing")
	fleet := flag.String("fleet", "", "write the table of this page from the JSON file of the fleet suite that is the argument, and measure nothing")
	rates := flag.String("rates", "", "write the table of this page from the JSON file of the rates of the PostgreSQL suite that is the argument, and measure nothing")
	r.daemonFlags()
	flag.Parse()
	for file, render := range map[string]func(page, file string) (string, error){*fleet: fleetPage, *rates: ratesPage} {
		if file == "" {
			continue
		}
		text, err := render(file, flag.Arg(0))
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *chart != "" {
		if err := writeHeldChart(*chart, flag.Arg(0)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *page != "" {
		if err := writePage(*page, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.benchtime", r.each.String()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, suite := range suites {
		if *only == "" || *only == suite.name {
			fmt.Printf("== %s ==\n", suite.name)
			r.rounds = cmp.Or(*rounds, suite.rounds)
			suite.run(&r)
		}
	}
}

// daemonFlags defines the flags of the daemon suite.
func (r *report) daemonFlags() {
	list := func(to *[]string) func(string) error {
		return func(text string) error {
			*to = strings.Split(text, ",")
			return nil
		}
	}
	flag.Func("run", "daemon suite: the workloads to run, such as W1,W3; SQS suite: S1 or S2; growth suite: some of workers,queues,body,waiting,idle; PostgreSQL suite: held or rates; Redis suite: rates, wake-ups or calls; fleet suite: disk, Redis Cluster or PostgreSQL (default all)", list(&r.workloads))
	flag.Func("peers", "daemon and SQS suite: the peers to run beside mailboxd, such as redis,beanstalkd; PostgreSQL suite: pgbox,river,table (default all)", list(&r.peers))
	flag.IntVar(&r.connections, "connections", 1, "daemon suite: the connections that workers of mailboxd share")
	flag.StringVar(&r.storage, "storage", "", "daemon and SQS suite: memory or disk (default both)")
	flag.StringVar(&r.mailboxd, "mailboxd", "", "daemon, SQS and start suite: a built mailboxd; the first two take none (default is built from this tree)")
	flag.StringVar(&r.baseline, "baseline", "", "daemon and SQS suite: another build of mailboxd to run in turns with the first")
	flag.DurationVar(&r.held, "held", time.Minute, "PostgreSQL suite: how long a transaction is held open")
	flag.StringVar(&r.json, "json", "", "daemon, growth, SQS, start and PostgreSQL suite: write all figures to this file")
}

// report runs cases and prints their times.
type report struct {
	rounds  int
	each    time.Duration
	dir     string
	backlog int

	// Settings of the daemon suite.
	workloads, peers   []string
	storage            string
	connections        int
	mailboxd, baseline string
	json               string

	held time.Duration // setting of the PostgreSQL suite
}

// A contender is one candidate of a case.
type contender struct {
	name string
	// limit is the largest allowed lead of the yardstick, the first contender; 0 for
	// none.
	limit float64
	// atLeast is how many times slower than ours this contender must be.
	atLeast float64
	ours    bool
	run     func(*testing.B)
}

// compare measures contenders in turns, so that a slow spell of the machine
// hits all of them, and prints the medians beside each other. Our promises are
// judged and the verdict printed with them.
func (r *report) compare(title string, contenders []contender) {
	results := make([][]testing.BenchmarkResult, len(contenders))
	for range r.rounds {
		for i, c := range contenders {
			results[i] = append(results[i], testing.Benchmark(c.run))
		}
	}
	medians := make([]float64, len(contenders))
	ours := 0.0
	for i, rounds := range results {
		slices.SortFunc(rounds, func(a, b testing.BenchmarkResult) int {
			return int(nanoseconds(a)*1000) - int(nanoseconds(b)*1000)
		})
		medians[i] = nanoseconds(rounds[len(rounds)/2])
		if contenders[i].ours && ours == 0 {
			ours = medians[i]
		}
	}
	fmt.Printf("\n%s\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tns/op\tallocs/op\tB/op\tof "+contenders[0].name+"\tpromise")
	for i, c := range contenders {
		middle := results[i][len(results[i])/2]
		fmt.Fprintf(table, "  %s\t%.0f\t%d\t%d\t%.2f×\t%s\n", c.name, medians[i],
			middle.AllocsPerOp(), middle.AllocedBytesPerOp(), medians[i]/medians[0], verdict(c, medians[i], medians[0], ours))
	}
	_ = table.Flush()
}

func verdict(c contender, got, yardstick, ours float64) string {
	var parts []string
	if c.limit > 0 {
		parts = append(parts, fmt.Sprintf("at most %.1f× of it: %s", c.limit, kept(got/yardstick <= c.limit)))
	}
	if c.atLeast > 0 && ours > 0 {
		parts = append(parts, fmt.Sprintf("ours is %.1f× faster, promised %.0f×: %s", got/ours, c.atLeast, kept(got/ours >= c.atLeast)))
	}
	return strings.Join(parts, "; ")
}

func kept(ok bool) string {
	if ok {
		return "kept"
	}
	return "MISSED"
}

func nanoseconds(r testing.BenchmarkResult) float64 {
	if r.N == 0 {
		return 0
	}
	return float64(r.T.Nanoseconds()) / float64(r.N)
}
