//go:build !linux

package redistest

import "syscall"

// dieWithParent does nothing where the kernel cannot do it: servers then outlive a test
// process that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
