//go:build !unix

package cli

import (
	"context"
	"errors"
	"os/exec"
)

// shellCommand returns a command that the shell runs.
func shellCommand(ctx context.Context, text string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", text)
}

// isMountPoint cannot tell on this system.
func isMountPoint(string) bool { return false }

// checkProcess returns an error if a process cannot be signalled.
func checkProcess(int) error { return errors.ErrUnsupported }

// hangUp tells a daemon to read its settings and keys again.
func hangUp(int) error { return errors.ErrUnsupported }
