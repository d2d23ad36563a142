package redistest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		beOrphaned()
	}
	redistest.Main(m)
}

// connect returns a client that is closed with the test.
func connect(t *testing.T, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func set(ctx context.Context, c rueidis.Client, key, value string) error {
	return c.Do(ctx, c.B().Set().Key(key).Value(value).Build()).Error()
}

func get(ctx context.Context, c rueidis.Client, key string) (string, error) {
	return c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
}

// alive reports whether a process exists, also as a zombie.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func expectGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left behind", pid)
		}
	}
}

// needServer ends a test whose servers are started in subtests or by another process if there is
// no redis-server.
func needServer(t *testing.T) {
	t.Helper()
	proctest.Find(t, cmp.Or(os.Getenv("MAILBOX_REDIS_SERVER"), "redis-server"))
}

func TestStandaloneServesAndLeavesNothingBehind(t *testing.T) {
	needServer(t)
	var pid int
	var address string
	t.Run("serves", func(t *testing.T) {
		server := redistest.Standalone(t)
		pid, address = server.PID(), server.Addr()
		client := connect(t, server.ClientOption())
		if err := set(t.Context(), client, "k", "v"); err != nil {
			t.Fatal(err)
		}
		if !alive(pid) || !server.Running() {
			t.Error("it answers and does not run")
		}
		if host, _, _ := net.SplitHostPort(address); host != "127.0.0.1" {
			t.Errorf("it listens on %s", address)
		}
	})
	expectGone(t, pid)
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("its port still answers")
	}
}

func TestKilledServerKeepsDataOnlyWithAppendOnly(t *testing.T) {
	for _, test := range []struct {
		name string
		opts []redistest.Option
		kept bool
	}{
		{"always", []redistest.Option{redistest.AppendOnly(redistest.FsyncAlways)}, true},
		{"every second", []redistest.Option{redistest.AppendOnly(redistest.FsyncEverySec)}, true},
		{"off", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Standalone(t, test.opts...)
			if _, err := server.Do(t.Context(), "SET", "k", "v"); err != nil {
				t.Fatal(err)
			}
			before := server.PID()
			server.Kill()
			expectGone(t, before)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if server.PID() == before {
				t.Error("the process is the same")
			}
			value, err := server.Do(t.Context(), "GET", "k")
			if err != nil {
				t.Fatal(err)
			}
			if (value == "v") != test.kept {
				t.Errorf("after the restart the value is %v", value)
			}
		})
	}
}

