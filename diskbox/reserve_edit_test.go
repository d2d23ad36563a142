package diskbox

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Below the reserve, operations that write a body again are refused like a send, and those that
// free space or read are not.
func TestEditsAndFiringsKeepTheReserve(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := b.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	stored, done, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Definition: []byte("{}")})
	if err != nil || !done {
		t.Fatalf("store: %v, %v", done, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = Open(t.Context(), dir, &Options{ReserveBytes: 1 << 50}); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if q, err = b.OpenQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Edit(t.Context(), sent[0].ID, driver.Edit{DeliverAt: time.Now().Add(time.Hour)}); !errors.Is(err, driver.ErrFull) {
		t.Errorf("edit: %v, want %v", err, driver.ErrFull)
	}
	if _, _, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: stored.Revision, Messages: []driver.DueMessage{{}}}); !errors.Is(err, driver.ErrFull) {
		t.Errorf("fire: %v, want %v", err, driver.ErrFull)
	}
	if read, _, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: 1 << 53}); err != nil || read.Revision != stored.Revision {
		t.Errorf("read: %+v, %v", read, err)
	}
	if _, done, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: stored.Revision, Remove: true}); err != nil || !done {
		t.Errorf("remove the schedule: %v, %v", done, err)
	}
	if _, err := q.Edit(t.Context(), sent[0].ID, driver.Edit{Remove: true}); err != nil {
		t.Errorf("remove the message: %v", err)
	}
}
