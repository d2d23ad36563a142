package proctest

import "syscall"

// DieWithParent makes the kernel kill a child when the thread that started it is gone, for
// whatever reason.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
