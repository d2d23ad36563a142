package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// The tests in this file need a second process. It is this test binary, with its role in the
// environment.
const (
	partVariable = "MAILBOX_STORE_TEST_PART"
	dirVariable  = "MAILBOX_STORE_TEST_DIR"
)

func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		play(part, os.Getenv(dirVariable))
		return
	}
	goleak.VerifyTestMain(m)
}

func play(part, dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	options := &Options{ReserveBytes: -1, BallastBytes: -1}
	if part == "disk fails" {
		disk := storetest.NewDisk()
		options.FS = disk.FS()
		dir = testDir
		s, err := Open(context.Background(), dir, options)
		fail(err)
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync {
				return syscall.EIO
			}
			return nil
		})
		b := s.NewBatch()
		b.Set([]byte("a"), []byte("1"))
		if s.Commit(b, true) == nil {
			fmt.Println("committed")
			return
		}
		select {} // another sync may have failed, and the process is about to exit
	}
	s, err := Open(context.Background(), dir, options)
	fail(err)
	fmt.Println("open")
	if part == "hold" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		fail(s.Close())
		return
	}
	b := s.NewBatch()
	for n := 0; ; n++ { // until killed
		b.Set([]byte("last"), strconv.AppendInt(nil, int64(n), 10))
		b.Set([]byte(numbered("k", n)), []byte(faultValue(n)))
		fail(s.Commit(b, true))
		fmt.Println("acked", n)
	}
}

// other starts the second process and waits for its first line.
func other(t *testing.T, part, dir string) (cmd *exec.Cmd, stdin io.WriteCloser, lines *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), partVariable+"="+part, dirVariable+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	return cmd, stdin, lines
}

func TestStoreInUseByAnotherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	cmd, stdin, _ := other(t, "hold", dir)
	_, err := Open(t.Context(), dir, &Options{ReserveBytes: -1, BallastBytes: -1})
	wantError(t, err, driver.ErrConflict, dir, "in use", "close it")
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, dir, &Options{ReserveBytes: -1, BallastBytes: -1}))
}

// A process can be killed at any moment. Its acknowledged commits are present.
func TestKillingTheProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd, _, lines := other(t, "write", dir)
		acked := -1
		kill := time.AfterFunc(time.Duration(50+round*40)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), "acked ")
			if n, err := strconv.Atoi(text); ok && err == nil {
				acked = n
			}
		}
		kill.Stop()
		_ = cmd.Wait()
		s := mustOpen(t, dir, &Options{ReserveBytes: -1, BallastBytes: -1})
		if acked >= 0 {
			text, err := s.Get([]byte("last"), nil)
			last, _ := strconv.Atoi(string(text))
			if err != nil || last < acked {
				t.Fatalf("last is %q (%v), acknowledged were %d", text, err, acked)
			}
			for n := range last + 1 {
				wantValue(t, s, numbered("k", n), faultValue(n))
			}
		}
		t.Logf("killed after %d commits", acked+1)
		b := s.NewBatch()
		b.DeleteRange([]byte("a"), []byte("z"))
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
	}
}

func TestH7ProcessExitsWithoutCallback(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), partVariable+"=disk fails")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != ExitCode {
		t.Errorf("ended with %v, want exit code %d", err, ExitCode)
	}
	if len(out) != 0 {
		t.Errorf("it went on and printed %q", out)
	}
	if text := stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "sync failed") {
		t.Errorf("it said %q", text)
	}
}
