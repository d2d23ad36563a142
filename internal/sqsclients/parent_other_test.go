//go:build !linux

package sqsclients_test

import "syscall"

// dieWithParent does nothing where kernels cannot do it.
func dieWithParent() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
