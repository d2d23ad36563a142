//go:build !unix

package keepalive

import "syscall"

func left(syscall.RawConn) bool { return false }

// canPeek tells that left is implemented.
const canPeek = false