func TestRestartRemovesCutTransaction(t *testing.T) {
	if _, err := exec.LookPath("redis-check-aof"); err != nil {
		t.Skipf("needs redis-check-aof, which comes with Redis: %v", err)
	}
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways))
	do := func(args ...string) any {
		t.Helper()
		reply, err := server.Do(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	restart := func() {
		t.Helper()
		server.Kill()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dir, _ := do("CONFIG", "GET", "dir").([]any)
	files, err := filepath.Glob(filepath.Join(fmt.Sprint(dir[1]), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	server.Kill()
	file, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$3\r\ncut\r\n$1\r\n1\r\n*3\r\n$3\r\nSE")
	if err := errors.Join(err, file.Close(), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	do("EVAL", "redis.call('SET', 'a', 1) redis.call('SET', 'b', 1)", "0")
	restart()
	if cut, whole := do("EXISTS", "cut"), do("EXISTS", "a", "b"); fmt.Sprint(cut, whole) != "0 2" {
		t.Errorf("%v keys of the cut transaction and %v of the whole one", cut, whole)
	}
}

func TestStoppedServerAnswersAgainWhenContinued(t *testing.T) {
	server := redistest.Standalone(t)
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if reply, err := server.Do(ctx, "PING"); err == nil {
		t.Errorf("a stopped server answers %v", reply)
	}
	if server.Running() {
		t.Error("a stopped server is said to run")
	}
	server.Continue()
	if _, err := server.Do(t.Context(), "PING"); err != nil {
		t.Error(err)
	}
	server.Stop()
	server.Close()
	expectGone(t, server.PID())
}

func TestRestartOfRunningServerFails(t *testing.T) {
	server := redistest.Standalone(t)
	if err := server.Restart(t.Context()); err == nil {
		t.Error("a running server was started again")
	}
	server.Close()
	if err := server.Restart(t.Context()); err == nil {
		t.Error("a closed server was started again")
	}
}

func TestTLSServerRefusesPlainText(t *testing.T) {
	server := redistest.Standalone(t, redistest.TLS())
	client := connect(t, server.ClientOption())
	if err := set(t.Context(), client, "k", "v"); err != nil {
		t.Error(err)
	}
	option := server.ClientOption()
	option.TLSConfig = nil
	if plain, err := rueidis.NewClient(option); err == nil {
		plain.Close()
		t.Error("it takes connections without TLS")
	}
}

func TestUserRulesAreEnforced(t *testing.T) {
	server := redistest.Standalone(t, redistest.User("worker", "secret", "~mail:*", "+@all", "-flushall"))
	client := connect(t, server.ClientOption())
	if err := set(t.Context(), client, "mail:1", "v"); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another key": set(t.Context(), client, "other", "v"),
		"flushall":    client.Do(t.Context(), client.B().Flushall().Build()).Error(),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%s: %v", name, err)
		}
	}
	option := server.ClientOption()
	option.Username, option.Password = "", ""
	if anonymous, err := rueidis.NewClient(option); err == nil {
		anonymous.Close()
		t.Error("it accepts a client without a password")
	}
}

func TestConfigurationOfTestWins(t *testing.T) {
	server := redistest.Standalone(t, redistest.Config("maxmemory", "123mb"), redistest.Config("appendfsync", "no"))
	reply, err := server.Do(t.Context(), "CONFIG", "GET", "maxmemory")
	if err != nil || fmt.Sprint(reply) != "[maxmemory 128974848]" {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	needServer(t)
	broken := &failures{T: t}
	done := make(chan struct{})
	go func() { // because Fatal ends the goroutine
		defer close(done)
		redistest.Standalone(broken, redistest.Config("no-such-directive", "1"))
	}()
	<-done
	if !strings.Contains(broken.said, "no-such-directive") {
		t.Errorf("it said %q", broken.said)
	}
}

func TestMissingServerEndsTestInOneLine(t *testing.T) {
	t.Setenv("MAILBOX_REDIS_SERVER", "no-such-redis-server")
	t.Setenv("MAILBOX_REQUIRE_SERVERS", "1")
	for name, start := range map[string]func(testing.TB){
		"standalone": func(t testing.TB) { redistest.Standalone(t) },
		"cluster":    func(t testing.TB) { redistest.Cluster(t) },
		"sentinel":   func(t testing.TB) { redistest.Sentinel(t) },
	} {
		broken := &failures{T: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			start(broken)
		}()
		<-done
		if !strings.Contains(broken.said, "make setup") || strings.Contains(broken.said, "\n") {
			t.Errorf("%s: it said %q", name, broken.said)
		}
	}
}

// failures records the failures of a test that must fail.
type failures struct {
	*testing.T
	said string
}

func (f *failures) Fatal(args ...any) {
	f.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func TestClockCanBeSetWithoutTouchingItsTick(t *testing.T) {
	server := redistest.Standalone(t, redistest.ClockSkew(2*time.Minute))
	offset := func() time.Duration {
		t.Helper()
		reply, err := server.Do(t.Context(), "TIME")
		if err != nil {
			t.Fatal(err)
		}
		parts := reply.([]any)
		seconds, err := strconv.ParseInt(parts[0].(string), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(seconds, 0)).Round(10 * time.Second)
	}
	if got := offset(); got != 2*time.Minute {
		t.Errorf("the clock is off by %v", got)
	}
	if _, err := server.Do(t.Context(), "SET", "k", "v", "PX", "60000"); err != nil {
		t.Fatal(err)
	}
	for _, skew := range []time.Duration{-time.Hour, 0, 24 * time.Hour} {
		if err := server.SetClockSkew(skew); err != nil {
			t.Fatal(err)
		}
		if got := offset(); got != skew || server.ClockSkew() != skew {
			t.Errorf("the clock is off by %v, and said to be by %v, not %v", got, server.ClockSkew(), skew)
		}
	}
	if value, err := server.Do(t.Context(), "GET", "k"); err != nil || value != nil {
		t.Errorf("a day later a key that lives for a minute is %v, %v", value, err)
	}
	if err := redistest.Standalone(t).SetClockSkew(0); err == nil {
		t.Error("the clock of a server without ClockSkew was set")
	}
}

func TestCommandCountStaysWhenIdle(t *testing.T) {
	for _, opts := range [][]redistest.Option{nil, {redistest.User("u", "p", "~*", "+@all")}} {
		server := redistest.Standalone(t, opts...)
		before := redistest.CommandCount(t, server)
		if _, err := server.Do(t.Context(), "PING"); err != nil {
			t.Fatal(err)
		}
		if after := redistest.CommandCount(t, server); after != before {
			t.Errorf("%d commands became %d", before, after)
		}
		client := connect(t, server.ClientOption())
		connected := redistest.CommandCount(t, server)
		const commands = 10
		for range commands {
			if err := set(t.Context(), client, "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		// The client may have opened further connections, which takes commands.
		if after := redistest.CommandCount(t, server); after < connected+commands {
			t.Errorf("%d commands made %d of %d", commands, after, connected)
		}
	}
}

// orphanVariable makes this binary start a server and wait to be killed.
const orphanVariable = "REDISTEST_ORPHAN"

// beOrphaned prints the process id of a server, and hangs.
func beOrphaned() {
	tests := []testing.InternalTest{{Name: "TestOrphan", F: func(t *testing.T) {
		server := redistest.Standalone(t)
		fmt.Fprintln(os.Stderr, server.PID())
		<-t.Context().Done()
	}}}
	os.Args = os.Args[:1]
	testing.Main(func(string, string) (bool, error) { return true, nil }, tests, nil, nil)
}

func TestServerDiesWithKilledTestProcess(t *testing.T) {
	needServer(t)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), orphanVariable+"=1", "TMPDIR="+t.TempDir())
	output, err := child.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(output, &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("the server is not there")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var killed *exec.ExitError
	if err := child.Wait(); !errors.As(err, &killed) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); running(pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left behind", pid)
		}
	}
}

// running reports whether a process that is not our child runs: one
// that has ended stays in the table until its new parent looks.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
