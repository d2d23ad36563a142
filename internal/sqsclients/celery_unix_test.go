//go:build unix

package sqsclients_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A Celery worker runs a hundred tasks while the daemon is killed and restarted. Celery
// promises that each runs at least once.
func TestCeleryRunsAllTasksAcrossKill(t *testing.T) {
	const tasks = 100
	python := pythons(t, "celery, kombu, boto3, pycurl")[0]
	results := t.TempDir()
	s := newClientEnv(t, "RESULTS="+results, fmt.Sprintf("COUNT=%d", tasks))
	s.run(python, "celery_tasks.py")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	worker := s.command(ctx, python, "-m", "celery", "--app=celery_tasks", "worker", "--loglevel=info", "--concurrency=2",
		"--without-gossip", "--without-mingle", "--without-heartbeat")
	worker.SysProcAttr.Setpgid = true // so that its children can be killed with it
	log, err := worker.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	said, logged := new(proctest.Output), make(chan struct{})
	go func() {
		defer close(logged)
		_, _ = bufio.NewReader(log).WriteTo(said) // it ends with the worker
	}()
	defer func() {
		_ = syscall.Kill(-worker.Process.Pid, syscall.SIGKILL)
		<-logged
		_ = worker.Wait() // returns an error, because it was killed
		if t.Failed() {
			t.Logf("the worker says:\n%s", said)
		}
	}()

	proctest.Eventually(t, scriptTimeout/2, "a third done", func() bool { return len(done(t, results)) >= tasks/3 })
	s.Kill()
	before := len(done(t, results))
	s.launch()
	proctest.Eventually(t, scriptTimeout/2, "all done", func() bool { return len(done(t, results)) == tasks })
	runs := 0
	for _, times := range done(t, results) {
		runs += times
	}
	if before == tasks {
		t.Error("all tasks were done before the kill: the test shows nothing")
	}
	t.Logf("%d tasks, %d of them done when the daemon was killed; %d ran, %d of them again", tasks, before, runs, runs-tasks)
}

// done returns how often each task has run.
func done(t *testing.T, results string) map[string]int {
	t.Helper()
	entries, err := os.ReadDir(results)
	if err != nil {
		t.Fatal(err)
	}
	times := make(map[string]int)
	for _, entry := range entries {
		task, _, _ := strings.Cut(entry.Name(), ".")
		times[task]++
	}
	return times
}
