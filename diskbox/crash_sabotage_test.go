package diskbox

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// Each of these tests breaks a promise. If the harness did not detect it, it would not detect
// the same fault in the backend.

func TestEverySaboteurIsCaught(t *testing.T) {
	volume.InFull(t)
	for _, saboteur := range []struct {
		name     string
		sabotage func(*crashEnv)
	}{
		{"acknowledges before the sync", func(e *crashEnv) {
			e.sabotage = func(fs vfs.FS) vfs.FS { return storetest.IgnoreSyncs(fs, storetest.Logs) }
		}},
		{"does not sync directories", func(e *crashEnv) {
			e.sabotage = func(fs vfs.FS) vfs.FS { return storetest.IgnoreSyncs(fs, storetest.Directories) }
		}},
		{"loses the seal of the manifest", func(e *crashEnv) { e.sabotage = storetest.LoseSeals }},
		{"claims that lazy commits are durable", func(e *crashEnv) { e.sync = SyncNone }},
	} {
		t.Run(saboteur.name, func(t *testing.T) {
			var summary crashSummary
			summary.fill(t, 2000, func(e *crashEnv) {
				e.generations = 1 // otherwise the next one detects it first
				saboteur.sabotage(e)
			})
			if summary.lost+summary.unopenable == 0 {
				t.Fatalf("not caught: %v", &summary)
			}
			t.Logf("caught: %v", summary.failures[0])
		})
	}
}

// tampers change the content of an image before it is checked.
var tampers = []struct {
	name   string
	notice string // part of the expected error
	tamper func(model *crashModel, c *crashContent)
}{
	{"a message is lost", "is absent; it should be waiting", func(_ *crashModel, c *crashContent) {
		if n := len(c.peeked); n > 0 && c.peeked[n-1].State != driver.StateDead {
			count(&c.stats, c.peeked[n-1].State, -1)
			c.peeked = c.peeked[:n-1]
		}
	}},
	{"a message is lost while it is received", "neither received nor dead", func(_ *crashModel, c *crashContent) {
		if n := len(c.drained) - 1; n >= 0 && len(c.drained[n]) > 0 {
			c.drained[n] = c.drained[n][1:]
		}
	}},
	{"a dead letter is lost", "is absent; it should be dead", func(_ *crashModel, c *crashContent) {
		if n := len(c.peeked); n > 0 && c.peeked[n-1].State == driver.StateDead {
			c.peeked = c.peeked[:n-1]
			c.stats.Dead--
		}
	}},
	{"an acked message is back", "is waiting; it should be absent", func(model *crashModel, c *crashContent) {
		for token := range model.messages {
			if i := &model.messages[token]; i.gone && i.id != "" {
				c.peeked = append(c.peeked, peekedItem(i))
				c.stats.Ready++
				return
			}
		}
	}},
	{"a message was never sent", "was never sent", func(_ *crashModel, c *crashContent) {
		c.peeked = append(c.peeked, driver.Peeked{State: driver.StateReady, DeadLetter: driver.DeadLetter{Message: driver.Message{CorrelationID: "99999"}}})
		c.stats.Ready++
	}},
	{"a message is there twice", "is there twice", func(_ *crashModel, c *crashContent) {
		if len(c.peeked) > 0 {
			c.peeked = append(c.peeked, c.peeked[0])
			count(&c.stats, c.peeked[0].State, 1)
		}
	}},
	{"a bit of a body is flipped", "wrong body", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			if body := slices.Clone(c.peeked[n].Body); len(body) > 0 {
				body[len(body)-1] ^= 1
				c.peeked[n].Body = body
				return
			}
		}
	}},
	{"another body is received", "wrong body", func(_ *crashModel, c *crashContent) {
		for n := range c.drained {
			if len(c.drained[n]) > 0 {
				c.drained[n][0].Body = append(c.drained[n][0].Body, 'x')
				return
			}
		}
	}},
	{"an attribute is lost", "other properties", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			c.peeked[n].Attributes = nil
		}
	}},
	{"stats are wrong", "but stats say", func(_ *crashModel, c *crashContent) { c.stats.Ready++ }},
	{"the order is lost", "which is ahead of it", func(_ *crashModel, c *crashContent) {
		for n := range c.drained {
			slices.Reverse(c.drained[n])
		}
	}},
	{"two neighbours change places", "which is ahead of it", func(_ *crashModel, c *crashContent) {
		for _, round := range c.drained {
			if n := len(round) - 1; n > 0 {
				round[n-1], round[n] = round[n], round[n-1]
			}
		}
	}},
	{"a key is forgotten", "Duplicate:false", func(_ *crashModel, c *crashContent) {
		if len(c.repeats) > 0 {
			c.repeats[0].Duplicate = false
		}
	}},
	{"a key is remembered with another id", "is answered with", func(_ *crashModel, c *crashContent) {
		if len(c.repeats) > 0 {
			c.repeats[0].ID += "x"
		}
	}},
	{"a key is remembered without its message", "but its key is", func(model *crashModel, c *crashContent) {
		for n, token := range c.repeated {
			if model.messages[token].unsent {
				c.repeats[n].Duplicate = true
			}
		}
	}},
	{"a delay is forgotten", "too early", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			if c.peeked[n].State == driver.StateDelayed {
				c.peeked[n].State = driver.StateReady
				c.stats.Delayed--
				c.stats.Ready++
				return
			}
		}
	}},
	{"the end of a life is forgotten", "its time to live is over", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			if c.peeked[n].Reason == driver.ReasonExpired {
				c.peeked[n].State = driver.StateReady
				c.stats.Dead--
				c.stats.Ready++
				return
			}
		}
	}},
	{"deliveries are forgotten", "it counts 0 deliveries", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			c.peeked[n].Deliveries = 0
		}
	}},
	{"deliveries are made up", "deliveries, not", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			c.peeked[n].Deliveries += 5
		}
	}},
	{"the last error is forgotten", "its last error is", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			c.peeked[n].LastError = ""
		}
	}},
	{"the cause of death is another one", "cannot have died", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			if c.peeked[n].State == driver.StateDead {
				c.peeked[n].Reason = driver.ReasonIntegrity
			}
		}
	}},
	{"the time of death is another one", "died at", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			c.peeked[n].DeadAt = c.peeked[n].DeadAt.Add(time.Second)
		}
	}},
	{"a redrive is forgotten", "it counts 0 redrives", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			c.peeked[n].Redrives = 0
		}
	}},
	{"a dead letter is alive", "is waiting; it should be dead", func(_ *crashModel, c *crashContent) {
		for n := range c.peeked {
			if c.peeked[n].State == driver.StateDead {
				c.peeked[n].State = driver.StateReady
				c.stats.Dead--
				c.stats.Ready++
				return
			}
		}
	}},
	{"a configuration is forgotten", "another configuration", func(_ *crashModel, c *crashContent) { c.config = driver.Config{} }},
	{"a queue is lost", "is lost", func(_ *crashModel, c *crashContent) { *c = crashContent{} }},
}

