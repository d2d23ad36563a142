//go:build !unix

package lane

import "syscall"

func left(syscall.RawConn) bool { return false }

// canPeek says that left is to be trusted.
const canPeek = false
