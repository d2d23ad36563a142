package diskbox

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
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

// TestEarlierStrictGroupsDrainByTheNewRule opens a directory of a version in which a message in
// flight blocked its whole group. It has the queue ledger, with strict groups, MaxDeliveries 9
// and MaxMessages 9: a1 was nacked while a2 was in flight, and a3 is ready; b1 was nacked with
// a delay, and b2 is ready; c1 was delayed, and c2 is ready; e1 is ready, without a group. All
// leases and delays are over by now.
func TestEarlierStrictGroupsDrainByTheNewRule(t *testing.T) {
	b, err := Open(t.Context(), unpack(t, "strict-groups-before.tar.gz"), nil)
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

func bodiesOf(deliveries []driver.Delivery) string {
	var bodies []string
	for _, d := range deliveries {
		bodies = append(bodies, string(d.Body))
	}
	return strings.Join(bodies, " ")
}
