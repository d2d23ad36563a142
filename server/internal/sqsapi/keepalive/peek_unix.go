//go:build unix

package keepalive

import (
	"errors"
	"os"
	"syscall"
)

// left reports whether the client is known to have closed the connection. It consumes
// nothing and does not block.
func left(raw syscall.RawConn) bool {
	gone := false
	err := raw.Read(func(fd uintptr) bool {
		var next [1]byte
		n, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = err == nil && n == 0 || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true // do not wait
	})
	return gone || err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// canPeek tells that left is implemented.
const canPeek = true
