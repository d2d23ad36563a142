package proctest

import "syscall"

// DieWithParent makes the kernel kill a child when its parent is gone, however that ended:
// strictly speaking, when the thread that started it is gone.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
