// Command mailboxd is the mailbox daemon: durable point-to-point queues behind
// capability tokens, over HTTP, gRPC, Connect, OAP/1 and the SQS protocol. See package
// server, and mailboxd --help for its settings.
//
// It drains and stops on SIGINT and SIGTERM, and reads its settings, certificate and
// keys again on SIGHUP. A second SIGINT or SIGTERM ends the delay before a drain.
// Under systemd it reports when it has started, reloads and stops, and answers the
// watchdog. Exit codes are 0 after an orderly stop, 1 if it could not start or a listener
// failed, and 2 if the settings are wrong.
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
	// Until the end, because a SIGHUP that is not caught would end the process: one that
	// comes during the start is answered after it, one during a drain is ignored.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
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
	manager, err := newNotifier(environ)
	if err != nil { // the daemon starts without a service manager
		daemon.Logger().Warn("service manager not told", slog.Any("err", err))
	}
	defer manager.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	defer stopOnSignals(daemon, stop)()
	greeted := make(chan error, 1)
	go func() {
		err := greet(ctx, daemon, manager, stdout)
		if err != nil {
			stop()
		}
		greeted <- err
	}()
	go reload(ctx, daemon, manager, hangups, args, environ)
	go keepSmall(ctx)
	if *daemon.Config().Amnesia {
		go collectOften(ctx)
	}
	living, die := context.WithCancel(context.WithoutCancel(ctx)) // lasts until after the drain
	defer die()
	go watchdog(living, watchdogEvery(environ), daemon.Alive, func() { manager.tell("WATCHDOG=1") })
	context.AfterFunc(ctx, func() { manager.stopping(daemon.Config()) })
	err = daemon.Run(ctx)
	stop()
	if err = errors.Join(err, <-greeted); err != nil {
		tell(stderr, "mailboxd: %v\n", err)
		return 1
	}
	return 0
}

// stopOnSignals calls stop at the first SIGINT or SIGTERM, which drains the daemon, and ends the
// delay before the drain at the second; the third ends the process. The returned function stops it.
func stopOnSignals(daemon *server.Server, stop func()) func() {
	signals, ended := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, act := range []func(){stop, daemon.DrainNow} {
			select {
			case <-signals:
				act()
			case <-ended:
				return
			}
		}
		signal.Stop(signals)
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}

// reload reads the settings again on each SIGHUP, once the daemon has started, until
// ctx ends. It logs invalid settings, which change nothing.
func reload(ctx context.Context, daemon *server.Server, manager *notifier, hangups <-chan os.Signal, args, environ []string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		select {
		case <-ctx.Done():
			return
		case <-daemon.Started():
		}
		manager.tell("RELOADING=1")
		config, err := server.Load(args, environ, io.Discard)
		if err == nil {
			err = daemon.Reload(config)
		}
		if err != nil {
			daemon.Logger().LogAttrs(ctx, slog.LevelError, "reload failed; nothing changed", slog.Any("err", err))
		}
		manager.tell("READY=1")
	}
}

// greet reports to the service manager and on standard output that the daemon has
// started, with examples of its use. The error is that of writing the operator's
// token to --token-out.
func greet(ctx context.Context, daemon *server.Server, manager *notifier, stdout io.Writer) error {
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
	manager.tell("READY=1")
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
	if config.ConsolePath != server.Off {
		tell(stdout, "Look at it in a browser, with this token as the login:\n\n  %s\n\n", scheme+"://"+address+config.ConsolePath)
	}
	return nil
}

// tell writes to w, and ignores errors.
func tell(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
