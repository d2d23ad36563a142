package diskbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
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

// TestIdleQueuesGiveTheirRoomBack lets queues without receivers take the room. A receive from
// another queue takes it back, and their messages come from the store, all and in order.
func TestIdleQueuesGiveTheirRoomBack(t *testing.T) {
	volume.InFull(t)
	for _, config := range []driver.Config{{}, {StrictGroups: true}, {FairGroups: true}} {
		synctest.Test(t, func(t *testing.T) {
			const waiting = 300
			room := host.NewRoom(256 << 10)
			size := room.Free()
			b, err := Open(t.Context(), "queues", &Options{fs: storetest.NewDisk().FS(), boot: bubbleClock{}, room: room})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			var queues []driver.Queue
			for i := range 4 {
				name := fmt.Sprintf("idle-%d", i)
				if err := b.ConfigureQueue(t.Context(), name, config); err != nil {
					t.Fatal(err)
				}
				q, err := b.OpenQueue(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				queues = append(queues, q)
				for n := range waiting {
					send(t, q, driver.Outgoing{Body: fmt.Append(nil, n), Group: fmt.Sprint("g", n%3)})
				}
			}
			busy := openQueue(t, b, "busy")
			send(t, busy, driver.Outgoing{Body: []byte("a")})
			if free := room.Free(); free > size/2 {
				t.Fatalf("%d of %d bytes of the room are free", free, size)
			}
			time.Sleep(time.Minute)
			receive(t, busy, 1)
			if free := room.Free(); free != size {
				t.Errorf("%d of %d bytes of the room are free after a minute without receives", free, size)
			}
			for i, q := range queues {
				next := map[string]int{"g0": 0, "g1": 1, "g2": 2}
				for got := 0; got < waiting; {
					deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
					if err != nil || len(deliveries) == 0 {
						t.Fatalf("queue %d: %d of %d messages came; %v", i, got, waiting, err)
					}
					for _, d := range deliveries {
						if want := fmt.Sprint(next[d.Group]); string(d.Body) != want {
							t.Fatalf("queue %d: got message %s of group %s, want %s", i, d.Body, d.Group, want)
						}
						next[d.Group] += 3
						got++
						if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}