// peekedItem returns a message as a peek would show it.
func peekedItem(i *crashMessage) driver.Peeked {
	return driver.Peeked{State: driver.StateReady, DeadLetter: driver.DeadLetter{Message: driver.Message{
		ID: i.id, Body: i.out.Body, Attributes: i.out.Attributes, Group: i.out.Group,
		ReplyTo: i.out.ReplyTo, CorrelationID: i.out.CorrelationID, EnqueuedAt: i.sentAt[0],
	}}}
}

// copied returns a copy that can be changed without changing c.
func (c *crashContent) copied() *crashContent {
	changed := *c
	changed.peeked = slices.Clone(c.peeked)
	changed.repeats = slices.Clone(c.repeats)
	changed.drained = slices.Clone(c.drained)
	for n := range changed.drained {
		changed.drained[n] = slices.Clone(c.drained[n])
	}
	return &changed
}

func TestEveryTamperingIsDetected(t *testing.T) {
	volume.InFull(t)
	var mu sync.Mutex
	noticed := make(map[string]string)
	var summary crashSummary
	summary.fill(t, 2000, func(e *crashEnv) {
		e.inspect = func(model *crashModel, c *crashContent, at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			for _, test := range tampers {
				if noticed[test.name] != "" {
					continue
				}
				changed := c.copied()
				test.tamper(model, changed)
				var result crashResult
				result.checkUse(model, changed, result.checkLook(model, changed, at))
				for _, wrong := range result.wrong {
					if strings.Contains(wrong, test.notice) {
						noticed[test.name] = wrong
					}
				}
			}
			summary.enough.Store(len(noticed) == len(tampers))
		}
	})
	summary.expectNone(t) // without tampering
	for _, test := range tampers {
		t.Logf("%s: %s", test.name, noticed[test.name])
		if noticed[test.name] == "" {
			t.Errorf("the model did not detect that %s", test.name)
		}
	}
}
