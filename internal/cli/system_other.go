//go:build !unix

package cli

import (
	"context"
	"errors"
	"os/exec"
)

// shellCommand is a command of the shell.
func shellCommand(ctx context.Context, text string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", text)
}

// hangUp tells a daemon to read its settings and keys anew.
func hangUp(int) error { return errors.ErrUnsupported }
