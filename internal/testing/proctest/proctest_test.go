package proctest

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	return exec.Command(Find(t, "sh"), "-c", script)
}

func TestProcessOutputIsKept(t *testing.T) {
	p := Start(t, shell(t, `echo out; echo noise >&2; echo '{"msg":"started","http":"here"}' >&2`))
	<-p.Ended()
	if p.Err() != nil || p.Stdout.String() != "out\n" || !strings.HasPrefix(p.Stderr.String(), "noise\n") {
		t.Errorf("got %q, %q, %v", p.Stdout.String(), p.Stderr.String(), p.Err())
	}
	if line := p.AwaitLog(t, "started"); line["http"] != "here" {
		t.Errorf("got %v", line)
	}
	if line := p.AwaitLog(t, "stopped"); line != nil {
		t.Errorf("got %v from a process that ended without writing it", line)
	}
}

func TestProcessCanBeKilledTwice(t *testing.T) {
	p := Start(t, shell(t, "exec sleep 1000"))
	p.Kill()
	if p.Err() == nil {
		t.Error("a killed process ended without an error")
	}
	p.Kill()
}

func TestStopWaitsForOrderlyEnd(t *testing.T) {
	p := Start(t, shell(t, `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`))
	Eventually(t, time.Minute, "ready", func() bool { return p.Stdout.String() == "ready\n" })
	p.Stop(t)
}

func TestServerThatFailsToStartReportsWhy(t *testing.T) {
	broken := Package{Name: "fauxqs", Script: `console.error("out of order"); process.exit(3)`}
	_, err := broken.Serve()
	if _, missing := errors.AsType[*MissingError](err); missing {
		End(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v", err)
	}
}

func TestMissingProgramSkipsTestUnlessRequired(t *testing.T) {
	for value, want := range map[string]string{"": "skipped", "1": "failed"} {
		t.Setenv(requireVariable, value)
		missing := Package{Name: "no-such-package"}
		_, err := missing.Serve()
		for program, end := range map[string]func(testing.TB){
			"no-such-package": func(t testing.TB) { End(t, fmt.Errorf("start: %w", errors.Join(err, err))) },
			"no-such-program": func(t testing.TB) { Find(t, "no-such-program") },
		} {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				end(r)
			}()
			<-done
			if line := r.said; r.result != want || !strings.HasPrefix(line, "needs "+program+": make setup installs it") || strings.Contains(line, "\n") {
				t.Errorf("%s=%q: %s with %q; want %s", requireVariable, value, r.result, line, want)
			}
		}
	}
}

func TestOtherErrorsFailTheTest(t *testing.T) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		End(r, errors.New("port in use"))
	}()
	<-done
	if r.result != "failed" || r.said != "port in use" {
		t.Errorf("%s with %q", r.result, r.said)
	}
}

// A recorder records how a test ends.
type recorder struct {
	testing.TB
	result, said string
}

func (r *recorder) Skip(args ...any) { r.end("skipped", args) }

func (r *recorder) Fatal(args ...any) { r.end("failed", args) }

func (r *recorder) end(result string, args []any) {
	r.result, r.said = result, fmt.Sprint(args...)
	runtime.Goexit()
}
