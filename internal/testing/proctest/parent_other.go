//go:build !linux

package proctest

import "syscall"

// DieWithParent does nothing on this system: if a test is killed, its children keep running.
func DieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
