package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The sizes of the daemon suite: how many producers and how many consumers use a server at
// once, how many messages a batch has in W2, and how many in W4, which is the largest batch
// of Mailbox.
const (
	daemonWorkers = 8
	daemonBatch   = 10
	daemonBulk    = 256
)

// daemonRate is how many messages a second are sent while latencies are taken:
// few enough for every server to be idle most of the time.
const daemonRate = 500

// A daemonShape is how workers use a server.
type daemonShape struct {
	workers int // producers, and as many consumers
	batch   int // messages in a call
	queues  int // the workers use them in turn
	body    int // bytes of a body
	waiting int // messages that a queue has to hold, if that is more than usual
	idle    int // further connections, which do nothing
}

// shapeOf returns the shape of the suite with batches of the given size.
func shapeOf(batch int) daemonShape {
	return daemonShape{workers: daemonWorkers, batch: batch, queues: 1, body: bodyBytes}
}

// daemonRow is one server with one way to speak to it.
type daemonRow struct {
	// peer selects the row on the command line.
	peer string
	// durable: the server syncs to the disk before it answers.
	durable bool
	// named: the row runs only if the command line names its peer.
	named bool
	// open starts the server with its files in dir, which it creates, and connects the
	// workers.
	open func(dir string, shape daemonShape) (*daemonStand, error)
}

// name names the row in tables: the peer and where its messages are.
func (r daemonRow) name() string {
	if r.durable {
		return r.peer + " disk"
	}
	return r.peer + " memory"
}

// ours reports whether the row is a build of mailboxd over remotebox.
func (r daemonRow) ours() bool { return r.peer == "mailboxd" || r.peer == "baseline" }

// daemonWorkload is what workers do with every server, in turns.
type daemonWorkload struct {
	name  string
	title string
	batch int
	// run measures once with workers that are connected. It is nil for W4, which needs a
	// new server each time.
	run func(stand *daemonStand, during time.Duration) (daemonPace, error)
}

func daemonWorkloads(backlog int) []daemonWorkload {
	confirmed := fmt.Sprintf("%d producers, %d consumers, send, receive and ack confirmed", daemonWorkers, daemonWorkers)
	return []daemonWorkload{
		{"W1", confirmed + ", one message a call", 1, (*daemonStand).flood},
		{"W2", fmt.Sprintf("%s, batches of %d", confirmed, daemonBatch), daemonBatch, (*daemonStand).flood},
		{"W3", fmt.Sprintf("%d messages a second, from enqueue to dequeue", daemonRate), 1, (*daemonStand).trickle},
		{"W4", fmt.Sprintf("%d messages sent in batches of %d, then received and acked", backlog, daemonBulk), daemonBulk, nil},
	}
}

// Errors of rows that cannot run.
var (
	// errNoBatches is the error of a server without batches.
	errNoBatches = errors.New("it has no batches")
	// errMissing is the error of a server that is not installed.
	errMissing = errors.New("not installed")
)

// daemonSuite runs the real daemon side by side with other servers, each in a
// process of its own, over loopback.
func daemonSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := r.daemons(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *report) daemons() error {
	return r.serverSuite("daemon", daemonWorkloads(r.backlog), r.daemonRows)
}

