package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// fleetSuite measures daemons that share a store, from one on its disk to several on a Redis
// Cluster or PostgreSQL, and which of them uses how much of a processor for a message.
func fleetSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := r.fleet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A fleetStep is a number of daemons on a store.
type fleetStep struct {
	Store    string `json:"store"`
	Nodes    int    `json:"nodes"`    // of the store, without replicas; 0 for a disk
	Replicas int    `json:"replicas"` // of each node, which confirm too
	Daemons  int    `json:"daemons"`
}

func fleetSteps() []fleetStep {
	const cluster, database = "Redis Cluster", "PostgreSQL"
	return []fleetStep{
		{"disk", 0, 0, 1},
		{cluster, 3, 0, 1}, {cluster, 3, 0, 2}, {cluster, 3, 0, 4}, {cluster, 3, 0, 6},
		{cluster, 6, 0, 2}, {cluster, 6, 0, 6},
		{cluster, 3, 1, 2}, {cluster, 3, 1, 6},
		{database, 1, 0, 1}, {database, 1, 0, 2}, {database, 1, 0, 4},
	}
}

// fleetBatches are the numbers of messages in a call.
var fleetBatches = []int{1, 10}

// fleetQueues are enough for each primary to have some.
const fleetQueues = 24

// A fleetFigure is what a step took, in one round.
type fleetFigure struct {
	fleetStep
	Batch int `json:"batch"`
	// Rate is messages a second: sent, received and acked.
	Rate float64 `json:"messages_per_second"`
	// Processor time in microseconds a message.
	DaemonCPU float64 `json:"daemon_cpu_us"`
	StoreCPU  float64 `json:"store_cpu_us"`
	ClientCPU float64 `json:"client_cpu_us"`
	// Bytes a message on the loopback interface, all connections together.
	Bytes float64 `json:"bytes"`
	// DaemonMiB is the memory of one daemon.
	DaemonMiB float64 `json:"daemon_mib"`
}

