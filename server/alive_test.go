package server_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server"
)

// A pingOpener is a backend whose Ping calls ping.
type pingOpener struct {
	*membox.Backend
	ping func(context.Context) error
}

func (o *pingOpener) Ping(ctx context.Context) error { return o.ping(ctx) }

func TestAliveDistinguishesStuckFromUnavailable(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	down := func(context.Context) error { return driver.ErrUnavailable }
	opener := &pingOpener{membox.New(nil), down}
	defer opener.Close()
	daemon, err := server.New(server.Config{Profile: server.Micronode, Listen: "127.0.0.1:0", ListenOAP: server.Off}, &server.Options{
		Opener: opener, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if daemon.Alive(t.Context()) == nil {
		t.Error("Alive returned nil before the start")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx) }()
	<-daemon.Started()
	if err := daemon.Alive(t.Context()); err != nil {
		t.Errorf("with a backend that is down: %v", err)
	}
	opener.ping = func(context.Context) error { // like a lock that is never released
		asked <- struct{}{}
		<-release
		return nil
	}
	answered := make(chan error, 1)
	go func() { answered <- daemon.Alive(t.Context()) }()
	<-asked
	select {
	case err := <-answered:
		t.Errorf("a stuck daemon answers: %v", err)
	default:
	}
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
