package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRestoreToMountPointIsRefusedAtOnce restores to a mount point,
// which is refused before the backup is read, and then to a directory in that volume.
func TestRestoreToMountPointIsRefusedAtOnce(t *testing.T) {
	r := newEnv(t)
	r.fill(t, 10)
	path := filepath.Join(t.TempDir(), "backup.tar")
	r.must(t, "backup", path)
	volume := t.TempDir()
	command := exec.Command("/bin/sh", "-c", `mount -t tmpfs none "$3" || exit 99
"$1" restore "$2.missing" "$3"; echo "refused with $?"; ls -A "$3"
"$1" restore "$2" "$3/data" >/dev/null && "$1" check "$3/data"`, "sh", r.mailbox, path, volume)
	command.Env = r.environ
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		command.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := command.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || command.ProcessState != nil && command.ProcessState.ExitCode() == 99 {
		t.Skipf("mounting needs privileges: %v %s", err, out)
	}
	text := string(out)
	if err != nil || !strings.Contains(text, "is a mount point") || !strings.Contains(text, "refused with 7\n"+volume+"/data: ") || !strings.Contains(text, "10 messages") {
		t.Errorf("%v: %s", err, text)
	}
}
