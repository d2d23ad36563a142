package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
)

// growthSuite measures how the cost of a message grows with workers, queues, the size of
// bodies and waiting messages, and what an idle connection costs. Peers run only if the
// command line names them.
func growthSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := r.growth(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A growthAxis is what grows: its points are workloads that differ in one thing.
type growthAxis struct {
	name   string
	title  string
	points []growthPoint
}

// A growthPoint is W1 with a shape or, if messages wait in it, W4.
type growthPoint struct {
	name  string
	shape daemonShape
}

func growthAxes(backlog int) []growthAxis {
	axis := func(name string, change func(s *daemonShape, n int), points ...int) growthAxis {
		a := growthAxis{name: name, title: name + ": W1 with more of them"}
		for _, n := range points {
			shape := shapeOf(1)
			change(&shape, n)
			a.points = append(a.points, growthPoint{name: fmt.Sprintf("%s %d", name, n), shape: shape})
		}
		return a
	}
	waiting := growthAxis{name: "waiting", title: fmt.Sprintf("waiting: messages sent in batches of %d, then drained", daemonBulk)}
	for n := 1000; n <= backlog; n *= 10 {
		shape := shapeOf(daemonBulk)
		shape.waiting = n
		waiting.points = append(waiting.points, growthPoint{name: fmt.Sprintf("waiting %d", n), shape: shape})
	}
	return []growthAxis{
		axis("workers", func(s *daemonShape, n int) { s.workers = n }, 1, 8, 64, 512),
		axis("queues", func(s *daemonShape, n int) { s.queues = n }, 1, 100, 10_000),
		axis("body", func(s *daemonShape, n int) { s.body = n }, 256, 4<<10, 64<<10),
		waiting,
	}
}

func (r *report) growth() (err error) {
	binaries, err := os.MkdirTemp("", "mailbox-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	if r.peers == nil {
		r.peers = []string{}
	}
	rows, err := r.daemonRows(binaries)
	if err != nil {
		return err
	}
	results := newDaemonResults("growth", r)
	for _, axis := range growthAxes(r.backlog) {
		if !r.runs(axis.name) {
			continue
		}
		r.growAlong(axis, rows, results)
		results.growthTable(axis).print(os.Stdout)
		results.showAbsent(os.Stdout, axis.name)
	}
	if r.runs("idle") {
		if err := r.idleConnections(rows, results); err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	if r.json != "" {
		err = results.write(r.json)
	}
	return errors.Join(err, results.failure())
}

// growAlong measures all points of an axis with all rows, in turns, each with a new server.
func (r *report) growAlong(axis growthAxis, rows []daemonRow, results *daemonResults) {
	for range r.rounds {
		for _, point := range axis.points {
			for _, row := range rows {
				err := r.withStand(row, point.shape, func(stand *daemonStand) error {
					return r.growthRun(point, row, stand, results)
				})
				if err != nil {
					results.absent(axis.name, row, fmt.Errorf("%s: %w", point.name, err))
				}
			}
		}
	}
}

// growthRun measures one point with one row.
func (r *report) growthRun(point growthPoint, row daemonRow, stand *daemonStand, results *daemonResults) error {
	if point.shape.waiting > 0 {
		sent, drained, err := stand.backlog(uint64(point.shape.waiting))
		if err == nil {
			results.add(point.name+" send", row, sent)
			results.add(point.name+" drain", row, drained)
		}
		return err
	}
	if _, err := stand.flood(r.each); err != nil { // to warm up
		return err
	}
	pace, err := stand.flood(daemonSlot * r.each)
	if err == nil {
		results.add(point.name, row, pace)
	}
	return err
}

// growthTable has a row for each server and point.
func (d *daemonResults) growthTable(axis growthAxis) daemonTable {
	columns := []daemonColumn{rateColumn, cpuColumn, switchColumn, memoryColumn}
	if axis.name == "waiting" {
		columns = append(columns, bytesColumn)
	}
	t := daemonTable{title: axis.title, head: []string{"", ""}}
	for _, c := range columns {
		t.head = append(t.head, c.head)
	}
	for _, server := range d.servers() {
		for _, s := range d.Series {
			if s.Server != server || !strings.HasPrefix(s.Workload, axis.name+" ") {
				continue
			}
			row := []string{server, strings.TrimPrefix(s.Workload, axis.name+" ")}
			for _, c := range columns {
				row = append(row, c.format(s.Rounds))
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// daemonIdle is what connections cost that have nothing to do.
type daemonIdle struct {
	Server      string  `json:"server"`
	Connections int     `json:"connections"`
	Bytes       float64 `json:"bytes_per_connection"`
	// Cores is how many processors the server kept busy, and Switches its context switches
	// a second, while nothing happened.
	Cores    float64 `json:"cores"`
	Switches float64 `json:"switches_per_second"`
}

const (
	idleConnections = 10_000
	// idleTime is how long idle servers are watched.
	idleTime = 5 * time.Second
)

// idleConnections opens connections to each build of mailboxd, each with a receive that
// waits, and measures the server while nothing is sent.
func (r *report) idleConnections(rows []daemonRow, results *daemonResults) error {
	for _, row := range rows {
		if !row.ours() {
			continue
		}
		var idle daemonIdle
		shape := shapeOf(1)
		shape.idle = idleConnections
		err := r.withStand(row, shape, func(stand *daemonStand) (err error) {
			idle, err = stand.idle(row)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", row.name(), err)
		}
		results.Idle = append(results.Idle, idle)
	}
	results.idleTable().print(os.Stdout)
	return nil
}

func (d *daemonResults) idleTable() daemonTable {
	t := daemonTable{
		title: fmt.Sprintf("idle: %d connections, each with a receive that waits", idleConnections),
		head:  []string{"", "bytes a connection", "processors busy", "context switches/s"},
	}
	for _, idle := range d.Idle {
		t.rows = append(t.rows, []string{idle.Server, grouped(idle.Bytes), fmt.Sprintf("%.3f", idle.Cores), grouped(idle.Switches)})
	}
	return t
}

// idle opens the connections and watches the server.
func (s *daemonStand) idle(row daemonRow) (idle daemonIdle, err error) {
	before := s.process.resident()
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for range idleConnections {
		backend, err := remotebox.Open(ctx, []string{s.door.oap}, s.door.token, nil)
		if err != nil {
			return idle, err
		}
		defer func() { err = errors.Join(err, backend.Close()) }()
		queue, err := backend.OpenQueue(ctx, daemonQueue)
		if err != nil {
			return idle, err
		}
		waiting.Go(func() {
			_, _ = queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: daemonVisibility, Wait: 10 * time.Minute}) // ends when ctx is over
		})
	}
	time.Sleep(idleTime) // the last receives arrive
	threads, resident, start := s.process.threads(), s.process.resident(), time.Now()
	time.Sleep(idleTime)
	used, elapsed := s.process.threads().since(threads), time.Since(start)
	return daemonIdle{
		Server: row.name(), Connections: idleConnections, Bytes: (resident - before) * (1 << 20) / idleConnections,
		Cores: used.processor.Seconds() / elapsed.Seconds(), Switches: float64(used.switches) / elapsed.Seconds(),
	}, nil
}
