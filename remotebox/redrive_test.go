package remotebox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

func TestManyDeadLettersAreRedrivenByTheirIDs(t *testing.T) {
	daemon, stop, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stop() }()
	backend := remotebox.New([]string{daemon.Address(server.OAP)}, daemon.OperatorToken().Reveal(), nil)
	defer backend.Close()
	q, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: time.Minute})
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	dead := q
	if err := dead.DeadLetter(t.Context(), []driver.DeadLetterRequest{
		{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}, {Receipt: got[1].Receipt, Reason: driver.ReasonFatal},
	}); err != nil {
		t.Fatal(err)
	}
	ids := []string{got[0].ID}
	for i := range 8192 { // ids that are unknown are passed over
		ids = append(ids, fmt.Sprintf("unknown-%d", i))
	}
	ids = append(ids, got[1].ID)
	if moved, err := dead.Redrive(t.Context(), ids, 0); moved != 2 || err != nil {
		t.Errorf("moved %d of 2: %v", moved, err)
	}
}
