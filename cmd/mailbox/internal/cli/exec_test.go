package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestExecExtendsLeaseWhileCommandRuns(t *testing.T) {
	for _, surface := range surfaces {
		t.Run(surface.name, func(t *testing.T) {
			d := start(t, inMemory())
			// A machine that stands still for a lease loses it, so a loss is tried again
			// with a longer one.
			for lease := 300 * time.Millisecond; ; lease *= 2 {
				id := d.must(t, "send", "slow", "work")
				// The command runs longer than three leases.
				r := mailbox(t, d.environ(surface.more...), "recv", "slow", "--visibility", lease.String(), "--json",
					"--exec", fmt.Sprintf("sleep %.1f", 3.4*lease.Seconds()))
				if r.code == 9 && strings.Contains(r.stdout, `"outcome":"lost"`) && lease < 10*time.Second {
					d.must(t, "queues", "purge", "slow", "--yes")
					continue
				}
				r.wantCode(t, 0)
				if !strings.Contains(r.stdout, `"deliveries":1,"outcome":"acked"`) {
					t.Errorf("got %s", r.stdout)
				}
				if life := d.must(t, "trace", id); strings.Count(life, "delivered") != 1 || !strings.Contains(life, "extended") || !strings.Contains(life, "acked") {
					t.Errorf("its trace is\n%s", life)
				}
				return
			}
		})
	}
}

func TestExecStopsCommandWhenLeaseIsLost(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "q", "work")
	r := begin(t, d.environ(), strings.NewReader(""), "recv", "q", "--visibility", "300ms", "--exec", "echo begun; sleep 60")
	r.stdout.await(t, "begun")
	d.must(t, "queues", "purge", "q", "--yes")
	got := r.wait()
	got.wantCode(t, 9, "lost")
}

func TestInterruptedExecReleasesMessage(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "q", "work")
	r := begin(t, d.environ(), strings.NewReader(""), "recv", "q", "--follow", "--visibility", "10m", "--exec", "echo begun; sleep 60")
	r.stdout.await(t, "begun")
	r.interrupt()
	got := r.wait()
	got.wantCode(t, 0, "released")
	if stats := d.must(t, "stats", "q", "--json"); !strings.Contains(stats, `"ready":1`) {
		t.Errorf("the message is not ready again: %s", stats)
	}
}

func TestExecRunsCommandsInParallel(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "q", "a")
	d.must(t, "send", "q", "b")
	// Each command waits until the other has begun.
	dir := t.TempDir()
	command := `body=$(cat); touch ` + dir + `/$body; until [ -e ` + dir + `/a ] && [ -e ` + dir + `/b ]; do :; done`
	r := d.mailbox(t, "recv", "q", "--max", "2", "--parallel", "2", "--exec", command)
	r.wantCode(t, 0)
	if stats := d.must(t, "stats", "q", "--json"); !strings.Contains(stats, `"ready":0,"delayed":0,"in_flight":0`) {
		t.Errorf("not both were acked: %s", stats)
	}
}

func TestFailedExecIsDeadLetteredAfterMaxDeliveries(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "q", "--max-attempts", "2")
	id := d.must(t, "send", "q", "poison")
	for range 2 {
		d.mailbox(t, "recv", "q", "--retry-delay", "0s", "--exec", "echo no good >&2; false").wantCodeOnly(t, 9)
	}
	if letter := d.must(t, "dlq", "show", "q", id, "--json"); !strings.Contains(letter, `"last_error":"exit status 1: no good"`) || !strings.Contains(letter, `"reason":"max_attempts"`) {
		t.Errorf("the dead letter is %s", letter)
	}
}

// wantCodeOnly checks an exit code.
func (r result) wantCodeOnly(t *testing.T, code int) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stderr %q", r.code, code, r.stderr)
	}
}
