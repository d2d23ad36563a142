package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// startSuite measures what a test pays for a server of its own: the time from its start to the
// first queue, and its memory. The servers are those of the SQS suite that keep messages in
// memory; mailboxd runs as docs/testing.md says.
func startSuite(r *report) {
	if err := r.starts(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A serverStart is one start of a server.
type serverStart struct {
	Server string `json:"server"`
	// Milliseconds are from the start of the process to the answer of CreateQueue.
	Milliseconds float64 `json:"ms"`
	// Resident memory in MiB, with one empty queue and after messages that came and went.
	Idle  float64 `json:"idle_mib"`
	After float64 `json:"after_mib"`
}

const (
	startMessages = 100 // between the two measurements of memory
	startRest     = time.Second
	startWithin   = time.Minute
)

// A starter starts a server that speaks the protocol of SQS, and does not wait for it.
type starter struct {
	name  string
	start func(dir, address string) (*daemonProcess, error)
}

func (r *report) starts() (err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-start-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	mailboxd := r.mailboxd
	if mailboxd == "" {
		if mailboxd, err = buildMailboxd(dir); err != nil {
			return err
		}
	}
	results := newDaemonResults("start", r)
	servers := []starter{{"mailboxd memory", func(dir, address string) (*daemonProcess, error) {
		return startDaemon(dir, nil, mailboxd, "--profile", "micronode", "--listen", "off", "--listen-oap", "off",
			"--listen-sqs", address, "--sqs-compatibility", "localstack", "--sqs-unsigned")
	}}}
	if installed, err := fauxqsInstalled(); err != nil {
		results.absent("start", daemonRow{peer: "fauxqs"}, err)
	} else {
		servers = append(servers, starter{"fauxqs memory", func(dir, address string) (*daemonProcess, error) {
			return startFauxqs(dir, installed, address, nil)
		}})
	}
	for round := range r.rounds {
		for n := range servers {
			server := servers[turn(n, len(servers), round)]
			start, err := server.measure(filepath.Join(dir, server.name, strconv.Itoa(round)))
			if err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
			results.Starts = append(results.Starts, start)
		}
	}
	results.startTable().print(os.Stdout)
	results.showAbsent(os.Stdout, "start")
	if r.json != "" {
		err = results.write(r.json)
	}
	return err
}

// measure starts the server, uses it and stops it.
func (s starter) measure(dir string) (start serverStart, err error) {
	start.Server = s.name
	address, err := freeAddress()
	if err != nil {
		return start, err
	}
	client := &sqsWorker{signer: sqsSigner{host: address, accessKey: "test", secret: "test"}, batch: 1}
	client.signer.at(time.Now())
	began := time.Now()
	process, err := s.start(dir, address)
	if err != nil {
		return start, err
	}
	defer func() { err = errors.Join(err, process.stop()) }()
	if err := client.createAtStart(address, began.Add(startWithin)); err != nil {
		said, _ := os.ReadFile(process.log.Name())
		return start, fmt.Errorf("%w\n%s", err, said)
	}
	start.Milliseconds = microseconds(time.Since(began)) / 1000
	defer func() { err = errors.Join(err, client.Close()) }()
	time.Sleep(startRest)
	start.Idle = process.resident()
	for i := range startMessages {
		if err := client.roundTrip(fmt.Appendf(nil, "message %d", i)); err != nil {
			return start, err
		}
	}
	time.Sleep(startRest)
	start.After = process.resident()
	return start, nil
}

// createAtStart creates the queue of the client as soon as the server answers.
func (w *sqsWorker) createAtStart(address string, until time.Time) error {
	for {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			w.sqsConn = sqsConn{Conn: connection}
			if err = (&sqsWorkers{all: []*sqsWorker{w}}).createQueue(); err == nil {
				return nil
			}
			_ = connection.Close() // the server was not ready
		}
		if time.Now().After(until) {
			return fmt.Errorf("no answer within %v: %w", startWithin, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// roundTrip sends, receives and deletes a message.
func (w *sqsWorker) roundTrip(body []byte) error {
	if err := w.send([][]byte{body}); err != nil {
		return err
	}
	got, err := w.receive()
	if err != nil || len(got) != 1 || !bytes.Equal(got[0], body) {
		return fmt.Errorf("received %q, %v; want %q", got, err, body)
	}
	return w.ack()
}

// startsOf returns a figure of all starts of a server.
func (d *daemonResults) startsOf(server string, figure func(serverStart) float64) spread {
	var figures []float64
	for _, s := range d.Starts {
		if s.Server == server {
			figures = append(figures, figure(s))
		}
	}
	return spreadOf(figures)
}

func startMilliseconds(s serverStart) float64 { return s.Milliseconds }
func startIdle(s serverStart) float64         { return s.Idle }
func startAfter(s serverStart) float64        { return s.After }

// startTable has a row for each server.
func (d *daemonResults) startTable() daemonTable {
	t := daemonTable{
		title: "start: from the start of the process to the first queue, and its memory",
		head:  []string{"", "ms to the answer of CreateQueue (range)", "MiB with an empty queue", fmt.Sprintf("MiB after %d messages came and went", startMessages)},
	}
	shown := map[string]bool{}
	for _, s := range d.Starts {
		if shown[s.Server] {
			continue
		}
		shown[s.Server] = true
		took := d.startsOf(s.Server, startMilliseconds)
		t.rows = append(t.rows, []string{s.Server, fmt.Sprintf("%.0f (%.0f–%.0f)", took.Median, took.Low, took.High),
			fmt.Sprintf("%.0f", d.startsOf(s.Server, startIdle).Median), fmt.Sprintf("%.0f", d.startsOf(s.Server, startAfter).Median)})
	}
	return t
}

// startSentence says the figures of mailboxd beside those of the emulator, for a page that quotes them.
func (d *daemonResults) startSentence() string {
	figure := func(server string) string {
		return fmt.Sprintf("%.0f ms and %.0f MiB", d.startsOf(server, startMilliseconds).Median, d.startsOf(server, startAfter).Median)
	}
	return fmt.Sprintf("%s, where the emulator fauxqs takes %s", figure("mailboxd memory"), figure("fauxqs memory"))
}
