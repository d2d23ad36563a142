//go:build !linux

package proctest

import "syscall"

// DieWithParent cannot be had here: the children of a test that is killed have to be ended
// by hand.
func DieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
