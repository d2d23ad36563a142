// Package runnertest kills processes that run the schedules of one queue, and checks what they
// have sent.
package runnertest

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/schedule"
)

// addressVariable makes a test that calls Kill run schedules on the backend at this address.
const addressVariable = "MAILBOX_TEST_RUNNER_ADDRESS"

const (
	processes = 5
	queueName = "jobs"
)

// Kill kills processes that run schedules at random, and expects one message for each second
// of each schedule. A process is the calling test, run again. start returns the address of a
// backend that no other test uses, and open opens that backend in each process.
func Kill(t *testing.T, start func() (address string), open func(address string) driver.Opener) {
	t.Helper()
	if address := os.Getenv(addressVariable); address != "" {
		_, runner := openRunner(t, open(address))
		if err := runner.Run(t.Context()); err != nil { // until it is killed
			t.Error(err)
		}
		return
	}
	address := start()
	q, runner := openRunner(t, open(address))
	names := []string{"a", "b", "c"}
	for _, name := range names {
		if _, err := runner.Put(t.Context(), schedule.Schedule{Name: name, Every: time.Second, CatchUp: schedule.CatchUpAll}); err != nil {
			t.Fatal(err)
		}
	}
	killed := churn(t, address)
	sent := countRuns(t, q)
	total := 0
	for _, name := range names {
		status, err := runner.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for due := status.Schedule.Created.Add(time.Second); !due.After(status.Through); due = due.Add(time.Second) {
			if n := sent[name+due.Format(time.RFC3339Nano)]; n != 1 {
				t.Errorf("schedule %q is due at %v: %d messages, want 1", name, due, n)
			}
			total++
		}
	}
	if total != len(sent) || total == 0 {
		t.Errorf("%d messages for %d due times", len(sent), total)
	}
	t.Logf("%d processes killed; %d due times, one message for each", killed, total)
}

func openRunner(t *testing.T, backend driver.Opener) (driver.Queue, *schedule.Runner) {
	t.Helper()
	q, err := backend.OpenQueue(t.Context(), queueName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	runner, err := schedule.NewRunner(q, queueName, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q, runner
}

// churn starts processes, and kills and replaces them for a while. It returns how many it has
// replaced.
func churn(t *testing.T, address string) (killed int) {
	t.Helper()
	var running []*exec.Cmd
	end := func(i int) {
		if err := running[i].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = running[i].Wait() // its error says that it was killed
	}
	for stop := time.Now().Add(volume.Duration(t, 6*time.Second, 2*time.Minute)); time.Now().Before(stop); {
		if len(running) < processes {
			running = append(running, begin(t, address))
			continue
		}
		<-time.After(rand.N(400 * time.Millisecond))
		i := rand.IntN(len(running))
		end(i)
		running[i] = begin(t, address)
		killed++
	}
	for i := range running {
		end(i)
	}
	return killed
}

func begin(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), addressVariable+"="+address)
	command.Stderr = os.Stderr
	command.SysProcAttr = proctest.DieWithParent()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

// countRuns receives all messages, and counts them by schedule and due time.
func countRuns(t *testing.T, q driver.Queue) map[string]int {
	t.Helper()
	sent := make(map[string]int)
	for {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return sent
		}
		for _, d := range got {
			sent[d.Attributes[driver.AttributeScheduleName]+d.Attributes[driver.AttributeScheduleDue]]++
		}
	}
}
