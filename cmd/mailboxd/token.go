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

// presentToken hands over the operator's token: to where --token-out says, and without
// that by naming its file. A daemon that writes no file shows the token on a terminal,
// and only there: what standard output is redirected to, like the log of a container,
// is read and kept by others. It returns how a shell names the token.
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

// isTerminal reports whether a person reads what is written.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// writeToken writes the token and a line end: to an open file descriptor, if target is
// a number, and otherwise to a file, or a named pipe, which is for its owner alone.
// Descriptors other than those of standard output and error are closed after that.
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

// openTarget opens what --token-out names, and says whether others use it too.
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
	if err == nil && info.Mode().IsRegular() { // it may have been there before
		err = file.Chmod(0o600)
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	return file, false, nil
}
