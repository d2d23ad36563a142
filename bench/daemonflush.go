package main

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A flushCounter counts the calls with which a server flushes files to the disk: fsync and
// fdatasync. The kernel counts them, at little cost, if this process may trace.
type flushCounter struct{ events []int }

// errNoTracing is the error of a system that does not count calls for this user.
var errNoTracing = errors.New("system calls are not counted: it needs root, and tracefs mounted at /sys/kernel/tracing")

// countFlushes starts to count the calls of all threads of a server, and of those that they
// will start.
func countFlushes(server *daemonProcess) (*flushCounter, error) {
	c := &flushCounter{}
	for _, call := range []string{"fsync", "fdatasync"} {
		text, err := os.ReadFile("/sys/kernel/tracing/events/syscalls/sys_enter_" + call + "/id")
		if err != nil {
			return nil, errors.Join(errNoTracing, c.close())
		}
		id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		for thread := range server.threads() {
			attributes := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
			attributes.Size = uint32(unsafe.Sizeof(attributes))
			event, err := unix.PerfEventOpen(&attributes, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if errors.Is(err, unix.ESRCH) { // the thread has ended
				continue
			}
			if err != nil {
				return nil, errors.Join(errNoTracing, err, c.close())
			}
			c.events = append(c.events, event)
		}
	}
	return c, nil
}

// total returns how many calls there were so far; 0 if calls are not counted.
func (c *flushCounter) total() (sum uint64) {
	if c == nil {
		return 0
	}
	for _, event := range c.events {
		var count [8]byte
		if n, err := unix.Read(event, count[:]); err == nil && n == len(count) {
			sum += binary.NativeEndian.Uint64(count[:])
		}
	}
	return sum
}

func (c *flushCounter) close() (err error) {
	if c == nil {
		return nil
	}
	for _, event := range c.events {
		err = errors.Join(err, unix.Close(event))
	}
	return err
}
