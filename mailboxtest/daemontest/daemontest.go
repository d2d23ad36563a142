// Package daemontest runs mailboxd inside a test, for programs that talk to it, or to Amazon SQS.
//
//	daemon := daemontest.Start(t)
//	client := sqs.New(sqs.Options{BaseEndpoint: &daemon.SQS, Region: "local-1", Credentials: any})
//
// It is a package of its own because it links the daemon, which the doubles of package
// mailboxtest do not need.
package daemontest

import (
	"log/slog"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// A Daemon is mailboxd in this process, with its messages in memory.
type Daemon struct {
	// HTTP is where the HTTP API, gRPC and the console are: http://127.0.0.1:40123.
	HTTP string
	// OAP is the host and port for package remotebox.
	OAP string
	// SQS is the endpoint for clients of Amazon SQS, which need no token: it accepts every
	// signature, and none.
	SQS string
	// Token allows everything.
	Token string
}

// Start starts a daemon on free ports of this machine, and stops it at the end of the test. Its
// warnings are in the test's log.
func Start(t testing.TB) Daemon {
	t.Helper()
	daemon, err := server.New(server.Config{
		Profile: server.Micronode, Listen: "127.0.0.1:0", ListenOAP: "127.0.0.1:0", ListenSQS: "127.0.0.1:0",
		SQS: server.SQSConfig{Unsigned: true},
	}, &server.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatalf("daemontest: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(t.Context()) }() // which ends before cleanups run
	select {
	case <-daemon.Started():
	case err := <-ended:
		t.Fatalf("daemontest: %v", err)
	}
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("daemontest: %v", err)
		}
	})
	return Daemon{
		HTTP: "http://" + daemon.Address(server.HTTP), OAP: daemon.Address(server.OAP), SQS: "http://" + daemon.Address(server.SQS),
		Token: daemon.OperatorToken().Reveal(),
	}
}
