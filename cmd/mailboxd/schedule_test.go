package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// TestKilledDaemonSendsOneMessageForEachDueTime kills a daemon on disk over and over while it runs a
// schedule.
func TestKilledDaemonSendsOneMessageForEachDueTime(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, dir)
	c.schedule()
	for range 4 {
		c.awaitRun()
		c.kill()
		c = startChild(t, dir)
	}
	c.awaitRun()
	c.expectOneForEachDueTime()
}

// TestKilledDaemonsOnOneRedisSendOneMessageForEachDueTime does so with two daemons, of which one
// runs at any time.
func TestKilledDaemonsOnOneRedisSendOneMessageForEachDueTime(t *testing.T) {
	redis, dir := redistest.Standalone(t), t.TempDir()
	daemon := func(name string) *child {
		return startChildWith(t, dir, nil, "--backend=redis://"+redis.Addr(), "--revocation-file="+filepath.Join(dir, "revocations."+name))
	}
	names := []string{"first", "second"}
	daemons := []*child{daemon(names[0]), daemon(names[1])}
	daemons[0].schedule()
	for round := range 3 {
		daemons[0].awaitRun()
		daemons[1].awaitRun()
		one := round % 2
		daemons[one].kill()
		daemons[1-one].awaitRun() // it did not store the schedule in the first round
		daemons[one] = daemon(names[one])
	}
	daemons[0].expectOneForEachDueTime()
}

const scheduleQuery = `{"topic":"jobs","name":"often"}`

// schedule stores a schedule that is due every second.
func (c *child) schedule() {
	c.t.Helper()
	c.must("/v1/queues/configure", `{"topic":"jobs","config":{}}`)
	c.must("/v1/schedules/put", `{"topic":"jobs","name":"often","every_ms":1000,"catch_up":"all"}`)
}

func (c *child) must(path, body string) map[string]any {
	c.t.Helper()
	fields, err := c.post(path, body)
	if err != nil {
		c.t.Fatalf("%s: %v, %s", path, err, c.log.String())
	}
	return fields
}

// awaitRun waits until the schedule is dealt with for one more due time.
func (c *child) awaitRun() {
	c.t.Helper()
	before := c.through()
	for !c.through().After(before) {
		<-time.After(20 * time.Millisecond)
	}
}

func (c *child) through() time.Time {
	c.t.Helper()
	text, _ := c.must("/v1/schedules/get", scheduleQuery)["through"].(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		c.t.Fatal(err)
	}
	return at
}

// kill ends the daemon like kill -9.
func (c *child) kill() {
	c.t.Helper()
	if err := c.process.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = c.process.Wait() // its error says that it was killed
}

// expectOneForEachDueTime pauses the schedule, and compares its messages with its due times.
func (c *child) expectOneForEachDueTime() {
	c.t.Helper()
	fields := c.must("/v1/schedules/pause", scheduleQuery)
	created, err := time.Parse(time.RFC3339, fmt.Sprint(fields["created_at"]))
	if err != nil {
		c.t.Fatal(err)
	}
	paused := c.through() // pausing counts as dealt with
	sent := make(map[string]int)
	for {
		messages, _ := c.must("/v1/recv", `{"topic":"jobs","max_messages":100,"visibility_ms":3600000}`)["messages"].([]any)
		if len(messages) == 0 {
			break
		}
		for _, m := range messages {
			sent[fmt.Sprint(m.(map[string]any)["attrs"].(map[string]any)["mailbox.schedule.due"])]++
		}
	}
	last := created
	for due, n := range sent {
		at, err := time.Parse(time.RFC3339, due)
		if err != nil || n != 1 || at.After(paused) {
			c.t.Errorf("%d messages for %s, error %v", n, due, err)
		}
		if at.After(last) {
			last = at
		}
	}
	for due := created.Add(time.Second); !due.After(last); due = due.Add(time.Second) {
		if n := sent[due.UTC().Format(time.RFC3339Nano)]; n != 1 {
			c.t.Errorf("%d messages for %v, want 1", n, due)
		}
	}
	if len(sent) < 5 {
		c.t.Errorf("only %d messages", len(sent))
	}
	c.t.Logf("%d due times, one message for each", len(sent))
}
