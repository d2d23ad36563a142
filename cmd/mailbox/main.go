// Command mailbox is the command line of mailboxd: it sends, receives and manages
// messages, dead letters, queues and tokens. See docs/cli.md, and mailbox
// --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/mailboxmq/mailbox/cmd/mailbox/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	return cli.Program{
		Args: os.Args[1:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}.Run(ctx)
}
