package chaos_test

import "syscall"

// dieWithParent makes the kernel kill a child when its parent is gone, however that ended.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
