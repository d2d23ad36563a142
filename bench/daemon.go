package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// The sizes of the daemon suite: how many producers and how many consumers use a
// server at once, and how many messages a batch has where there are batches.
const (
	daemonWorkers = 8
	daemonBatch   = 10
)

// daemonRate is how many messages a second are sent while latencies are taken:
// few enough for every server to be idle most of the time.
const daemonRate = 500

// daemonRow is one server with one way to speak to it.
type daemonRow struct {
	name string
	// ours is set for mailboxd.
	ours bool
	// judged is set for the rows that have a target.
	judged bool
	// open starts the server with its files in dir, and connects the workers, which
	// handle batches of the given size.
	open func(dir string, batch int) (*daemonStand, error)
}

// daemonSuite runs the real daemon side by side with other servers, each in a
// process of its own, over loopback.
func daemonSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := r.daemons(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *report) daemons() (err error) {
	binaries, err := os.MkdirTemp("", "mailbox-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	mailboxd, nats, err := buildDaemons(binaries)
	if err != nil {
		return err
	}
	for _, group := range []struct {
		title   string
		atLeast float64
		rows    []daemonRow
	}{
		{"synced to the disk before every answer", 2, daemonRows(mailboxd, nats, true)},
		{"in memory", 1.5, daemonRows(mailboxd, nats, false)},
	} {
		for _, batch := range []int{1, daemonBatch} {
			if err := r.daemonGroup(group.title, group.rows, batch, group.atLeast); err != nil {
				return err
			}
		}
	}
	return nil
}

// daemonRows are the rows of one table: those that sync to the disk before they
// answer, or those that keep messages in memory.
func daemonRows(mailboxd, nats string, durable bool) []daemonRow {
	return []daemonRow{
		{name: "mailboxd, remotebox", ours: true, judged: true, open: mailboxdStand(mailboxd, durable, overOAP)},
		{name: "mailboxd, remotebox, subscribed", ours: true, judged: true, open: mailboxdStand(mailboxd, durable, overSubscription)},
		{name: "mailboxd, gRPC", ours: true, open: mailboxdStand(mailboxd, durable, overGRPC)},
		{name: "mailboxd, HTTP", ours: true, open: mailboxdStand(mailboxd, durable, overHTTP)},
		{name: "Redis lists", open: redisStand(durable)},
		{name: "beanstalkd", open: beanstalkdStand(durable)},
		{name: "NATS JetStream", open: natsStand(nats, durable)},
	}
}

// errNoBatches is the error of a server without batches.
var errNoBatches = errors.New("it has no batches")

// daemonGroup measures the rows in turns and prints them beside each other. The
// servers stay up all the while, so that a slow spell of the machine hits all of
// them. Latencies are for single messages.
func (r *report) daemonGroup(title string, rows []daemonRow, batch int, atLeast float64) (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-daemon-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var present []daemonRow
	var stands []*daemonStand
	for i, row := range rows {
		stand, err := row.open(filepath.Join(dir, strconv.Itoa(i)), batch)
		if errors.Is(err, errNoBatches) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		defer func() { err = errors.Join(err, stand.close()) }()
		present, stands = append(present, row), append(stands, stand)
	}
	paces := make([][]daemonPace, len(present))
	for round := range 1 + 2*r.rounds {
		for i, row := range present {
			pace, err := stands[i].flood(batch, 2*r.each)
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			if round > 0 { // the first is to warm up
				paces[i] = append(paces[i], pace)
			}
		}
	}
	heading := fmt.Sprintf("%s, %d bytes, %d producers and %d consumers, send, receive and ack confirmed", title, bodyBytes, daemonWorkers, daemonWorkers)
	if batch > 1 {
		showDaemonRates(heading+fmt.Sprintf(", batches of %d", batch), present, paces, 0)
		return nil
	}
	showDaemonRates(heading, present, paces, atLeast)
	return r.daemonLatencies(title, present, stands)
}

// showDaemonRates prints rates, and the cost of a message for the server and the
// clients. The yardstick is the best peer of the run. Ratios are ratios of medians: on a
// busy machine the ratios of neighbouring turns scatter by a factor of ten.
func showDaemonRates(title string, rows []daemonRow, paces [][]daemonPace, atLeast float64) {
	best := -1
	for i, row := range rows {
		if !row.ours && (best < 0 || daemonMedian(paces[i], daemonRateOf) > daemonMedian(paces[best], daemonRateOf)) {
			best = i
		}
	}
	fmt.Printf("\n%s\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tmessages/s\tserver CPU µs\tclients CPU µs\tserver MiB\tof "+rows[best].name+"\tpromise")
	for i, row := range rows {
		share := daemonMedian(paces[i], daemonRateOf) / daemonMedian(paces[best], daemonRateOf)
		verdict := ""
		if row.judged && atLeast > 0 {
			verdict = fmt.Sprintf("at least %.1f× the best peer: %s", atLeast, kept(share >= atLeast))
		}
		fmt.Fprintf(table, "  %s\t%.0f\t%.1f\t%.1f\t%.0f\t%.2f×\t%s\n", row.name, daemonMedian(paces[i], daemonRateOf),
			daemonMedian(paces[i], func(p daemonPace) float64 { return p.server }),
			daemonMedian(paces[i], func(p daemonPace) float64 { return p.clients }),
			daemonMedian(paces[i], func(p daemonPace) float64 { return p.resident }),
			share, verdict)
	}
	_ = table.Flush()
}

func daemonRateOf(p daemonPace) float64 { return p.rate }

func daemonMedian(paces []daemonPace, figure func(daemonPace) float64) float64 {
	figures := make([]float64, len(paces))
	for i, p := range paces {
		figures[i] = figure(p)
	}
	return median(figures)
}

// daemonLatencies prints how long messages take from the call that sends them to
// the return of the one that receives them, at a rate that keeps every server idle.
func (r *report) daemonLatencies(title string, rows []daemonRow, stands []*daemonStand) error {
	took := make([][]time.Duration, len(rows))
	for range 2 * r.rounds {
		for i, row := range rows {
			durations, err := stands[i].trickle(daemonRate, max(2*r.each, time.Second))
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			took[i] = append(took[i], durations...)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	fmt.Printf("\n%s, from enqueue to dequeue at %d messages a second\n", title, daemonRate)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tp50\tp99\tpromise")
	for i, row := range rows {
		p50, p99 := percentile(took[i], 50), percentile(took[i], 99)
		verdict := ""
		if row.judged {
			var slower []string
			for n, peer := range rows {
				if !peer.ours && percentile(took[n], 99) <= p99 {
					slower = append(slower, peer.name)
				}
			}
			verdict = "p99 below each peer's: " + kept(len(slower) == 0)
			if len(slower) > 0 {
				verdict += ", not below " + strings.Join(slower, ", ")
			}
		}
		fmt.Fprintf(table, "  %s\t%v\t%v\t%s\n", row.name, p50.Round(time.Microsecond), p99.Round(time.Microsecond), verdict)
	}
	return table.Flush()
}
