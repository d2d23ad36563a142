package diskbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

func TestDirectoryBelongsToOneProcessAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queues")
	first, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = Open(t.Context(), dir, nil)
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("a second Open says %v; it should name %s", err, dir)
	}
}

func TestForeignDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(t.Context(), dir, nil); err == nil {
		_ = b.Close()
		t.Fatal("it was opened")
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Fatalf("the file is %q, %v", content, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Fatalf("the directory holds %v, %v", left, err)
	}
}

// TestRebootMakesDeadlinesLateNotEarly restarts in another boot, whose clock does not show the
// time in between.
func TestRebootMakesDeadlinesLateNotEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		m := start(t, disk)
		q, err := m.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("tea"), Delay: 10 * time.Minute}}); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		booted := time.Now()
		again, err := Open(t.Context(), "queues", &Options{fs: disk.FS(), boot: otherBoot{since: booted}, small: true})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		q, err = again.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if waited := time.Since(booted); waited < 10*time.Minute-time.Second || waited > 11*time.Minute {
			t.Errorf("delivered %v after the reboot, want the whole delay again", waited)
		}
	})
}

// otherBoot is the clock of a machine that booted at since.
type otherBoot struct{ since time.Time }

func (otherBoot) boot() string            { return "another boot" }
func (b otherBoot) uptime() time.Duration { return time.Since(b.since) }

func TestDamagedRecordsAreNoticed(t *testing.T) {
	e := &engine.Entry{
		Seq: 7, Place: 9, Deliveries: 2, Due: 5, Born: 3,
		Content: engine.Content{
			ID: "01JD2Q0000000000000000000A", Body: []byte("tea"), Seal: []byte("seal"),
			Extra: &engine.Extra{Attributes: map[string]string{"k": "v"}, Group: "g", LastError: "boom", Reason: driver.ReasonFatal, DeadAt: 1},
		},
	}
	key := []byte("key")
	record := deadRecord(key, e)
	bodyAt := bytes.Index(record, e.Body)
	for bit := range 8 * len(record) {
		flipped := append([]byte(nil), record...)
		flipped[bit/8] ^= 1 << (bit % 8)
		var back engine.Entry
		r := openMessage(key, flipped)
		r.dead(&back)
		switch inBody := bit/8 >= bodyAt; {
		case !inBody && !r.damaged:
			t.Fatalf("flipped bit %d was not noticed", bit)
		case inBody && (r.damaged || !back.Is(engine.Damaged) || back.Body != nil || back.ID != e.ID || back.Extra.Reason != driver.ReasonIntegrity):
			t.Fatalf("flipped bit %d of the body: read %+v, damaged: %v", bit, back, r.damaged)
		}
	}
	for length := range record {
		if r := openMessage(key, record[:length]); !r.damaged && !r.bodyDamaged {
			t.Fatalf("a record of %d bytes was taken for sound with %d", len(record), length)
		}
	}
	if r := openMessage([]byte("other"), record); !r.damaged {
		t.Error("a record under another key was taken for sound")
	}
	r := openMessage(key, record)
	var back engine.Entry
	r.dead(&back)
	if r.damaged || back.ID != e.ID || string(back.Body) != "tea" || string(back.Seal) != "seal" || back.Extra.Attributes["k"] != "v" || back.Extra.Reason != driver.ReasonFatal {
		t.Errorf("read back %+v", back)
	}
}

// deadRecord returns the record of a dead letter.
func deadRecord(key []byte, e *engine.Entry) []byte {
	j := journal{key: key}
	j.beginMessage().dead(e)
	return j.w.endMessage(e)
}

func TestClosedBackendSaysSo(t *testing.T) {
	b, err := Open(t.Context(), filepath.Join(t.TempDir(), "queues"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := b.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{}}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("send says %v", err)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("ping says %v", err)
	}
}

// FuzzRecords reads records with a valid hash and arbitrary content.
func FuzzRecords(f *testing.F) {
	var w writer
	content := engine.Content{ID: "id", Body: []byte("tea"), Extra: &engine.Extra{Attributes: map[string]string{"k": "v"}}}
	w.dead(&engine.Entry{Content: content})
	f.Add(slices.Clone(w.buf))
	content.Seal = []byte("seal")
	w.buf = w.buf[:0]
	w.dead(&engine.Entry{Content: content})
	f.Add(w.buf)
	f.Add([]byte{recordVersion, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, record []byte) {
		key := []byte("key")
		var w writer
		w.begin(key)
		w.buf = append(w.buf, record...)
		sealed := slices.Clone(w.end())
		j := journal{key: key}
		j.beginMessage().buf = append(j.w.buf, record...)
		for _, sealed := range [][]byte{sealed, j.w.endMessage(&engine.Entry{Content: engine.Content{Body: record}}), record} {
			for _, read := range []func(*reader, *engine.Entry){
				(*reader).message, (*reader).further, (*reader).dead, func(r *reader, e *engine.Entry) { r.state(e) },
			} {
				r := openMessage(key, sealed)
				var e engine.Entry
				read(&r, &e)
				if len(e.Body) > len(record) {
					t.Fatalf("a record of %d bytes has a body of %d", len(record), len(e.Body))
				}
			}
		}
	})
}
