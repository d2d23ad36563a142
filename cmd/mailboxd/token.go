package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"

	"github.com/charmbracelet/x/term"

	"github.com/mailboxmq/mailbox/server"
)

// presentToken shows the operator's token: it writes it to --token-out, and without
// that names its file. A daemon that writes no file prints the token to a terminal,
// and only there: redirected output, like the log of a container,
// is stored and read by others. It returns a shell expression for the token.
func presentToken(ctx context.Context, daemon *server.Server, config *server.Config, stdout io.Writer) (string, error) {
	token := daemon.OperatorToken()
	switch {
	case config.TokenOut != "":
		if err := writeToken(config.TokenOut, token.Reveal()); err != nil {
			return "", fmt.Errorf("--token-out: %w", err)
		}
	case !*config.Amnesia:
		tell(stdout, "The operator's token is in %s.\n\n", config.TokenFile)
		return "$(cat " + config.TokenFile + ")", nil
	case isTerminal(stdout):
		tell(stdout, "The operator's token, which is not shown again:\n\n  %s\n\n", token.Reveal())
	default:
		daemon.Logger().LogAttrs(ctx, slog.LevelWarn, "operator token not shown",
			slog.String("reason", "standard output is not a terminal, and amnesia keeps no token file"),
			slog.String("remedy", "restart with --token-out FD or PATH, or MAILBOXD_TOKEN_OUT"))
	}
	return "$TOKEN", nil
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// writeToken writes the token and a newline: to an open file descriptor if target is
// a number, and otherwise to a file that only its owner can read, or a named pipe.
// It closes descriptors other than standard output and error.
func writeToken(target, token string) (err error) {
	file, keep, err := openTarget(target)
	if err != nil {
		return err
	}
	if !keep {
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	_, err = io.WriteString(file, token+"\n")
	return err
}

// openTarget opens the target of --token-out, and reports whether it must stay open.
func openTarget(target string) (file *os.File, keep bool, err error) {
	switch target {
	case "1":
		return os.Stdout, true, nil
	case "2":
		return os.Stderr, true, nil
	}
	if fd, err := strconv.ParseUint(target, 10, 31); err == nil {
		return os.NewFile(uintptr(fd), "descriptor "+target), false, nil
	}
	if file, err = os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, false, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() { // the file may have existed with another mode
		err = file.Chmod(0o600)
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	return file, false, nil
}
