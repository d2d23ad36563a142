package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// A notifier reports the state of the daemon to the service manager, in the protocol of
// sd_notify(3): a datagram of lines to the socket that NOTIFY_SOCKET names. A nil
// notifier reports nothing.
type notifier struct{ socket *net.UnixConn }

// newNotifier returns the notifier for NOTIFY_SOCKET; nil if that is not set.
func newNotifier(environ []string) (*notifier, error) {
	path := lookup(environ, "NOTIFY_SOCKET") // a leading @ means an abstract socket
	if path == "" {
		return nil, nil
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return &notifier{socket}, nil
}

// tell sends lines, and ignores errors.
func (n *notifier) tell(lines ...string) {
	if n != nil {
		_, _ = n.socket.Write([]byte(strings.Join(lines, "\n")))
	}
}

// Close closes the socket.
func (n *notifier) Close() {
	if n != nil {
		_ = n.socket.Close()
	}
}

// stopMargin is how long a stop may take beyond the delay and the drain.
const stopMargin = 5 * time.Second

// stopping reports that the daemon stops, and how long that may take, so that a delay
// longer than TimeoutStopSec is not cut off.
func (n *notifier) stopping(config server.Config) {
	needs := max(config.DrainDelay, 0) + config.DrainTimeout + stopMargin
	n.tell("STOPPING=1", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", needs.Microseconds()))
}

// watchdogEvery returns how often to report to the watchdog of the service manager:
// twice as often as it demands; 0 if it has none.
func watchdogEvery(environ []string) time.Duration {
	if pid := lookup(environ, "WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(lookup(environ, "WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

// watchdog calls tell, until ctx ends, each time alive has returned nil.
// While alive does not return, or returns an error, it does not call tell, and the
// service manager restarts the daemon. It returns at once if every is 0.
func watchdog(ctx context.Context, every time.Duration, alive func(context.Context) error, tell func()) {
	if every <= 0 {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if alive(ctx) == nil {
			tell()
		}
	}
}

// lookup returns an environment variable.
func lookup(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
