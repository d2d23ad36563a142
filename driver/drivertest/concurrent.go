package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/testing/history"
)

// Load configures RunConcurrent; zero fields mean the defaults.
type Load struct {
	// Producers and Consumers are 32 each by default.
	Producers, Consumers int
	// Messages is the number of messages sent, without repeats. The default is 10,000 in
	// virtual time and 1,000 on the real clock.
	Messages int
	// Config is the queue's. All messages must be deliverable in the end.
	Config driver.Config
	// Restarts is how often the backend is restarted during the run; Backend.Restart must be
	// set.
	Restarts int
	// Seed fixes the random choices, but not the scheduling. 0 takes a random seed; it is
	// logged.
	Seed uint64
}

// RunConcurrent runs producers and consumers on one queue. They misbehave: they
// repeat sends under one dedup key, cancel, settle late, twice and in races,
// give back, dead-letter and redrive. It records every call and checks the
// history; see Check for the rules. If MAILBOX_HISTORY names a directory, the
// history is written there.
func RunConcurrent(t *testing.T, b Backend, load Load) {
	t.Helper()
	load = load.withDefaults(b)
	t.Logf("seed %d", load.Seed)
	var crowd *crowd
	run := func(t *testing.T) {
		crowd = newCrowd(t, b, load)
		crowd.run()
	}
	if b.Virtual {
		synctest.Test(t, run)
	} else {
		run(t)
	}
	recorded := crowd.recorder.History()
	if dir := os.Getenv("MAILBOX_HISTORY"); dir != "" {
		if err := saveHistory(filepath.Join(dir, "history.jsonl"), recorded); err != nil {
			t.Error(err)
		}
	}
	report := history.Check(recorded, crowd.final, crowd.terms)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	t.Logf("%d events, %d messages, %d deliveries (%d repeated after crashes), reorder depth %d, left over %+v",
		len(recorded.Events), report.Messages, report.Deliveries, report.Repeats, report.ReorderDepth, crowd.final.Stats)
	if report.Deliveries <= load.Messages {
		t.Errorf("only %d deliveries of %d messages: nothing was ever delivered again", report.Deliveries, load.Messages)
	}
}

func (l Load) withDefaults(b Backend) Load {
	setDefault := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	setDefault(&l.Producers, 32)
	setDefault(&l.Consumers, 32)
	if b.Virtual {
		setDefault(&l.Messages, 10_000)
	}
	setDefault(&l.Messages, 1_000)
	if l.Seed == 0 {
		l.Seed = rand.Uint64()
	}
	return l
}

func saveHistory(path string, h history.History) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(h.Write(file), file.Close())
}

// A crowd is the producers and consumers of one queue.
type crowd struct {
	t        *testing.T
	backend  Backend
	load     Load
	recorder *history.Recorder
	unit     time.Duration // a short visibility
	sent     atomic.Bool   // the producers are done
	receives atomic.Int64

	mu     sync.RWMutex // guards the fields below
	opener driver.Opener
	queue  driver.Queue

	final history.FinalState
	terms history.Terms
}

const crowdQueueName = "crowd"

// hopeless reports that consumers have tried far too often, and then fails the test: messages
// do not come, or come back without end.
func (c *crowd) hopeless() bool {
	limit := int64(100*c.load.Messages + 10_000)
	tries := c.receives.Add(1)
	if tries == limit {
		c.t.Errorf("after %d receives there is no end in sight", tries)
	}
	return tries >= limit
}

func newCrowd(t *testing.T, b Backend, load Load) *crowd {
	c := &crowd{t: t, backend: b, load: load, recorder: history.NewRecorder(""), unit: time.Second}
	if !b.Virtual {
		c.unit = max(b.Tick, 200*time.Millisecond)
		c.terms.Tolerance = 20 * time.Millisecond
	}
	c.opener = b.Open(t)
	if admin, ok := c.opener.(driver.Admin); ok {
		if err := admin.ConfigureQueue(t.Context(), crowdQueueName, complete(load.Config)); err != nil {
			t.Fatalf("%v: %v", createOperation{load.Config}, err)
		}
	} else if load.Config != (driver.Config{}) {
		t.Fatalf("the backend has no Admin to configure: %v", createOperation{load.Config})
	}
	c.reopen()
	c.terms.Config, c.terms.Traits = load.Config, c.queue.Traits()
	return c
}

func (c *crowd) reopen() {
	queue, err := c.opener.OpenQueue(c.t.Context(), crowdQueueName)
	if err != nil {
		c.t.Errorf("open: %v", err)
		return
	}
	c.queue = c.recorder.Queue(queue)
}

// handle returns the current handle of the queue.
func (c *crowd) handle() driver.Queue {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.queue
}