// serverSuite runs workloads with all rows.
func (r *report) serverSuite(suite string, workloads []daemonWorkload, open func(binaries string) ([]daemonRow, error)) (err error) {
	binaries, err := os.MkdirTemp("", "mailbox-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	rows, err := open(binaries)
	if err != nil {
		return err
	}
	results := newDaemonResults(suite, r)
	for _, w := range workloads {
		if !r.runs(w.name) {
			continue
		}
		if w.run == nil {
			r.daemonBacklogs(w, rows, results)
		} else {
			err = r.daemonTurns(w, rows, results)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		results.showWorkload(os.Stdout, w.name)
	}
	results.compare()
	results.showComparisons(os.Stdout)
	if r.json != "" {
		err = results.write(r.json)
	}
	return errors.Join(err, results.failure())
}

// runs reports whether the command line selects a workload.
func (r *report) runs(workload string) bool {
	return len(r.workloads) == 0 || slices.Contains(r.workloads, workload)
}

// A mailboxdBuild is a binary of mailboxd, and its name in tables.
type mailboxdBuild struct{ peer, binary string }

// mailboxdBuilds returns the builds that the command line selects. It builds mailboxd if
// the command line names no binary.
func (r *report) mailboxdBuilds(binaries string) ([]mailboxdBuild, error) {
	var builds []mailboxdBuild
	for _, build := range []mailboxdBuild{{"mailboxd", r.mailboxd}, {"baseline", r.baseline}} {
		if build.binary == "none" {
			continue
		}
		if build.peer == "mailboxd" && build.binary == "" {
			built, err := buildMailboxd(binaries)
			if err != nil {
				return nil, err
			}
			build.binary = built
		}
		if build.binary != "" {
			builds = append(builds, build)
		}
	}
	return builds, nil
}

// daemonRows returns the rows that the command line selects.
func (r *report) daemonRows(binaries string) ([]daemonRow, error) {
	builds, err := r.mailboxdBuilds(binaries)
	if err != nil {
		return nil, err
	}
	var all []daemonRow
	for _, build := range builds {
		oap := overOAP(r.connections)
		for _, durable := range []bool{false, true} {
			all = append(all,
				daemonRow{peer: build.peer, durable: durable, open: mailboxdStand(build.binary, durable, oap)},
				daemonRow{peer: build.peer + "-redis", durable: durable, named: true, open: mailboxdOnRedis(build.binary, durable, oap)},
				daemonRow{peer: build.peer + "-subscribed", durable: durable, named: true, open: mailboxdStand(build.binary, durable, overSubscription)},
				daemonRow{peer: build.peer + "-grpc", durable: durable, named: true, open: mailboxdStand(build.binary, durable, overGRPC)},
				daemonRow{peer: build.peer + "-http", durable: durable, named: true, open: mailboxdStand(build.binary, durable, overHTTP)},
			)
		}
	}
	for _, durable := range []bool{false, true} {
		all = append(all,
			daemonRow{peer: "redis", durable: durable, open: redisStand(durable)},
			daemonRow{peer: "beanstalkd", durable: durable, open: beanstalkdStand(durable)},
			daemonRow{peer: "nats", durable: durable, open: natsStand(binaries, durable)},
		)
	}
	all = append(all,
		daemonRow{peer: "rabbitmq", durable: true, open: rabbitmqStand},
		daemonRow{peer: "river", durable: true, open: riverStand(r.dir)},
		daemonRow{peer: "redisbox", open: redisboxStand},
	)
	return r.selectRows(all)
}

// selectRows returns the rows that the flags select. Builds of mailboxd always run.
func (r *report) selectRows(all []daemonRow) ([]daemonRow, error) {
	known := map[string]bool{}
	var rows []daemonRow
	for _, row := range all {
		known[row.peer] = true
		wanted := row.ours() || r.peers == nil && !row.named || slices.Contains(r.peers, row.peer)
		stored := r.storage == "" || r.storage == "disk" == row.durable
		if wanted && stored {
			rows = append(rows, row)
		}
	}
	for _, peer := range r.peers {
		if !known[peer] {
			return nil, fmt.Errorf("-peers: unknown peer %q; want some of %s", peer, strings.Join(sortedKeys(known), ", "))
		}
	}
	return rows, nil
}

// openStand starts the server of a row with its files in dir, and counts its flushes if it
// can.
func openStand(row daemonRow, dir string, shape daemonShape) (*daemonStand, error) {
	stand, err := row.open(dir, shape)
	if err != nil {
		return nil, err
	}
	if stand.flushes, err = countFlushes(stand.process); err != nil && !errors.Is(err, errNoTracing) {
		return nil, errors.Join(err, stand.close())
	}
	return stand, nil
}

// withStand runs something with a new server, and stops it.
func (r *report) withStand(row daemonRow, shape daemonShape, run func(*daemonStand) error) (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-daemon-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stand, err := openStand(row, filepath.Join(dir, "server"), shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stand.close()) }()
	return run(stand)
}

// daemonTurns measures all rows in turns, round by round, and every other round in the
// opposite order. The servers stay up all the while, so that a slow spell of the machine
// hits all of them.
func (r *report) daemonTurns(w daemonWorkload, rows []daemonRow, results *daemonResults) (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-daemon-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stands := make([]*daemonStand, len(rows))
	for i, row := range rows {
		stand, openErr := openStand(row, filepath.Join(dir, strconv.Itoa(i)), shapeOf(w.batch))
		if openErr != nil {
			results.absent(w.name, row, openErr)
			continue
		}
		defer func() { err = errors.Join(err, stand.close()) }()
		if _, runErr := stand.flood(r.each); runErr != nil { // to warm up
			results.absent(w.name, row, runErr)
			continue
		}
		stands[i] = stand
	}
	for round := range r.rounds {
		for n := range rows {
			i := turn(n, len(rows), round)
			if stands[i] == nil {
				continue
			}
			pace, runErr := w.run(stands[i], daemonSlot*r.each)
			if runErr != nil {
				stands[i] = nil
				results.absent(w.name, rows[i], runErr)
				continue
			}
			results.add(w.name, rows[i], pace)
		}
	}
	return nil
}

// daemonSlot is how many times as long as a case of other suites a row runs in a round.
const daemonSlot = 5

// turn returns which of count rows is the nth of a round.
func turn(n, count, round int) int {
	if round%2 == 1 {
		return count - 1 - n
	}
	return n
}

// daemonBacklogs measures W4: all rows in turns, each time with a new server, whose memory
// shows what a waiting message costs.
func (r *report) daemonBacklogs(w daemonWorkload, rows []daemonRow, results *daemonResults) {
	gone := make([]bool, len(rows))
	shape := shapeOf(w.batch)
	shape.waiting = r.backlog
	for round := range r.rounds {
		for n := range rows {
			i := turn(n, len(rows), round)
			if gone[i] {
				continue
			}
			err := r.withStand(rows[i], shape, func(stand *daemonStand) error {
				sent, drained, err := stand.backlog(uint64(r.backlog))
				if err == nil {
					results.add(w.name+" send", rows[i], sent)
					results.add(w.name+" drain", rows[i], drained)
				}
				return err
			})
			if err != nil {
				gone[i] = true
				results.absent(w.name, rows[i], err)
			}
		}
	}
}
