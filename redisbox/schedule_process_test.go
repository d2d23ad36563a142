package redisbox_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/schedule"
)

// runnerVariable makes this program run schedules; see workerVariable.
const runnerVariable = "MAILBOX_REDIS_TEST_RUNNER"

const runnerProcesses = 5

// TestKilledRunnersSendOneMessageForEachDueTime kills processes that run schedules of one queue
// at random, and expects one message for each second.
func TestKilledRunnersSendOneMessageForEachDueTime(t *testing.T) {
	if os.Getenv(runnerVariable) != "" {
		runSchedules(t)
		return
	}
	t.Parallel()
	server := redistest.Standalone(t)
	queue := redistest.Prefix(t) + "jobs"
	q, err := openBackend(t, server.ClientOption(), nil).OpenQueue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := schedule.NewRunner(q, queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		if _, err := runner.Put(t.Context(), schedule.Schedule{Name: name, Every: time.Second, CatchUp: schedule.CatchUpAll}); err != nil {
			t.Fatal(err)
		}
	}
	var processes []*exec.Cmd
	end := func(i int) {
		if err := processes[i].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = processes[i].Wait() // its error says that it was killed
	}
	killed := 0
	for stop := time.Now().Add(volume.Duration(t, 6*time.Second, 2*time.Minute)); time.Now().Before(stop); {
		if len(processes) < runnerProcesses {
			processes = append(processes, startRunner(t, server, queue))
			continue
		}
		<-time.After(rand.N(400 * time.Millisecond))
		i := rand.IntN(len(processes))
		end(i)
		processes[i] = startRunner(t, server, queue)
		killed++
	}
	for i := range processes {
		end(i)
	}
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
	if total != len(sent) {
		t.Errorf("%d messages for %d due times", len(sent), total)
	}
	t.Logf("%d processes killed; %d due times, one message for each", killed, total)
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

func startRunner(t *testing.T, server *redistest.Server, queue string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestKilledRunnersSendOneMessageForEachDueTime$")
	command.Env = append(os.Environ(), runnerVariable+"=yes", addressVariable+"="+server.Addr(), queueVariable+"="+queue)
	command.Stderr = os.Stderr
	command.SysProcAttr = proctest.DieWithParent()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

// runSchedules is the main function of a process: it runs until it is killed.
func runSchedules(t *testing.T) {
	option := rueidis.ClientOption{InitAddress: []string{os.Getenv(addressVariable)}}
	queue := os.Getenv(queueVariable)
	q, err := openBackend(t, option, nil).OpenQueue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := schedule.NewRunner(q, queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
