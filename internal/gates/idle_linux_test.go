package gates_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// residentBytes returns the resident memory of a process.
func residentBytes(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// connectionLimit returns how many connections this machine allows a process, up to a number.
func connectionLimit(t testing.TB, most int) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	const others = 500
	if limit.Max < uint64(most+others) {
		more := limit
		more.Cur, more.Max = uint64(most+others), uint64(most+others)
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) == nil {
			return most
		}
		t.Logf("this machine allows a process %d files", limit.Max)
		most = int(limit.Max) - others
	}
	if most < 500 {
		t.Fatal("too few files for this test")
	}
	return most
}

// work sends, receives and acks one message at a time, and returns how long each took.
func work(t testing.TB, s surface, queue string, n int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, 0, n)
	for i := range n {
		began := time.Now()
		if _, _, err := s.send(t.Context(), queue, fmt.Sprintf("%s-%d-%d", t.Name(), began.UnixNano(), i), []byte("tea")); err != nil {
			t.Error(err)
			return took
		}
		got, err := s.receive(t.Context(), queue, wanted{most: 1, visibility: time.Minute})
		if err != nil || len(got) != 1 {
			t.Errorf("receive: %d messages, %v", len(got), err)
			return took
		}
		if err := s.ack(t.Context(), queue, got[0]); err != nil {
			t.Error(err)
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}

// idleHTTP opens a connection, sends one request and then nothing.
func idleHTTP(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return c, health(c)
}

// health requests /healthz on a connection that stays open.
func health(c net.Conn) error {
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: mailboxd\r\n\r\n"); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return err
}

// idleOAP opens a connection, sends its token and then nothing.
func idleOAP(address, token string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	_, err = beginFrames(c, token)
	return c, err
}

// TestTenThousandIdleConnectionsSlowNoClient opens half of them over HTTP and half over
// OAP/1, and measures one client of each protocol before and beside them.
func TestTenThousandIdleConnectionsSlowNoClient(t *testing.T) {
	most := connectionLimit(t, 10_000)
	d := start(t, append(inMemory, "--log-level=info")...)
	pid := d.PID()
	const samples = 300
	before, workers := make([][]time.Duration, len(surfaces)), make([]surface, len(surfaces))
	for i, s := range surfaces {
		workers[i] = s.open(t, d, d.token)
		work(t, workers[i], s.name, 50) // warm
		before[i] = work(t, workers[i], s.name, samples)
	}
	alone := residentBytes(t, pid)
	began := time.Now()
	idle := make([]net.Conn, most)
	var dialing sync.WaitGroup
	for n := range 32 {
		dialing.Go(func() {
			for i := n; i < most; i += 32 {
				var err error
				if i%2 == 0 {
					idle[i], err = idleHTTP(d.http)
				} else {
					idle[i], err = idleOAP(d.oap, d.token)
				}
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	dialing.Wait()
	defer func() {
		for _, c := range idle {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	t.Logf("%d connections in %v; the daemon has %d MiB, %d bytes for each", most, time.Since(began).Round(time.Millisecond),
		residentBytes(t, pid)>>20, (residentBytes(t, pid)-alone)/most)
	const attempts = 3 // for a machine that is busy
	for i, s := range surfaces {
		for attempt := 1; ; attempt++ {
			with := work(t, workers[i], s.name, samples)
			t.Logf("send, receive and ack by %s: alone %s; beside the idle: %s", s.name, figures(before[i]), figures(with))
			p95, bound := percentile(with, 0.95), 10*percentile(before[i], 0.95)+25*time.Millisecond
			if p95 <= bound || t.Failed() {
				break
			}
			if attempt == attempts {
				t.Errorf("%s: the 95th percentile beside idle connections is %v, want at most %v", s.name, p95, bound)
				break
			}
		}
	}
	for i := 0; i < most; i += most / 100 {
		if err := stillThere(idle[i], i%2 == 0); err != nil {
			t.Errorf("idle connection %d is dead: %v", i, err)
		}
	}
}

// stillThere asks for something on a connection that was idle.
func stillThere(c net.Conn, isHTTP bool) error {
	if isHTTP {
		return health(c)
	}
	_, err := (&frames{Conn: c}).ask(4, nil) // any answer is one
	return err
}