// fleetResults are all figures of a run.
type fleetResults struct {
	Command  string            `json:"command"`
	Time     time.Time         `json:"time"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Slot     string            `json:"slot"`
	Figures  []fleetFigure     `json:"figures"`
}

func (r *report) fleet() (err error) {
	binaries, err := os.MkdirTemp("", "mailbox-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(binaries)) }()
	binary := r.mailboxd
	if binary == "" {
		if binary, err = buildMailboxd(binaries); err != nil {
			return err
		}
	}
	results := &fleetResults{
		Command: "go run . " + strings.Join(os.Args[1:], " "), Time: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(r.dir),
		Versions: serverVersions("daemon"), Slot: (daemonSlot * r.each).String(),
	}
	for range r.rounds {
		for _, step := range fleetSteps() {
			if !r.runs(step.Store) {
				continue
			}
			for _, batch := range fleetBatches {
				figure, err := r.fleetRun(binary, step, batch)
				if err != nil {
					return fmt.Errorf("%d daemons on %s: %w", step.Daemons, step.Store, err)
				}
				results.Figures = append(results.Figures, figure)
			}
		}
	}
	results.table().print(os.Stdout)
	if r.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(r.json, append(text, '\n'), 0o600)
}

// fleetRun measures one step with a new store and new daemons.
func (r *report) fleetRun(binary string, step fleetStep, batch int) (figure fleetFigure, err error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-fleet-")
	if err != nil {
		return figure, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, backend, err := step.startStore(dir)
	if err != nil {
		return figure, err
	}
	stand, err := startFleet(dir, binary, backend, step.Daemons, batch, store)
	if err != nil {
		return figure, err
	}
	defer func() { err = errors.Join(err, stand.close()) }()
	if _, err := stand.flood(r.each); err != nil { // to warm up
		return figure, err
	}
	before, bytes := store.threads(), loopbackBytes()
	pace, err := stand.flood(daemonSlot * r.each)
	if err != nil {
		return figure, err
	}
	messages := float64(stand.last)
	used, sent := store.threads().since(before), loopbackBytes()-bytes
	figure = fleetFigure{
		fleetStep: step, Batch: batch, Rate: pace.Rate, ClientCPU: pace.ClientCPU,
		StoreCPU: microseconds(used.processor) / messages, Bytes: float64(sent) / messages,
	}
	figure.DaemonCPU = pace.ServerCPU - figure.StoreCPU
	figure.DaemonMiB = (pace.Resident - store.resident()) / float64(step.Daemons)
	return figure, nil
}

// startStore starts the store of a step, and returns it with its address; a disk has no process.
func (s fleetStep) startStore(dir string) (process *daemonProcess, backend string, err error) {
	switch s.Store {
	case "PostgreSQL":
		server, err := startPostgres(filepath.Dir(dir)) // dir is closed to its user
		if err != nil {
			return nil, "", err
		}
		return &daemonProcess{command: server.command, halt: server.close}, "postgres:///postgres?user=bench&host=" + server.dir, nil
	case "Redis Cluster":
		return startRedisCluster(dir, s.Nodes, s.Replicas)
	}
	return nil, "disk:" + filepath.Join(dir, "queues"), nil
}

// startRedisCluster starts primaries, each with replicas, without files.
func startRedisCluster(dir string, primaries, replicas int) (process *daemonProcess, backend string, err error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", fmt.Errorf("redis-server: %w; make setup-bench installs it", errMissing)
	}
	arguments := []string{"--cluster", "create"}
	for i := range primaries * (1 + replicas) {
		address, err := freeAddress()
		if err != nil {
			return nil, "", err
		}
		_, port, _ := net.SplitHostPort(address)
		bus, err := freePort()
		if err != nil {
			return nil, "", err
		}
		folder := filepath.Join(dir, "redis"+strconv.Itoa(i))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, "", err
		}
		node, err := startDaemon(folder, []string{address}, binary, "--bind", "127.0.0.1", "--port", port, "--cluster-port", strconv.Itoa(bus),
			"--dir", folder, "--save", "", "--loglevel", "warning", "--cluster-enabled", "yes")
		if err != nil {
			return nil, "", err
		}
		node.beside, process = process, node
		arguments = append(arguments, address)
		backend += "&addr=" + address
	}
	if output, err := exec.Command("redis-cli", append(arguments, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")...).CombinedOutput(); err != nil {
		return nil, "", errors.Join(fmt.Errorf("redis-cli: %w: %s", err, output), process.stop())
	}
	for _, primary := range arguments[2 : 2+primaries] {
		host, port, _ := net.SplitHostPort(primary)
		if output, err := exec.Command("redis-cli", "-h", host, "-p", port, "WAIT", strconv.Itoa(replicas), "30000").CombinedOutput(); err != nil {
			return nil, "", errors.Join(fmt.Errorf("redis-cli: %w: %s", err, output), process.stop())
		}
	}
	first, others, _ := strings.Cut(strings.TrimPrefix(backend, "&addr="), "&")
	return process, fmt.Sprintf("redis://%s?replicas=%d&%s", first, replicas, others), nil
}

// startFleet starts daemons on a store, and workers that use them in turn.
func startFleet(dir, binary, backend string, daemons, batch int, store *daemonProcess) (*daemonStand, error) {
	shape := shapeOf(batch)
	shape.queues = fleetQueues
	fleet := &daemonStand{process: store, shape: shape}
	var doors []daemonDoor
	for i := range daemons {
		alone := func(daemonDoor, *daemonStand) error { return nil }
		stand, err := startMailboxd(filepath.Join(dir, "daemon"+strconv.Itoa(i)), binary, backend, shape, alone)
		if err != nil {
			return nil, errors.Join(err, fleet.process.stop())
		}
		stand.process.beside, fleet.process = fleet.process, stand.process
		doors = append(doors, stand.door)
	}
	return fleet, fleet.dialAll(doors)
}

// loopbackBytes returns what the loopback interface has carried.
func loopbackBytes() uint64 { return field("/proc/net/dev", "lo:") }

// table has the medians of all rounds.
func (f *fleetResults) table() daemonTable {
	t := daemonTable{
		title: "fleet: 8 producers, 8 consumers, 24 queues",
		head: []string{"store", "daemons", "messages a call", "messages/s", "CPU µs a message, daemons / store / client", "messages/s a core of daemons / of the store",
			"bytes a message", "MiB a daemon"},
	}
	for _, step := range fleetSteps() {
		for _, batch := range fleetBatches {
			var rate, daemon, store, client, bytes, memory []float64
			for _, g := range f.Figures {
				if g.fleetStep == step && g.Batch == batch {
					rate, daemon, store, client = append(rate, g.Rate), append(daemon, g.DaemonCPU), append(store, g.StoreCPU), append(client, g.ClientCPU)
					bytes, memory = append(bytes, g.Bytes), append(memory, g.DaemonMiB)
				}
			}
			if len(rate) == 0 {
				continue
			}
			d, s := median(daemon), median(store)
			name, storeCPU, storeRate := step.Store, "–", "–"
			if step.Nodes > 0 {
				name += fmt.Sprintf(", %d", step.Nodes)
				if step.Replicas > 0 {
					name += fmt.Sprintf(", %d replica each", step.Replicas)
				}
				storeCPU, storeRate = fmt.Sprintf("%.1f", s), grouped(1e6/s)
			}
			t.rows = append(t.rows, []string{name, strconv.Itoa(step.Daemons), strconv.Itoa(batch), grouped(median(rate)),
				fmt.Sprintf("%.1f / %s / %.1f", d, storeCPU, median(client)), grouped(1e6/d) + " / " + storeRate,
				grouped(median(bytes)), fmt.Sprintf("%.0f", median(memory))})
		}
	}
	return t
}

// fleetPage returns a page with the table of a file that -json wrote.
func fleetPage(page, file string) (string, error) {
	return rewritePage(page, "bench/results/fleet/fleet.json", file, func(out *strings.Builder, results *fleetResults) {
		fmt.Fprintf(out, "`%s` on %s, %d processors (%s), %d GiB, Linux %s, %s; medians of rounds of %s; load average %s at the start.\n\n",
			results.Command, results.Time.Format("2 January 2006"), results.Machine.Cores, results.Machine.Processor, results.Machine.MemoryGiB,
			results.Machine.Kernel, results.Machine.Filesystem, results.Slot, results.Machine.Load)
		results.table().markdown(out)
	})
}
