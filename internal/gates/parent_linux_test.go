package gates_test

import "syscall"

// dieWithParent makes the kernel kill a daemon when this process is gone.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
