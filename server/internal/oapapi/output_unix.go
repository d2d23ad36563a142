//go:build unix

package oapapi

import (
	"net"
	"syscall"
)

// rawConn returns the descriptor of a connection, or nil if it has none: then other goroutines
// write.
func rawConn(nc net.Conn) syscall.RawConn {
	if conn, ok := nc.(syscall.Conn); ok {
		if raw, err := conn.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// writeNow writes what a descriptor takes without blocking.
func writeNow(fd uintptr, content []byte) (int, error) { return syscall.Write(int(fd), content) }
