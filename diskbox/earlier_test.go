package diskbox

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store"
)

// unpack extracts an archive of testdata to a directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", archive))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if err == io.EOF {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if header.FileInfo().IsDir() {
			err = os.MkdirAll(name, 0o700)
		} else {
			var content []byte
			if content, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(name, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// laterClock is the clock of the machine that wrote a directory, long after.
type laterClock string

func (c laterClock) boot() string        { return string(c) }
func (laterClock) uptime() time.Duration { return 10_000 * time.Hour }

// longAfter returns the clock to open a directory with when all its leases and delays are over.
func longAfter(t *testing.T, dir string) bootClock {
	t.Helper()
	s, err := store.Open(t.Context(), dir, &store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	value, err := s.Get(clockKey, nil)
	record, ok := sealed(clockKey, value)
	if err != nil || !ok {
		t.Fatalf("the record of the clock is damaged, or cannot be read: %v", err)
	}
	return laterClock(record[16:])
}

// TestEarlierStrictGroupsDrainByTheNewRule opens a directory of a version in which a message in
// flight blocked its whole group. It has the queue ledger, with strict groups, MaxDeliveries 9
// and MaxMessages 9: a1 was nacked while a2 was in flight, and a3 is ready; b1 was nacked with
// a delay, and b2 is ready; c1 was delayed, and c2 is ready; e1 is ready, without a group. All
// leases and delays are over.
func TestEarlierStrictGroupsDrainByTheNewRule(t *testing.T) {
	dir := unpack(t, "strict-groups-before.tar.gz")
	b, err := Open(t.Context(), dir, &Options{boot: longAfter(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	config, err := b.QueueConfig(t.Context(), "ledger")
	if err != nil || !config.StrictGroups || config.MaxDeliveries != 9 || config.MaxMessages != 9 {
		t.Errorf("got %+v, error %v", config, err)
	}
	q, err := b.OpenQueue(t.Context(), "ledger")
	if err != nil {
		t.Fatal(err)
	}
	expectStats(t, q, driver.Stats{Ready: 8})
	got := receive(t, q, 3)
	if bodies := bodiesOf(got); bodies != "a1 a2 a3" {
		t.Errorf("got %q, want one group", bodies)
	}
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}}); err != nil {
		t.Fatal(err)
	}
	rest := receive(t, q, 6)
	if bodies := bodiesOf(rest); bodies != "b1 b2 c1 c2 e1 a1" {
		t.Errorf("got %q, want the other groups and then the head that was given back", bodies)
	}
	for _, d := range append(rest, got[1:]...) {
		if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	expectStats(t, q, driver.Stats{})
}

// TestFormat1OpensAndGetsFormat2 opens a directory of the version before messages had two
// checksums. Of 8 orders, 0 was acked, 1 was nacked, 2 is dead, 3 was in flight, 7 was delayed.
func TestFormat1OpensAndGetsFormat2(t *testing.T) {
	dir := unpack(t, "format-1.tar.gz")
	format := filepath.Join(dir, "db", "MAILBOX_FORMAT")
	expectFormat := func(want string) {
		t.Helper()
		text, err := os.ReadFile(format)
		if err != nil || !strings.HasPrefix(string(text), "mailbox disk format "+want+"\n") {
			t.Errorf("the format is %q, %v, want %s", text, err, want)
		}
	}
	if report, err := Check(t.Context(), dir, nil); err != nil || len(report.Problems) > 0 || report.Messages != 6 || report.Dead != 1 || report.Keys != 8 {
		t.Errorf("check says %+v, %v", report, err)
	}
	expectFormat("1") // Check changes nothing
	options := &Options{boot: longAfter(t, dir)}
	for opened := range 2 {
		b, err := Open(t.Context(), dir, options)
		if err != nil {
			t.Fatal(err)
		}
		expectFormat("2")
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if opened == 0 {
			send(t, q, driver.Outgoing{Body: []byte("order 8")})
		} else {
			got := receive(t, q, 7)
			if bodies := bodiesOf(got); bodies != "order 3 order 4 order 5 order 6 order 7 order 1 order 8" || got[0].Attributes["n"] != "3" {
				t.Errorf("received %q", bodies)
			}
			if letters := lettersOf(t, q); len(letters) != 1 || string(letters[0].Body) != "order 2" || letters[0].Reason != driver.ReasonFatal {
				t.Errorf("the dead letters are %+v", letters)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if report, err := Check(t.Context(), dir, nil); err != nil || len(report.Problems) > 0 {
		t.Errorf("check says %+v, %v", report, err)
	}
}

func bodiesOf(deliveries []driver.Delivery) string {
	var bodies []string
	for _, d := range deliveries {
		bodies = append(bodies, string(d.Body))
	}
	return strings.Join(bodies, " ")
}
