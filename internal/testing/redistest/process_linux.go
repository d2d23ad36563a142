package redistest

import "syscall"

// dieWithParent makes the kernel kill a child when its parent ends in any way.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
