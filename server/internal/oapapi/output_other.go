//go:build !unix

package oapapi

import (
	"errors"
	"net"
	"syscall"
)

// rawConn returns nil: sockets cannot be written without blocking here.
func rawConn(net.Conn) syscall.RawConn { return nil }

func writeNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
