//go:build unix

package remotebox

import (
	"net"
	"syscall"
)

// A socket is written to without blocking.
type socket struct {
	raw    syscall.RawConn
	frames []byte
	n      int
	write  func(fd uintptr) bool
}

// newSocket returns nil if nc is anything but a socket, a TLS connection for example.
func newSocket(nc net.Conn) *socket {
	var raw syscall.RawConn
	var err error
	switch nc := nc.(type) { // a type that embeds one of these may do more than write
	case *net.TCPConn:
		raw, err = nc.SyscallConn()
	case *net.UnixConn:
		raw, err = nc.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.write = func(fd uintptr) bool {
		s.n, _ = syscall.Write(int(fd), s.frames)
		return true // do not wait
	}
	return s
}

// tryWrite writes as much as the socket takes without blocking, and returns how much
// that was. What went wrong otherwise, the next Write of the connection says. One
// goroutine at a time may call it.
func (s *socket) tryWrite(frames []byte) int {
	s.frames, s.n = frames, 0
	_ = s.raw.Write(s.write)
	s.frames = nil
	return max(s.n, 0)
}
