// Command mailboxd is the mailbox daemon: durable point-to-point queues behind
// capability tokens, over HTTP and OAP/1 frames. See package server for what it
// does, and mailboxd --help for what can be set.
//
// It stops in order on SIGINT and SIGTERM, and reads its settings, certificate and
// keys anew on SIGHUP. Exit codes are 0 after an orderly stop, 1 if it could not
// start or go on, and 2 if the settings are wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/mailboxmq/mailbox/server"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

func run(args, environ []string, stdout, stderr io.Writer) int {
	config, err := server.Load(args, environ, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		tell(stderr, "mailboxd: %v\n", err)
		return 2
	}
	spareThreads()
	daemon, err := server.New(config, nil)
	if err != nil {
		tell(stderr, "mailboxd: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	greeted := make(chan error, 1)
	go func() {
		err := greet(ctx, daemon, stdout)
		if err != nil {
			stop()
		}
		greeted <- err
	}()
	go reload(ctx, daemon, args, environ)
	go keepSmall(ctx)
	err = daemon.Run(ctx)
	stop()
	if err = errors.Join(err, <-greeted); err != nil {
		tell(stderr, "mailboxd: %v\n", err)
		return 1
	}
	return 0
}

// reload reads the settings again on each SIGHUP. Bad ones are logged, and change
// nothing.
func reload(ctx context.Context, daemon *server.Server, args, environ []string) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		config, err := server.Load(args, environ, io.Discard)
		if err == nil {
			err = daemon.Reload(config)
		}
		if err != nil {
			daemon.Logger().LogAttrs(ctx, slog.LevelError, "reload failed; nothing changed", slog.Any("err", err))
		}
	}
}

// greet tells the person who started the daemon how to use it. The error is that of
// writing the operator's token to where --token-out says.
func greet(ctx context.Context, daemon *server.Server, stdout io.Writer) error {
	select {
	case <-ctx.Done():
		return nil
	case <-daemon.Started():
	}
	config := daemon.Config()
	token, err := presentToken(ctx, daemon, &config, stdout)
	if err != nil {
		return err
	}
	address := daemon.Address(server.HTTP)
	if address == "" {
		return nil
	}
	scheme := "http"
	if config.TLSCert != "" {
		scheme = "https"
	}
	const lines = `Send, receive and ack a message:

  curl -H "Authorization: Bearer %[1]s" %[2]s/v1/send -d '{"topic":"hello","idem_key":"1","payload_b64":"SGk="}'
  curl -H "Authorization: Bearer %[1]s" %[2]s/v1/recv -d '{"topic":"hello","visibility_ms":60000}'
  curl -H "Authorization: Bearer %[1]s" -X POST %[2]s/v1/ack/MSG_ID

`
	tell(stdout, lines, token, scheme+"://"+address)
	return nil
}

// tell writes to a terminal, which may be gone.
func tell(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
