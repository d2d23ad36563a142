package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

// A stuckOpener has queues whose Send returns only after its context has ended, like a
// Redis that does not answer.
type stuckOpener struct {
	*membox.Backend
	release chan struct{}
	asked   chan struct{} // has a buffer of one
}

type stuckQueue struct {
	driver.Queue
	opener stuckOpener
}

func (o stuckOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := o.Backend.OpenQueue(ctx, name)
	return stuckQueue{q, o}, err
}

func (q stuckQueue) Send(ctx context.Context, _ []driver.Outgoing) ([]driver.Sent, error) {
	select {
	case q.opener.asked <- struct{}{}:
	default:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-q.opener.release:
		return nil, driver.ErrUnavailable
	}
}

func TestDrainEndsInTimeWithStuckBackend(t *testing.T) {
	opener := stuckOpener{membox.New(nil), make(chan struct{}), make(chan struct{}, 1)}
	defer opener.Close()
	daemon, err := server.New(server.Config{
		Profile: server.Micronode, Listen: server.Off, ListenOAP: "127.0.0.1:0", LogLevel: "error", DrainTimeout: time.Second,
	}, &server.Options{Opener: opener})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx) }()
	<-daemon.Started()
	client := remotebox.New([]string{daemon.Address(server.OAP)}, daemon.OperatorToken().Reveal(), nil)
	defer client.Close()
	q, err := client.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	sending, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() { _, _ = q.Send(sending, []driver.Outgoing{{Body: []byte("x")}}) }() // it gets no answer
	<-opener.asked
	cancel()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Error("2 minutes after it was told to stop within 1 s, the daemon still runs")
		close(opener.release)
		<-done
	}
}
