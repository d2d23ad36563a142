package gates_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// The system calls that create, change or remove a file, or write to one.
const fileCalls = "open,openat,openat2,creat,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir," +
	"link,linkat,symlink,symlinkat,truncate,ftruncate,mknod,mknodat,fallocate,memfd_create," +
	"write,writev,pwrite64,pwritev,pwritev2,sendfile,copy_file_range,splice"

var (
	opened  = regexp.MustCompile(`(?:open|openat|openat2)\([^"]*"([^"]*)", (?:\{flags=)?([A-Z_|0-9x]+)`)
	written = regexp.MustCompile(`(?:p?writev?2?|pwrite64)\(\d+<([^>]*)>`)
	called  = regexp.MustCompile(`^\d+ +(?:<\.\.\. )?([a-z0-9_]+)[ (]`)
)

// fileCallsIn returns the lines of a trace that change something in a file system, and
// how many lines there are.
func fileCallsIn(t testing.TB, path string) (lines []string, all int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		call := called.FindStringSubmatch(line)
		if call == nil || strings.Contains(line, "resumed>") {
			continue
		}
		all++
		if changes(call[1], line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines, all
}

// changes reports whether a call changes something in a file system.
func changes(call, line string) bool {
	if strings.HasPrefix(call, "open") {
		file := opened.FindStringSubmatch(line)
		if file == nil {
			return true // a call that cannot be parsed counts
		}
		virtual := strings.HasPrefix(file[1], "/proc/") || strings.HasPrefix(file[1], "/sys/") || strings.HasPrefix(file[1], "/dev/")
		return !virtual && regexp.MustCompile(`O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)`).MatchString(file[2])
	}
	if file := written.FindStringSubmatch(line); file != nil {
		kind, _, _ := strings.Cut(file[1], ":")
		return !slices.Contains([]string{"pipe", "socket", "TCP", "TCPv6", "UNIX-STREAM", "anon_inode"}, kind)
	}
	return true
}

// traced runs a daemon under strace.
func traced(t testing.TB, args ...string) (d *daemon, trace string) {
	t.Helper()
	strace := proctest.Find(t, "strace")
	trace = filepath.Join(t.TempDir(), "trace")
	// -D: the started process is the daemon and not its tracer.
	d = startIn(t, t.TempDir(), []string{strace, "-D", "-f", "-qq", "-yy", "-s", "64", "-e", "trace=" + fileCalls, "-o", trace}, args...)
	return d, trace
}

// TestG6AmnesiaMakesNoFileCalls traces every system call with which a daemon could write to
// a file, from its start to its end: a micronode makes none. The same trace of
// a macronode shows its files, which proves that the trace works.
func TestG6AmnesiaMakesNoFileCalls(t *testing.T) {
	use := func(d *daemon) {
		for _, s := range surfaces {
			client := s.open(t, d, d.token)
			for i := range 20 {
				exchange(t, client, "orders", []byte(fmt.Sprintf("canary %s %d", s.name, i)))
			}
		}
		operator := openHTTP(t, d.http, d.token)
		id, _, err := operator.send(t.Context(), "orders", "dies", []byte("canary"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.receive(t.Context(), "orders", wanted{most: 1, visibility: time.Minute}); err != nil {
			t.Fatal(err)
		}
		for _, request := range []struct {
			path string
			body object
		}{
			{"/v1/bury/" + id, object{"reason": "fatal"}},
			{"/v1/dlq/reprocess", object{"topic": "orders"}},
			{"/v1/queues/configure", object{"topic": "bills", "config": object{"max_messages": 10}}},
			{"/v1/caps/revoke", object{"token_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}},
		} {
			if err := operator.post(t.Context(), request.path, request.body, nil); err != nil {
				t.Errorf("%s: %v", request.path, err)
			}
		}
		d.Stop(t)
	}
	forgetful, trace := traced(t, inMemory...)
	use(forgetful)
	lines, all := fileCallsIn(t, trace)
	for _, line := range lines {
		t.Errorf("a micronode called %s", line)
	}
	durable, trace := traced(t, onDisk...)
	use(durable)
	lines, _ = fileCallsIn(t, trace)
	if len(lines) < 10 {
		t.Errorf("the trace of a macronode shows only %d calls that change files", len(lines))
	}
	t.Logf("of %d calls of a micronode that could change a file none did; of a macronode %d did", all, len(lines))
}

// TestG6AmnesiaKeepsNoBodyInMemory searches the memory of a micronode for bodies
// after they were acked and garbage was collected. The OAP/1 connection stays
// open meanwhile; those of HTTP and gRPC are closed, because their buffers belong to
// libraries, which keep them as long as the connection. The
// runtime overwrites freed memory, so the search finds only what the daemon
// still references. No complete body is found; the figure says how much is left of the last
// ones on stacks, where they were hashed. Before garbage is collected, which is what
// wipes them, they can be found; that is logged and not checked.
func TestG6AmnesiaKeepsNoBodyInMemory(t *testing.T) {
	t.Setenv("GODEBUG", "efence=1,clobberfree=1")
	t.Setenv("GOGC", "10")
	d := start(t, inMemory...)
	waiting := newCanary("wait", 1<<10)
	if _, _, err := overHTTP(t, d, d.token).send(t.Context(), "waiting", "k", waiting.payload()); err != nil {
		t.Fatal(err)
	}
	sizes := []int{1 << 10, 30 << 10, 100 << 10}
	var canaries []canary
	for _, s := range surfaces {
		staying := t
		t.Run(s.name, func(t *testing.T) {
			if s.name == "OAP" {
				t = staying
			}
			client := s.open(t, d, d.token)
			for _, size := range sizes {
				c := newCanary(s.name, size)
				canaries = append(canaries, c)
				exchange(t, client, "orders", c.payload())
			}
		})
	}
	pid := d.PID()
	if blocks, _ := search(t, pid, []canary{waiting}); blocks[0] != waiting.blocks {
		t.Errorf("of a waiting body %d of %d blocks are found in memory; the search does not work", blocks[0], waiting.blocks)
	}
	for i, n := range first(search(t, pid, canaries)) {
		if n == canaries[i].blocks {
			t.Logf("body %d of %d is completely in memory before garbage is collected", i+1, len(canaries))
		}
	}
	var whole, left, rounds int
	var searched int64
	for until := time.Now().Add(15 * time.Second); rounds == 0 || whole > 0 && time.Now().Before(until); rounds++ {
		t.Run("collect", func(t *testing.T) { churn(t, d, sizes) })
		whole, left = 0, 0
		var blocks []int
		blocks, searched = search(t, pid, canaries)
		for i, n := range blocks {
			left += n * blockBytes
			if n == canaries[i].blocks {
				whole++
			}
		}
	}
	if whole > 0 {
		t.Errorf("%d of %d bodies are completely in memory", whole, len(canaries))
	}
	t.Logf("%d of %d bodies in %d MiB of memory after %d rounds of others, and pieces of %d bytes", whole, len(canaries), searched>>20, rounds, left)
}

func first(blocks []int, _ int64) []int { return blocks }

// churn makes a daemon collect its garbage: it sends other messages of the same sizes
// through it.
func churn(t *testing.T, d *daemon, sizes []int) {
	t.Helper()
	var clients sync.WaitGroup
	for i, s := range surfaces {
		for n := range 32 {
			client := s.open(t, d, d.token)
			clients.Go(func() {
				for size := range sizes {
					exchange(t, client, fmt.Sprintf("others-%d-%d", i, n), bytes.Repeat([]byte{'y'}, sizes[(n+size)%len(sizes)]))
				}
			})
		}
	}
	clients.Wait()
}
