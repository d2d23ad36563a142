//go:build !linux

package chaos_test

import "syscall"

// dieWithParent cannot be had here: children of a test that is killed have to be ended by
// hand.
func dieWithParent() *syscall.SysProcAttr { return nil }
