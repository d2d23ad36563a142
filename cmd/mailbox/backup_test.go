package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/remotebox"
)

// An env is a daemon on disk and the programs to use it with.
type env struct {
	mailbox, mailboxd string
	data              string
	daemon            *proctest.Process
	environ           []string
	oap               string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	r := &env{data: filepath.Join(t.TempDir(), "data")}
	r.mailbox, r.mailboxd = programs(t)
	r.start(t, r.data)
	return r
}

// start starts a daemon on a data directory.
func (r *env) start(t *testing.T, data string) {
	t.Helper()
	r.daemon = proctest.Start(t, exec.Command(r.mailboxd, "--listen", "127.0.0.1:0", "--listen-oap", "127.0.0.1:0", "--data-dir", data))
	line := r.daemon.AwaitLog(t, "started")
	if line == nil {
		t.Fatalf("the daemon does not start: %s", r.daemon.Stderr.String())
	}
	r.oap = line["oap"].(string)
	r.environ = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "MAILBOX_ADDR=" + line["http"].(string), "MAILBOXD_DATA_DIR=" + data}
}

// run runs a command to its end.
func (r *env) run(args ...string) (stdout, stderr string, code int) {
	command := exec.Command(r.mailbox, args...)
	command.Env = r.environ
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	_ = command.Run() // the exit code has the result
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

func (r *env) must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := r.run(args...)
	if code != 0 {
		t.Fatalf("mailbox %s: exit code %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// client connects to the daemon with the operator's token.
func (r *env) client(t *testing.T) *remotebox.Backend {
	t.Helper()
	token, err := capability.ReadTokenFile(filepath.Join(r.data, "operator.token"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := remotebox.Open(t.Context(), []string{r.oap}, token.Reveal(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (r *env) queue(t *testing.T, b *remotebox.Backend, name string) driver.Queue {
	t.Helper()
	q, err := b.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// fill sends messages of 8 KiB that cannot be compressed.
func (r *env) fill(t *testing.T, n int) {
	t.Helper()
	q := r.queue(t, r.client(t), "bulk")
	noise := rand.NewChaCha8([32]byte{})
	for sent := 0; sent < n; {
		var batch []driver.Outgoing
		for range min(50, n-sent) {
			body := make([]byte, 8<<10)
			_, _ = noise.Read(body) // never fails
			batch = append(batch, driver.Outgoing{Body: body})
		}
		if _, err := q.Send(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		sent += len(batch)
	}
}

// bodies returns the bodies of the messages in a directory or backup.
func bodies(t *testing.T, path string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	err := diskbox.List(t.Context(), path, nil, func(l *diskbox.Listed) error {
		if found[string(l.Body)] {
			t.Errorf("%s is there twice", l.Body)
		}
		found[string(l.Body)] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

const (
	loadQueues  = 3
	loadSenders = 3
	loadAckers  = 2
)

// loadFigures records what senders and ackers did.
type loadFigures struct {
	begun     [loadSenders]int     // the last number whose send was begun
	confirmed [loadSenders]int     // the last number whose send was confirmed
	acks      [loadAckers][]string // bodies, in the order in which their acks were begun
	acked     [loadAckers]int      // how many of them were confirmed
}

// A loadLedger guards the figures.
type loadLedger struct {
	mu sync.Mutex // guards the figures
	loadFigures
}

// snapshot returns a copy of the figures.
func (l *loadLedger) snapshot() (s loadFigures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.loadFigures
	for i := range l.acks {
		s.acks[i] = append([]string(nil), l.acks[i]...)
	}
	return s
}

func (l *loadLedger) note(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func loadBody(sender, n int) string { return fmt.Sprintf("sender %d message %d", sender, n) }

// send sends numbered messages, one after another and to one queue after another,
// until stop is closed.
func (l *loadLedger) send(t *testing.T, sender int, queues []driver.Queue, stop <-chan struct{}) {
	for n := 1; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		l.note(func() { l.begun[sender] = n })
		if _, err := queues[n%len(queues)].Send(t.Context(), []driver.Outgoing{{Body: []byte(loadBody(sender, n))}}); err != nil {
			t.Errorf("send: %v", err)
			return
		}
		l.note(func() { l.confirmed[sender] = n })
	}
}

// ack acks messages one after another until stop is closed.
func (l *loadLedger) ack(t *testing.T, acker int, queues []driver.Queue, stop <-chan struct{}) {
	for round := 0; ; round++ {
		select {
		case <-stop:
			return
		default:
		}
		q := queues[round%len(queues)]
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: time.Minute, Wait: 5 * time.Millisecond})
		if err != nil {
			t.Errorf("receive: %v", err)
			return
		}
		for _, d := range got {
			l.note(func() { l.acks[acker] = append(l.acks[acker], string(d.Body)) })
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Errorf("ack: %v", err)
				return
			}
			l.note(func() { l.acked[acker]++ })
		}
	}
}

// verifyMoment checks that a backup taken between two snapshots is the state of
// one moment between them.
func verifyMoment(t *testing.T, before, after *loadFigures, inBackup map[string]bool) {
	t.Helper()
	ackBegun := make(map[string]bool)
	for i := range loadAckers {
		for k, body := range after.acks[i] {
			ackBegun[body] = true
			if k < before.acked[i] && inBackup[body] {
				t.Errorf("%s was acked before the backup began, and is in it", body)
			}
		}
	}
	var last [loadSenders]int // the last message of each sender in the backup
	for body := range inBackup {
		var sender, n int
		if _, err := fmt.Sscanf(body, "sender %d message %d", &sender, &n); err != nil {
			t.Fatalf("%q is in the backup", body)
		}
		last[sender] = max(last[sender], n)
	}
	for sender := range loadSenders {
		if last[sender] > after.begun[sender] {
			t.Errorf("%s was sent after the backup ended, and is in it", loadBody(sender, last[sender]))
		}
		for n := 1; n <= max(last[sender], before.confirmed[sender]); n++ {
			if body := loadBody(sender, n); !inBackup[body] && !ackBegun[body] {
				t.Errorf("%s is missing: later ones are there, or it was confirmed before the backup began", body)
			}
		}
	}
	for i := range loadAckers {
		present := ""
		for _, body := range after.acks[i] {
			var sender, n int
			_, _ = fmt.Sscanf(body, "sender %d message %d", &sender, &n) // parsed before
			switch {
			case inBackup[body] && present == "":
				present = body
			case !inBackup[body] && present != "" && n < last[sender]:
				t.Errorf("%s is gone, and %s is there, which the same receiver acked before", body, present)
			}
		}
	}
}

func TestBackupUnderLoadIsOneMoment(t *testing.T) {
	r := newEnv(t)
	for q := range loadQueues {
		r.must(t, "queues", "create", fmt.Sprintf("load%d", q))
	}
	var ledger loadLedger
	stop := make(chan struct{})
	var working sync.WaitGroup
	begin := func(work func(*testing.T, int, []driver.Queue, <-chan struct{}), n int) {
		for i := range n {
			b := r.client(t)
			var queues []driver.Queue
			for q := range loadQueues {
				queues = append(queues, r.queue(t, b, fmt.Sprintf("load%d", q)))
			}
			working.Go(func() { work(t, i, queues, stop) })
		}
	}
	begin(ledger.send, loadSenders)
	begin(ledger.ack, loadAckers)
	defer func() {
		close(stop)
		working.Wait()
	}()
	dir := t.TempDir()
	for round := range volume.Count(t, 3, 20) {
		goal := 100 * (round + 1)
		proctest.Eventually(t, time.Minute, "some load", func() bool {
			s := ledger.snapshot()
			return s.confirmed[0] > goal || t.Failed()
		})
		before := ledger.snapshot()
		path := filepath.Join(dir, fmt.Sprintf("backup%d.tar", round))
		var v struct{ Messages int }
		if err := json.Unmarshal([]byte(r.must(t, "backup", path, "--json")), &v); err != nil {
			t.Fatal(err)
		}
		after := ledger.snapshot()
		inBackup := bodies(t, path)
		verifyMoment(t, &before, &after, inBackup)
		if v.Messages != len(inBackup) {
			t.Errorf("the command counted %d messages, and the backup has %d", v.Messages, len(inBackup))
		}
		restored := filepath.Join(dir, fmt.Sprintf("restored%d", round))
		r.must(t, "restore", path, restored)
		if got := bodies(t, filepath.Join(restored, "queues")); len(got) != len(inBackup) {
			t.Errorf("%d messages were restored of %d", len(got), len(inBackup))
		}
		t.Logf("round %d: %d confirmed before, %d messages in the backup", round, before.confirmed, len(inBackup))
	}
}

func TestKilledBackupIsRefusedAndLosesNothing(t *testing.T) {
	r := newEnv(t)
	const messages = 1500
	r.fill(t, messages)
	dir := t.TempDir()
	rounds := volume.Count(t, 6, 100)
	began := time.Now()
	r.must(t, "backup", filepath.Join(dir, "first.tar"))
	took := time.Since(began)
	for round := range rounds {
		path := filepath.Join(dir, fmt.Sprintf("client%d.tar", round))
		command := exec.Command(r.mailbox, "backup", path)
		command.Env = r.environ
		client := proctest.Start(t, command)
		<-time.After(rand.N(took))
		client.Kill()
		r.wantWholeOrRefused(t, path, messages)
	}
	for round := range rounds {
		path := filepath.Join(dir, fmt.Sprintf("daemon%d.tar", round))
		command := exec.Command(r.mailbox, "backup", path)
		command.Env = r.environ
		client := proctest.Start(t, command)
		<-time.After(rand.N(took))
		r.daemon.Kill()
		<-client.Ended()
		if _, err := os.Stat(path); (err == nil) != (client.Err() == nil) {
			t.Errorf("the command ended with %v, and of the file %v", client.Err(), err)
		}
		if client.Err() != nil && !strings.Contains(client.Stderr.String(), "mailbox: ") {
			t.Errorf("the error does not name the interruption: %s", client.Stderr.String())
		}
		r.wantWholeOrRefused(t, path, messages)
		r.start(t, r.data)
		if _, err := os.Stat(filepath.Join(r.data, "queues", "db.archive")); err == nil {
			t.Error("the daemon kept the copy of a killed backup")
		}
	}
	whole := filepath.Join(dir, "whole.tar")
	r.must(t, "backup", whole)
	r.wantWholeOrRefused(t, whole, messages)
	if _, err := os.Stat(whole); err != nil {
		t.Error(err)
	}
}

// wantWholeOrRefused checks that a backup is missing or complete, and that an incomplete one is
// refused.
func (r *env) wantWholeOrRefused(t *testing.T, path string, messages int) {
	t.Helper()
	want := fmt.Sprintf("%d messages", messages)
	names, err := filepath.Glob(path + "*") // an incomplete file has another ending
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		stdout, stderr, code := r.run("check", name)
		refused := code != 0 && (strings.Contains(stderr, "is not complete") || strings.Contains(stderr, "is not a backup"))
		whole := code == 0 && strings.Contains(stdout, want)
		if !whole && (name == path || !refused) {
			t.Errorf("%s: exit code %d, %s%s", name, code, stdout, stderr)
		}
		if refused {
			into := filepath.Join(t.TempDir(), "data")
			_, stderr, code := r.run("restore", name, into)
			if code == 0 || !strings.Contains(stderr, "is not complete") && !strings.Contains(stderr, "is not a backup") {
				t.Errorf("restore %s: exit code %d, %s", name, code, stderr)
			}
		}
	}
}

func TestKilledRestoreLeavesNothingOrAll(t *testing.T) {
	r := newEnv(t)
	const messages = 1500
	r.fill(t, messages)
	path := filepath.Join(t.TempDir(), "backup.tar")
	r.must(t, "queues", "create", "before")
	r.must(t, "backup", path)
	r.must(t, "queues", "create", "after")
	recorded, _, err := audit.Read(r.data)
	if err != nil || len(recorded) != 3 {
		t.Fatalf("the audit log has %v, %v", recorded, err)
	}
	began := time.Now()
	r.must(t, "restore", path, filepath.Join(t.TempDir(), "first"))
	took := time.Since(began)
	nothing, whole := 0, 0
	for range volume.Count(t, 6, 100) {
		into := filepath.Join(t.TempDir(), "data")
		command := exec.Command(r.mailbox, "restore", path, into)
		command.Env = r.environ
		restoring := proctest.Start(t, command)
		<-time.After(rand.N(took + took/4))
		restoring.Kill()
		if entries, err := os.ReadDir(into); err != nil || len(entries) == 0 {
			nothing++
			r.must(t, "restore", path, into) // leftovers beside it do not matter
		} else {
			whole++
		}
		if text := r.must(t, "check", into); !strings.Contains(text, fmt.Sprintf("%d messages", messages)) {
			t.Errorf("after kill -9: %s", text)
		}
		if got, _, err := audit.Read(into); err != nil || !slices.Equal(got, recorded) {
			t.Errorf("after kill -9 the audit log has %v, %v, want %v", got, err, recorded)
		}
	}
	if got, _, err := audit.Read(r.data); err != nil || !slices.Equal(got, recorded) {
		t.Errorf("the audit log of the earlier directory has %v, %v, want %v", got, err, recorded)
	}
	t.Logf("killed before the directory appeared %d times, after that %d times", nothing, whole)
}
