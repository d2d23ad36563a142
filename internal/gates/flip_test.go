package gates_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestG7FlippedBitsAreFound flips single bits in the files of a daemon that is not
// running, one at a time, and starts it again: it restores the bit and logs that, refuses
// to start and names the damaged file, or delivers only what was sent. A flipped bit of a
// body is always detected.
func TestG7FlippedBitsAreFound(t *testing.T) {
	const messages = 40
	origin := t.TempDir()
	d := startIn(t, origin, nil, onDisk...)
	sender := overHTTP(t, d, d.token)
	sent := make(map[string]string)
	for i := range messages {
		body := fmt.Sprintf("message %d %0200d", i, i)
		id, _, err := sender.send(t.Context(), "orders", fmt.Sprint(i), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		sent[id] = body
	}
	d.Stop(t)
	files := dataFiles(t, origin)
	random := rand.New(rand.NewPCG(volume.Seed(t), 7))
	flips := volume.Count(t, 20, 50)
	outcomes := make(map[string]int)
	for flip := range flips {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(origin)); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"keys", "operator.token", "revocations"} { // only their owner may read these
			if err := os.Chmod(filepath.Join(dir, secret), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		name := files[random.IntN(len(files))]
		for flip%2 == 0 && filepath.Ext(name) != ".log" { // where the messages are
			name = files[random.IntN(len(files))]
		}
		from, to := 0, 0 // anywhere
		inBody := flip%4 == 0
		if inBody {
			name, from, to = findBody(t, dir, files, sent)
		}
		where := flipBit(t, filepath.Join(dir, name), from, to, random)
		outcome := afterFlip(t, dir, sent)
		outcomes[outcome]++
		if inBody && outcome == unharmed {
			t.Errorf("bit %d of %s, in a body: %s", where, name, outcome)
		}
		if testing.Verbose() {
			t.Logf("flip %d: %s, bit %d: %s", flip, name, where, outcome)
		}
	}
	t.Logf("%d flipped bits in %d files: %v", flips, len(files), outcomes)
}

// dataFiles returns the files of messages, relative to the directory of the daemon.
func dataFiles(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(filepath.Join(dir, "queues"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := entry.Info(); err != nil || info.Size() == 0 {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	return names
}

// findBody returns the file and the range of bytes of a sent body.
func findBody(t *testing.T, dir string, files []string, sent map[string]string) (name string, from, to int) {
	t.Helper()
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range sent {
			if i := bytes.Index(data, []byte(body)); i >= 0 {
				return name, i, i + len(body)
			}
		}
	}
	t.Fatal("no file contains a sent body")
	return "", 0, 0
}

// flipBit flips a bit between two bytes, or anywhere if to is 0, and returns its position.
func flipBit(t *testing.T, path string, from, to int, random *rand.Rand) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if to == 0 {
		to = len(data)
	}
	bit := 8*from + random.IntN(8*(to-from))
	data[bit/8] ^= 1 << (bit % 8)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return bit
}

// afterFlip starts a daemon, receives everything, and returns what happened to the
// messages.
func afterFlip(t *testing.T, dir string, sent map[string]string) string {
	t.Helper()
	d, err := tryStart(t, dir, nil, onDisk...)
	if err != nil {
		if said := d.Stderr.String(); !strings.Contains(said, ": integrity: ") || !strings.Contains(said, dir) {
			t.Errorf("it ended without naming the damaged file: %s", said)
		}
		return "refused to start, and named the damaged file"
	}
	defer d.Kill()
	client := openHTTP(t, d.http, d.token)
	right := 0
	for {
		got, err := client.receive(t.Context(), "orders", wanted{most: 100, visibility: 10 * time.Minute})
		if err != nil {
			if codeOf(err) != "E_INTEGRITY" {
				t.Errorf("a receive fails with %v, want E_INTEGRITY", err)
			}
			return "refused to deliver"
		}
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			if sent[m.id] != string(m.body) {
				t.Errorf("%s was delivered with another body: %q", m.id, m.body)
			}
			right++
		}
	}
	dead := client.stats(t, "orders").Dead
	if right+dead != len(sent) {
		t.Errorf("of %d messages %d were delivered and %d are dead letters", len(sent), right, dead)
	}
	if dead > 0 {
		return "dead letters, and the others delivered"
	}
	if said := d.Stderr.String(); strings.Contains(said, "restored a flipped bit") && strings.Contains(said, dir) {
		return "restored the bit, named the file, and delivered all as they were sent"
	}
	return unharmed
}

const unharmed = "all delivered as they were sent"
