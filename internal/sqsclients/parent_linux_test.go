package sqsclients_test

import "syscall"

// dieWithParent makes the kernel kill a process when this one is gone.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
