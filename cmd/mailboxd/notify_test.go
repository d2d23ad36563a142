package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// A manager is the socket of a service manager.
type manager struct {
	t      *testing.T
	socket *net.UnixConn
	path   string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "nfy") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &manager{t, socket, path}
}

// await reads datagrams up to one that begins with a line, skipping those in between
// that are about the watchdog. It returns the datagram.
func (m *manager) await(line string) string {
	m.t.Helper()
	_ = m.socket.SetReadDeadline(time.Now().Add(2 * time.Minute))
	buffer := make([]byte, 4096)
	for {
		n, err := m.socket.Read(buffer)
		if err != nil {
			m.t.Fatalf("waiting for %q: %v", line, err)
		}
		got := string(buffer[:n])
		if strings.HasPrefix(got, line) {
			return got
		}
		if got != "WATCHDOG=1" {
			m.t.Fatalf("got %q, want %q", got, line)
		}
	}
}

func TestServiceManagerIsNotifiedOfEachStep(t *testing.T) {
	m := newManager(t)
	c := startChildWith(t, t.TempDir(), []string{"NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=100000"}, "--drain-delay=3m")
	m.await("READY=1")
	m.await("WATCHDOG=1")
	m.await("WATCHDOG=1")
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := c.process.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGHUP)
	m.await("RELOADING=1")
	m.await("READY=1")
	signal(syscall.SIGTERM)
	if got := m.await("STOPPING=1"); got != "STOPPING=1\nEXTEND_TIMEOUT_USEC=190000000" { // delay, drain and margin
		t.Errorf("told %q", got)
	}
	m.await("WATCHDOG=1") // during the delay, in which requests work
	if response, err := http.Get(c.base + "/healthz"); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("health during the delay: %v", err)
	} else {
		_ = response.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	began := time.Now()
	signal(syscall.SIGTERM)
	if err := c.process.Wait(); err != nil || time.Since(began) > time.Minute {
		t.Errorf("after the second signal: %v, after %v", err, time.Since(began))
	}
}

func TestHangupDuringDrainIsIgnored(t *testing.T) {
	m := newManager(t)
	c := startChildWith(t, t.TempDir(), []string{"NOTIFY_SOCKET=" + m.path}, "--drain-delay=3m")
	m.await("READY=1")
	for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGTERM} {
		if err := c.process.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			m.await("STOPPING=1")
		}
	}
	if err := c.process.Wait(); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
}

func TestHangupDuringStartDoesNotReportReady(t *testing.T) {
	m := newManager(t)
	told, err := newNotifier([]string{"NOTIFY_SOCKET=" + m.path})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	daemon, err := server.New(server.Config{Backend: "memory:"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	hangups := make(chan os.Signal) // unbuffered: reload has received it when the send returns
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reload(ctx, daemon, told, hangups, nil, nil)
	}()
	hangups <- syscall.SIGHUP
	cancel()
	<-ended
	_ = m.socket.SetReadDeadline(time.Now().Add(time.Millisecond))
	buffer := make([]byte, 4096)
	if n, err := m.socket.Read(buffer); err == nil {
		t.Errorf("the service manager was told %q", buffer[:n])
	}
}

func TestWatchdogIsSilentWhileDaemonIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int32
		var broken, blocked atomic.Bool
		stuck := make(chan struct{})
		alive := func(context.Context) error {
			if blocked.Load() {
				<-stuck
			}
			if broken.Load() {
				return errors.New("no answer")
			}
			return nil
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			watchdog(ctx, time.Second, alive, func() { told.Add(1) })
		}()
		expect := func(state string, want int32) {
			t.Helper()
			told.Store(0)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := told.Load(); got != want {
				t.Errorf("%s: told %d times in 10 s, want %d", state, got, want)
			}
		}
		time.Sleep(time.Second / 2) // between the ticks
		expect("alive", 10)
		broken.Store(true)
		expect("broken", 0)
		broken.Store(false)
		blocked.Store(true)
		expect("stuck", 0)
		cancel()
		close(stuck)
		<-ended
	})
}

func TestWatchdogAppliesToNamedProcess(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    time.Duration
	}{
		{nil, 0},
		{[]string{"WATCHDOG_USEC=30000000"}, 15 * time.Second},
		{[]string{"WATCHDOG_USEC=30000000", "WATCHDOG_PID=1"}, 0},
		{[]string{"WATCHDOG_USEC=soon"}, 0},
	} {
		if got := watchdogEvery(c.environ); got != c.want {
			t.Errorf("%v: every %v, want %v", c.environ, got, c.want)
		}
	}
}
