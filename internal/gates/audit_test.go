package gates_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// change identifies a change that is made once.
type change struct{ operation, queue, subject string }

// A changer makes changes, each once, and records those that were begun and answered.
type changer struct {
	api      *httpSurface
	mu       sync.Mutex // guards the fields below
	answered map[change]bool
	begun    map[change]bool // changes without an answer
}

func (c *changer) note(done change, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.answered[done] = true
	} else if done.queue != "" {
		c.begun[done] = true
	}
}

// count returns how many changes were answered.
func (c *changer) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answered)
}

// work configures, purges and deletes queues, and mints tokens, until a request fails.
func (c *changer) work(t *testing.T, name string) {
	for n := 0; ; n++ {
		queue := fmt.Sprintf("%s-%d", name, n)
		err := c.api.post(t.Context(), "/v1/queues/configure", object{"topic": queue}, nil)
		c.note(change{"configure", queue, ""}, err)
		if err == nil {
			err = c.api.post(t.Context(), "/v1/purge", object{"topic": queue}, nil)
			c.note(change{"purge", queue, ""}, err)
		}
		if err == nil {
			var minted struct {
				ID string `json:"token_id"`
			}
			err = c.api.post(t.Context(), "/v1/caps/mint", object{"caveats": []string{"mbx:op=send", "mbx:topic=*"}}, &minted)
			c.note(change{"mint token", "", minted.ID}, err)
		}
		if err == nil {
			err = c.api.post(t.Context(), "/v1/queues/delete", object{"topic": queue}, nil)
			c.note(change{"delete", queue, ""}, err)
		}
		if err != nil {
			return
		}
	}
}

// fillAudit fills the audit log of a stopped daemon to its limit, with records of
// another tenant, so that the next record cuts it.
func fillAudit(t *testing.T, dir string) {
	t.Helper()
	made := t.TempDir()
	log, err := audit.Open(made, audit.DefaultLimit)
	if err == nil {
		err = log.Append(audit.Record{At: time.Unix(1, 0).UTC(), Operation: "purge", Queue: "old", Tenant: "acme", Result: "ok"})
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := log.Content()
	if err != nil {
		t.Fatal(err)
	}
	_ = log.Close()
	path := filepath.Join(dir, audit.FileName)
	own, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Repeat(line, (audit.DefaultLimit-len(own))/len(line))
	if err := os.WriteFile(path, append(old, own...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKilledDaemonAuditsEachAnsweredChangeOnce kills a daemon in the middle of changes.
// Every change that was answered is in the audit log once, and a change without an answer
// once or not at all. In one round the log is cut meanwhile, in another its end is torn.
func TestKilledDaemonAuditsEachAnsweredChangeOnce(t *testing.T) {
	t.Parallel() // mostly waits for the disk
	d := start(t, onDisk...)
	c := &changer{answered: make(map[change]bool), begun: make(map[change]bool)}
	for round := range volume.Count(t, 3, 50) {
		c.api = openHTTP(t, d.http, d.token)
		var clients sync.WaitGroup
		for client := range 4 {
			clients.Go(func() { c.work(t, fmt.Sprintf("round%d-client%d", round, client)) })
		}
		enough := c.count() + 20 + rand.N(60)
		proctest.Eventually(t, time.Minute, "answers", func() bool { return c.count() >= enough })
		d.Kill()
		clients.Wait()
		switch round % 3 {
		case 0:
			fillAudit(t, d.dir)
		case 1:
			tear(t, d.dir)
		}
		d = d.again(onDisk...)
		c.check(t, d)
	}
	t.Logf("%d changes were answered, %d had no answer when the daemon was killed", len(c.answered), len(c.begun))
}

// tear adds half a record to the audit log.
func tear(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, audit.FileName)
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(content, content[:40]...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// check compares the audit log that the daemon shows with the answers.
func (c *changer) check(t *testing.T, d *daemon) {
	t.Helper()
	text, err := openHTTP(t, d.http, d.token).ask(t.Context(), "/v1/audit", object{"since": "2000-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[change]int)
	for line := range bytes.Lines(text) {
		var r struct {
			audit.Record
			Damaged int
		}
		if err := json.Unmarshal(line, &r); err != nil || r.Damaged != 0 {
			t.Errorf("the audit log has %s, %v", line, err)
		}
		found[change{r.Operation, r.Queue, r.Subject}]++
	}
	for done := range c.answered {
		if found[done] != 1 {
			t.Errorf("%+v was answered, and is in the audit log %d times", done, found[done])
		}
	}
	for done := range c.begun {
		if found[done] > 1 {
			t.Errorf("%+v is in the audit log %d times", done, found[done])
		}
	}
}

// TestAnsweredChangesOfKilledDaemonAreShownByOther kills one of two daemons on a Redis and on a PostgreSQL. Every
// change that it answered is in the log that the other shows, once, and after its restart still once.
func TestAnsweredChangesOfKilledDaemonAreShownByOther(t *testing.T) {
	t.Parallel() // mostly waits
	for name, backend := range map[string]func(testing.TB) string{
		"Redis":      func(t testing.TB) string { return "redis://" + redistest.Standalone(t).Addr() },
		"PostgreSQL": func(t testing.TB) string { return pgtest.Start(t, "fsync=off").URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--backend=" + backend(t), "--log-level=info"}
			killed := start(t, args...)
			other := startIn(t, dirWithKeysOf(t, killed), nil, args...)
			c := &changer{answered: make(map[change]bool), begun: make(map[change]bool)}
			for round := range volume.Count(t, 2, 30) {
				c.api = openHTTP(t, killed.http, killed.token)
				var clients sync.WaitGroup
				for client := range 4 {
					clients.Go(func() { c.work(t, fmt.Sprintf("round%d-client%d", round, client)) })
				}
				enough := c.count() + 100 + rand.N(600) // some rounds gather the records of the queue
				proctest.Eventually(t, 3*time.Minute, "answers", func() bool { return c.count() >= enough })
				killed.Kill()
				clients.Wait()
				c.check(t, other)
				killed = killed.again(args...)
				c.check(t, killed)
				c.check(t, other)
			}
			t.Logf("%d changes were answered, %d had no answer when the daemon was killed", len(c.answered), len(c.begun))
		})
	}
}
