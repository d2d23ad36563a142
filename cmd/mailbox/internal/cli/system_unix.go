//go:build unix

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// shellCommand returns a command that the shell runs; it ends with all processes that it has
// started.
func shellCommand(ctx context.Context, text string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	return c
}

// isMountPoint reports whether a volume is mounted at dir.
func isMountPoint(dir string) bool {
	here, err := os.Stat(dir)
	above, errAbove := os.Stat(filepath.Join(dir, ".."))
	if err != nil || errAbove != nil {
		return false
	}
	volume, ok := here.Sys().(*syscall.Stat_t)
	volumeAbove, okAbove := above.Sys().(*syscall.Stat_t)
	return ok && okAbove && volume.Dev != volumeAbove.Dev
}

// checkProcess returns an error if a process cannot be signalled.
func checkProcess(pid int) error { return syscall.Kill(pid, 0) }

// hangUp tells a daemon to read its settings and keys again.
func hangUp(pid int) error { return syscall.Kill(pid, syscall.SIGHUP) }
