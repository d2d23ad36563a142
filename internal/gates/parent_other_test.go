//go:build !linux

package gates_test

import "syscall"

// dieWithParent does nothing where kernels cannot do it.
func dieWithParent() *syscall.SysProcAttr { return nil }