// run starts all goroutines and returns when every sent message has been settled.
func (c *crowd) run() {
	var producers, consumers, others sync.WaitGroup
	done, stop := context.WithCancel(c.t.Context())
	for i := range c.load.Producers {
		producers.Go(func() { c.newMember(i).produce(i) })
	}
	for i := range c.load.Consumers {
		consumers.Go(func() { c.newMember(c.load.Producers + i).consume() })
	}
	others.Go(func() { c.newMember(-1).operate(done) })
	others.Go(func() { c.crash(done) })
	producers.Wait()
	c.sent.Store(true)
	consumers.Wait()
	stop()
	others.Wait()

	var err error
	if c.final, err = history.Observe(c.t.Context(), c.handle()); err != nil {
		c.t.Errorf("observe the end: %v", err)
	}
	if err := c.handle().Close(); err != nil {
		c.t.Errorf("close: %v", err)
	}
	closeOpener(c.t, c.opener)
}

// crash restarts the backend now and then while all goroutines run.
func (c *crowd) crash(done context.Context) {
	crashes := c.backend.Crashes
	if crashes == nil {
		crashes = []Crash{CrashClean}
	}
	for i := range c.load.Restarts {
		if backoff.Pause(done, 3*c.unit) != nil {
			return
		}
		c.recorder.Crash(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if opener := c.backend.Restart(c.t, c.opener, crashes[i%len(crashes)]); opener != c.opener {
				c.opener = opener
				c.reopen()
			}
		})
	}
}

// A member is one goroutine of a crowd, with its own random choices.
type member struct {
	*crowd
	rand *rand.Rand
}

func (c *crowd) newMember(number int) *member {
	return &member{crowd: c, rand: rand.New(rand.NewPCG(c.load.Seed, uint64(number)))}
}

// chance is true once in n times.
func (m *member) chance(n int) bool { return m.rand.IntN(n) == 0 }

// upTo returns a random duration up to most units, often a whole number of them, so that many
// leases and delays end together.
func (m *member) upTo(most int) time.Duration {
	if m.chance(2) {
		return time.Duration(m.rand.IntN(most+1)) * m.unit
	}
	return time.Duration(m.rand.Int64N(int64(most)*int64(m.unit) + 1))
}

// impatient returns a context that may end at any moment.
func (m *member) impatient() (context.Context, context.CancelFunc) {
	if !m.chance(8) {
		return m.t.Context(), func() {}
	}
	return context.WithTimeout(m.t.Context(), m.upTo(1))
}

// expected fails the test for errors that the run cannot explain.
func (m *member) expected(what string, err error) {
	for _, code := range []driver.Code{
		driver.ErrFull, driver.ErrConflict, driver.ErrReceiptExpired, driver.ErrUnavailable,
	} {
		if errors.Is(err, code) {
			return
		}
	}
	cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	closed := errors.Is(err, driver.ErrClosed) && m.load.Restarts > 0
	if err != nil && !cancelled && !closed {
		m.t.Errorf("%s: %v", what, err)
	}
}

// produce sends the messages of one producer.
func (m *member) produce(number int) {
	share := m.load.Messages / m.load.Producers
	for next := 0; next < share; {
		batch := make([]driver.Outgoing, min(share-next, 1+m.rand.IntN(8)))
		for i := range batch {
			batch[i] = m.message(fmt.Sprintf("p%d-%d", number, next+i))
		}
		next += len(batch)
		m.send(batch)
		if m.chance(8) { // a client that did not get the answer
			m.send(batch[:1+m.rand.IntN(len(batch))])
		}
		if m.chance(32) {
			batch[0].Body = []byte("another body")
			m.send(batch[:1])
		}
		if m.chance(8) {
			_ = backoff.Pause(m.t.Context(), m.upTo(1))
		}
	}
}

func (m *member) message(body string) driver.Outgoing {
	msg := driver.Outgoing{Body: []byte(body)}
	traits := m.terms.Traits
	if traits.DedupWindow > 0 && m.chance(2) {
		msg.DedupKey = "key of " + body
	}
	if traits.Groups {
		msg.Group = fmt.Sprintf("group %d", m.rand.IntN(16))
	}
	if m.chance(8) {
		msg.Delay = m.upTo(2)
	}
	return msg
}

// send sends a batch, and repeats the messages for which there was no room.
func (m *member) send(batch []driver.Outgoing) {
	for len(batch) > 0 {
		ctx, cancel := m.impatient()
		_, err := m.handle().Send(ctx, batch)
		cancel()
		m.expected("send", err)
		var refused []driver.Outgoing
		for i, msg := range batch {
			if failed := driver.At(err, i); errors.Is(failed, driver.ErrFull) || errors.Is(failed, driver.ErrClosed) {
				refused = append(refused, msg)
			}
		}
		if batch = refused; len(batch) > 0 {
			_ = backoff.Pause(m.t.Context(), m.unit)
		}
	}
}
