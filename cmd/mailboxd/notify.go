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

// A notifier tells the service manager how the daemon is, in the protocol of
// sd_notify(3): a datagram of lines to the socket that NOTIFY_SOCKET names. A nil
// notifier tells nothing: no service manager asked.
type notifier struct{ socket *net.UnixConn }

// newNotifier returns the notifier that the environment asks for; nil if none.
func newNotifier(environ []string) (*notifier, error) {
	path := lookup(environ, "NOTIFY_SOCKET") // with @ in front it is abstract
	if path == "" {
		return nil, nil
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return &notifier{socket}, nil
}

// tell sends lines. A service manager that is not there any more misses nothing.
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

// stopMargin is what a stop may take beyond the delay and the drain.
const stopMargin = 5 * time.Second

// stopping says that the daemon stops, and how long that may take: a delay that is
// longer than TimeoutStopSec is not cut off.
func (n *notifier) stopping(config server.Config) {
	needs := max(config.DrainDelay, 0) + config.DrainTimeout + stopMargin
	n.tell("STOPPING=1", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", needs.Microseconds()))
}

// watchdogEvery returns how often the service manager wants to hear from the daemon,
// twice as often as it says; 0 if it does not.
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

// watchdog calls tell, until ctx ends, each time that alive has shown that the daemon
// answers. While alive does not return, or returns an error, nothing is told, and the
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

// lookup returns a variable of an environment.
func lookup(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
