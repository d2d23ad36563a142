package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// sqsRow is one server that speaks the protocol of SQS.
type sqsRow struct {
	name string
	// atLeast is the target as a multiple of the emulator's rate; 0 for the emulator
	// itself, which comes last.
	atLeast float64
	open    func(dir string, shape daemonShape) (*daemonStand, error)
}

// sqsSuite runs the real daemon side by side with an emulator of SQS by others, each in
// a process of its own, over loopback. The client is the SDK of AWS for Go, the same for
// all, which signs each request.
func sqsSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := r.sqs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *report) sqs() (err error) {
	binaries, err := os.MkdirTemp("", "mailbox-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	mailboxd, fauxqs, err := sqsServers(binaries)
	if err != nil {
		return err
	}
	rows := []sqsRow{
		{"mailboxd, in memory", 5, sqsMailboxd(mailboxd, false)},
		{"mailboxd, synced to the disk", 2, sqsMailboxd(mailboxd, true)},
		{"fauxqs, in memory", 0, sqsFauxqs(fauxqs)},
	}
	for _, batch := range []int{1, daemonBatch} {
		if err := r.sqsGroup(rows, batch); err != nil {
			return err
		}
	}
	return nil
}

// sqsGroup measures the rows in turns and prints them beside each other. The servers
// stay up all the while, so that a slow spell of the machine hits all of them.
func (r *report) sqsGroup(rows []sqsRow, batch int) (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-sqs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stands := make([]*daemonStand, len(rows))
	for i, row := range rows {
		stand, err := row.open(filepath.Join(dir, strconv.Itoa(i)), shapeOf(batch))
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		defer func() { err = errors.Join(err, stand.close()) }()
		stands[i] = stand
	}
	paces := make([][]daemonPace, len(rows))
	for round := range 1 + 2*r.rounds {
		for i, row := range rows {
			pace, err := stands[i].flood(2 * r.each)
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			if round > 0 { // the first is to warm up
				paces[i] = append(paces[i], pace)
			}
		}
	}
	title := fmt.Sprintf("SQS, %d bytes, %d producers and %d consumers, send, receive and delete confirmed", bodyBytes, daemonWorkers, daemonWorkers)
	if batch > 1 {
		title += fmt.Sprintf(", batches of %d", batch)
	}
	showSQS(title, rows, paces)
	return nil
}

// showSQS prints rates, and what a message costs the server and the clients. Where both
// share a machine, the clients' share bounds the rate of a fast server, so what the
// servers cost is compared too.
func showSQS(title string, rows []sqsRow, paces [][]daemonPace) {
	server := func(p daemonPace) float64 { return p.ServerCPU }
	emulator := len(rows) - 1
	fmt.Printf("\n%s\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tmessages/s\tserver CPU µs\tclients CPU µs\tserver MiB\tof "+rows[emulator].name+"\tits server CPU\tpromise")
	for i, row := range rows {
		share := daemonMedian(paces[i], daemonRateOf) / daemonMedian(paces[emulator], daemonRateOf)
		verdict := ""
		if row.atLeast > 0 {
			verdict = fmt.Sprintf("at least %.0f× the emulator: %s", row.atLeast, kept(share >= row.atLeast))
		}
		fmt.Fprintf(table, "  %s\t%.0f\t%.1f\t%.1f\t%.0f\t%.2f×\t%.1f×\t%s\n", row.name, daemonMedian(paces[i], daemonRateOf),
			daemonMedian(paces[i], server),
			daemonMedian(paces[i], func(p daemonPace) float64 { return p.ClientCPU }),
			daemonMedian(paces[i], func(p daemonPace) float64 { return p.Resident }),
			share, daemonMedian(paces[emulator], server)/daemonMedian(paces[i], server), verdict)
	}
	_ = table.Flush()
}

func daemonMedian(paces []daemonPace, figure func(daemonPace) float64) float64 {
	return median((&daemonSeries{Rounds: paces}).of(figure))
}
