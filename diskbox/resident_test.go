package diskbox

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
)

// TestOnlyMessagesFromDiskAreNotResident sends a message and receives it, once from memory and
// once after the directory was opened again.
func TestOnlyMessagesFromDiskAreNotResident(t *testing.T) {
	dir := t.TempDir()
	for _, resident := range []bool{true, false} {
		b, err := Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if resident {
			if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), Seal: []byte("seal")}}); err != nil {
				t.Fatal(err)
			}
		}
		d := receive(t, q, 1)[0]
		if d.Resident != resident || string(d.Seal) != "seal" || string(d.Body) != "a" {
			t.Errorf("got resident %v with seal %q, want %v with its seal", d.Resident, d.Seal, resident)
		}
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBusyQueueStaysInMemory lets more messages wait than a shard may hold alone, in two queues
// one after the other.
func TestBusyQueueStaysInMemory(t *testing.T) {
	const waiting = 1000
	room := host.NewRoom(1 << 20)
	size := room.Free()
	b, err := Open(t.Context(), t.TempDir(), &Options{room: room, Sync: SyncNone})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for _, name := range []string{"orders", "invoices"} {
		q, err := b.OpenQueue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for range waiting {
			if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
				t.Fatal(err)
			}
		}
		if room.Free() == size {
			t.Errorf("%s: nothing of the room is taken", name)
		}
		for i, d := range receive(t, q, waiting) {
			if !d.Resident {
				t.Fatalf("%s: message %d was read from the store", name, i)
			}
		}
		for range waiting {
			if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.DeleteQueue(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if free := room.Free(); free != size {
			t.Errorf("%s: %d bytes of the room are free after the queue was deleted, want %d", name, free, size)
		}
	}
}
