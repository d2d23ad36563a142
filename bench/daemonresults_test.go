package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func rates(figures ...float64) []daemonPace {
	paces := make([]daemonPace, len(figures))
	for i, f := range figures {
		paces[i] = daemonPace{Rate: f, P50: f, ServerCPU: 1, ClientCPU: f}
	}
	return paces
}

func TestRatiosComeFromWithinEachRound(t *testing.T) {
	for _, c := range []struct {
		name   string
		ours   []float64
		theirs [][]float64
		want   []float64
	}{
		{"one peer", []float64{10, 40}, [][]float64{{20, 20}}, []float64{0.5, 2}},
		{"best of the round", []float64{10, 40}, [][]float64{{20, 20}, {5, 80}}, []float64{0.5, 0.5}},
		{"a peer with fewer rounds", []float64{10, 40, 9}, [][]float64{{20, 20}}, []float64{0.5, 2}},
		{"a peer that did nothing", []float64{10, 40}, [][]float64{{0, 20}}, []float64{2}},
	} {
		if got := ratiosWithin(c.ours, c.theirs); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSpreadIsMedianAndRange(t *testing.T) {
	if got, want := spreadOf([]float64{5, 1, 9, 2, 3}), (spread{Median: 3, Low: 1, High: 9}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := spreadOf(nil); got != (spread{}) {
		t.Errorf("got %v for no rounds", got)
	}
}

// The median of the ratios is not the ratio of the medians.
func TestComparisonUsesMedianOfRatios(t *testing.T) {
	d := &daemonResults{Series: []*daemonSeries{
		{Workload: "W1", Server: "mailboxd disk", Rounds: rates(10, 100, 300)},
		{Workload: "W1", Server: "redis disk", Rounds: rates(5, 200, 100)},
		{Workload: "W3", Server: "mailboxd disk", Rounds: rates(11)},
		{Workload: "W3", Server: "redis disk", Rounds: rates(10)},
		{Workload: "W2", Server: "mailboxd disk", Rounds: rates(11)},
	}}
	d.compare()
	var got []string
	for _, c := range d.Comparisons {
		got = append(got, fmt.Sprintf("%s: %.1f %d %s, CPU %.1f", strings.Split(c.What, ",")[0], c.Ratio.Median, c.Rounds, c.met(), c.CPU))
	}
	want := []string{"W1 synced: 2.0 3 goal, CPU 1.8", "W2 synced: 0.0 0 not measured, CPU 0.0", "W3 p50 synced: 1.1 1 at least, CPU 1.1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBaselineIsComparedInEveryWorkload(t *testing.T) {
	d := &daemonResults{Series: []*daemonSeries{
		{Workload: "W1", Server: "mailboxd memory", Rounds: rates(30)},
		{Workload: "W1", Server: "baseline memory", Rounds: rates(20)},
		{Workload: "W3", Server: "mailboxd memory", Rounds: rates(30)},
		{Workload: "W3", Server: "baseline memory", Rounds: rates(20)},
	}}
	d.compare()
	got := map[string]float64{}
	for _, c := range d.Comparisons {
		if c.Rounds > 0 {
			got[c.What] = c.Ratio.Median
		}
	}
	if len(got) != 2 || got["W1 memory, against the baseline"] != 1.5 || got["W3 memory, against the baseline"] != 1.5 {
		t.Errorf("got %v", got)
	}
}

func TestMissingServerIsNamedAndIsNoFailure(t *testing.T) {
	d := &daemonResults{}
	d.absent("W1", daemonRow{peer: "rabbitmq", durable: true}, fmt.Errorf("rabbitmq-server: %w; run it", errMissing))
	d.absent("W2", daemonRow{peer: "beanstalkd"}, errNoBatches)
	if err := d.failure(); err != nil {
		t.Errorf("got failure %v, want none", err)
	}
	d.absent("W1", daemonRow{peer: "nats"}, errors.New("lost a message"))
	if err := d.failure(); err == nil || err.Error() != "W1: nats memory: lost a message" {
		t.Errorf("got failure %v, want that of nats", err)
	}
	var out strings.Builder
	d.showWorkload(&out, "W1")
	if want := "rabbitmq disk: rabbitmq-server: not installed; run it"; !strings.Contains(out.String(), want) {
		t.Errorf("got %q, want %q in it", out.String(), want)
	}
}

func TestFlagsSelectRows(t *testing.T) {
	all := []daemonRow{
		{peer: "mailboxd"}, {peer: "mailboxd", durable: true}, {peer: "mailboxd-grpc", named: true},
		{peer: "redis"}, {peer: "redis", durable: true}, {peer: "nats"},
	}
	for _, c := range []struct {
		r    report
		want string
	}{
		{report{}, "mailboxd memory, mailboxd disk, redis memory, redis disk, nats memory"},
		{report{peers: []string{"redis"}}, "mailboxd memory, mailboxd disk, redis memory, redis disk"},
		{report{peers: []string{"redis"}, storage: "disk"}, "mailboxd disk, redis disk"},
		{report{peers: []string{"mailboxd-grpc"}, storage: "memory"}, "mailboxd memory, mailboxd-grpc memory"},
	} {
		rows, err := c.r.selectRows(all)
		var names []string
		for _, row := range rows {
			names = append(names, row.name())
		}
		if got := strings.Join(names, ", "); err != nil || got != c.want {
			t.Errorf("peers %v, storage %q: got %s and %v, want %s", c.r.peers, c.r.storage, got, err, c.want)
		}
	}
	r := report{peers: []string{"reddis"}}
	if _, err := r.selectRows(all); err == nil || !strings.Contains(err.Error(), `unknown peer "reddis"`) {
		t.Errorf("got error %v, want one that names the peer", err)
	}
}

func TestThreadsAreCountedSinceBefore(t *testing.T) {
	before := threads{1: {processor: 10, switches: 5}, 2: {processor: 100, switches: 50}, 3: {processor: 7, switches: 9}}
	after := threads{1: {processor: 15, switches: 6}, 3: {processor: 2, switches: 1}, 4: {processor: 3, switches: 2}}
	// 2 ended, 3 is another thread with the same number, 4 is new.
	if got, want := after.since(before), (usage{processor: 5 + 2 + 3, switches: 1 + 1 + 2}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFilesOfTheSystemAreParsed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	status := write("status", "Name:\ta b\nVmRSS:\t   2048 kB\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n")
	if got := field(status, "voluntary_ctxt_switches:") + field(status, "nonvoluntary_ctxt_switches:"); got != 15 {
		t.Errorf("got %d switches, want 15", got)
	}
	if got := runTime(write("schedstat", "885821 260175 14\n")); got != 885821*time.Nanosecond {
		t.Errorf("got %v of processor time, want 885.821µs", got)
	}
}

func TestProducerAndConsumerUseTheSameQueuesInOrder(t *testing.T) {
	shape := daemonShape{workers: 2, batch: 3, queues: 5}
	producer, consumer := shape.rotation(1), shape.rotation(1)
	var sent, received []int
	for range 10 {
		sent = append(sent, producer.next(3))
		for _, part := range []int{2, 0, 1} { // a batch comes in parts
			received = append(received, consumer.current())
			consumer.next(part)
		}
	}
	for i, queue := range sent {
		if got := received[3*i : 3*i+3]; !slices.Equal(got, []int{queue, queue, queue}) {
			t.Fatalf("batch %d was sent to queue %d and received from %v", i, queue, got)
		}
	}
	if !slices.Equal(sent[:5], []int{1, 3, 0, 2, 4}) {
		t.Errorf("queues were used in the order %v", sent)
	}
}

func TestVersionIsFoundInText(t *testing.T) {
	for text, want := range map[string]string{
		"Redis server v=7.0.15 sha=00000000:0": "7.0.15", "beanstalkd 1.12": "1.12", "postgres (PostgreSQL) 15.18 (Debian 15.18-0)": "15.18",
		"/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin/rabbitmq-server": "3.10.8", "v2.15.2": "2.15.2", "devel": "devel",
	} {
		if got := versionIn(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
