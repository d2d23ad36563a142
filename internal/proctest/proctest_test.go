package proctest

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func TestProcessOutputIsKept(t *testing.T) {
	p := Start(t, shell(`echo out; echo noise >&2; echo '{"msg":"started","http":"here"}' >&2`))
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
	p := Start(t, shell("exec sleep 1000"))
	p.Kill()
	if p.Err() == nil {
		t.Error("a killed process ended without an error")
	}
	p.Kill()
}

func TestStopWaitsForOrderlyEnd(t *testing.T) {
	p := Start(t, shell(`trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`))
	Eventually(t, time.Minute, "ready", func() bool { return p.Stdout.String() == "ready\n" })
	p.Stop(t)
}

func TestServerThatFailsToStartReportsWhy(t *testing.T) {
	missing := Package{Name: "no-such-package", Install: "use make test"}
	if _, err := missing.Serve(); err == nil || !strings.Contains(err.Error(), "use make test") {
		t.Errorf("got %v", err)
	}
	broken := Package{Name: "fauxqs", Script: `console.error("out of order"); process.exit(3)`}
	if _, err := broken.Serve(); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v", err)
	}
}

func TestNumberReadsEnvironment(t *testing.T) {
	t.Setenv("MAILBOX_PROCTEST", "7")
	if a, b := Number(t, "MAILBOX_PROCTEST", 3), Number(t, "MAILBOX_PROCTEST_OTHER", 3); a != 7 || b != 3 {
		t.Errorf("got %d and %d", a, b)
	}
}
