package diskbox

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
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
