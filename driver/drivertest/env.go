package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// promptness bounds how late our own backends may be (VIS-1). It is checked only where the
// clock is virtual.
const promptness = 50 * time.Millisecond

// An env is the environment of one case: a fresh backend, durations, and the methods that cases
// are written in.
type env struct {
	t       *testing.T
	rule    string
	backend Backend
	opener  driver.Opener

	// unit is what tick returns, and timed says that the case has called that. Cases of claims that
	// hold however slow the machine is use unit: their failures count at once.
	unit  time.Duration
	timed atomic.Bool
	// hold is a delay or visibility that does not end during a case.
	hold time.Duration
	// patience is how long to wait for an event that should happen at once before the case
	// fails.
	patience time.Duration
	// slack bounds the drift between the backend's clock and ours during a case.
	slack time.Duration

	// ahead is how far the wall clock of the backend is ahead of ours, in nanoseconds.
	ahead atomic.Int64

	// running are the goroutines that a case has started. A bubble must not end before they
	// have.
	running sync.WaitGroup

	// began is when the case began, and planned how long it has slept since.
	began   time.Time
	planned time.Duration
	// On the real clock: mayRepeat says that the case can be repeated, and inconclusive why it must
	// be.
	mayRepeat    bool
	inconclusive string

	closing sync.Once
}

type closer interface{ Close() error }

// queueName is the queue under test.
const queueName = "orders"

func newEnv(t *testing.T, b Backend, c testCase) *env {
	e := newPlainEnv(t, b, c.id)
	t.Cleanup(e.running.Wait)
	if c.setsClock && b.OpenWithClock != nil {
		e.opener = b.OpenWithClock(t, e.wall)
	} else {
		e.opener = b.Open(t)
	}
	t.Cleanup(e.close)
	e.began = time.Now()
	return e
}

// newPlainEnv returns an environment without an opener.
func newPlainEnv(t *testing.T, b Backend, rule string) *env {
	e := &env{t: t, rule: rule, backend: b, hold: 10 * time.Minute, began: time.Now()}
	if b.Virtual {
		e.unit, e.patience = 10*time.Second, time.Minute
	} else {
		e.unit, e.patience, e.slack = cmp.Or(b.Tick, 200*time.Millisecond), 15*time.Second, 5*time.Millisecond
	}
	return e
}

// wall is the wall clock of the backend in cases that set it.
func (e *env) wall() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }

// setWall sets the wall clock of the backend this far ahead of ours.
func (e *env) setWall(ahead time.Duration) { e.ahead.Store(int64(ahead)) }

// tick returns a duration that a case lets pass: long enough to differ from zero, short enough to
// wait for.
func (e *env) tick() time.Duration {
	e.timed.Store(true)
	return e.unit
}

// close closes the opener and waits for the goroutines of the case.
func (e *env) close() {
	e.closing.Do(func() {
		if opener, ok := e.opener.(closer); ok {
			if err := opener.Close(); err != nil {
				e.t.Errorf("%s: closing the opener: %v", e.rule, err)
			}
		}
		e.running.Wait()
	})
}

// prepare opens the queue under test. If the backend does not support this configuration, it
// checks the refusal and returns nil.
func (e *env) prepare(config func(*env) driver.Config) driver.Queue {
	e.t.Helper()
	if config == nil {
		return e.open(queueName)
	}
	admin, ok := e.opener.(driver.Admin)
	if !ok {
		e.t.Log("the opener does not implement Admin: its queues cannot be configured")
		return nil
	}
	wanted := complete(config(e))
	err := admin.ConfigureQueue(e.ctx(), queueName, wanted)
	if !errors.Is(err, driver.ErrUnsupported) {
		e.ok(err, "configure %+v", wanted)
		return e.open(queueName)
	}
	if detail, ok := errors.AsType[*driver.Error](err); !ok || detail.Field == "" {
		e.failf("configure: ErrUnsupported does not name the setting: %v", err)
	}
	if got, err := admin.QueueConfig(e.ctx(), queueName); err == nil && got == wanted {
		e.failf("configure: ErrUnsupported, but QueueConfig returns it: %+v", got)
	}
	e.t.Logf("the backend refuses this configuration: %v", err)
	return nil
}

// open opens a handle on a queue.
func (e *env) open(name string) driver.Queue {
	e.t.Helper()
	q, err := e.opener.OpenQueue(e.ctx(), name)
	e.ok(err, "open queue %q", name)
	return q
}

// complete turns off the settings that a configuration leaves unset, so that a case or program
// states its whole configuration. Only DedupWindow stays unset: without it there would be no
// dedup keys.
func complete(config driver.Config) driver.Config {
	window := config.DedupWindow
	if config.DedupMax == 0 {
		config.DedupMax = driver.Off
	}
	if config.PriorityAging == 0 {
		config.PriorityAging = driver.Off
	}
	config = config.Effective()
	config.DedupWindow = window
	return config
}

// configure creates or changes another queue. Settings that config leaves unset are off.
func (e *env) configure(name string, config driver.Config) driver.Queue {
	e.t.Helper()
	config = complete(config)
	e.ok(e.opener.(driver.Admin).ConfigureQueue(e.ctx(), name, config), "configure queue %q with %+v", name, config)
	return e.open(name)
}

// restart restarts the backend and opens the queue again.
func (e *env) restart(how Crash) driver.Queue {
	e.t.Helper()
	e.opener = e.backend.Restart(e.t, e.opener, how)
	return e.open(queueName)
}

func (e *env) ctx() context.Context { return e.t.Context() }

// sleep lets d pass on all clocks.
func (e *env) sleep(d time.Duration) { e.rest(d + e.slack) }

// rest lets d pass on the clock of this process.
func (e *env) rest(d time.Duration) {
	e.planned += max(d, 0)
	time.Sleep(d)
}

// nap sleeps between two checks of a state that changes when due: in small steps close to it,
// not past it, and in large ones when the change is too late.
func (e *env) nap(due time.Time) {
	step := max(time.Until(due)-time.Millisecond, time.Millisecond)
	if time.Since(due) > promptness {
		step = e.unit
	}
	e.sleep(min(step, e.unit/4))
}

// settle lets goroutines come to rest. In virtual time it is exact; in real time it only makes
// the intended order likely, and no case depends on it.
func (e *env) settle() {
	if e.backend.Virtual {
		synctest.Wait()
	} else {
		e.rest(e.unit / 4)
	}
}

// rounds returns how often to try for a race: often where a round costs no time.
func (e *env) rounds(virtual, realTime int) int {
	if e.backend.Virtual {
		return volume.Within(e.t, virtual)
	}
	return realTime
}

// send sends bodies in order and returns the ids.
func (e *env) send(q driver.Queue, bodies ...string) []string {
	e.t.Helper()
	var ids []string
	for chunk := range slices.Chunk(bodies, q.Traits().MaxBatch) {
		msgs := make([]driver.Outgoing, len(chunk))
		for i, body := range chunk {
			msgs[i].Body = []byte(body)
		}
		sent, err := q.Send(e.ctx(), msgs)
		e.ok(err, "send %q", chunk)
		if len(sent) != len(msgs) {
			e.failf("send of %d messages: got %d results", len(msgs), len(sent))
		}
		for _, result := range sent {
			ids = append(ids, result.ID)
		}
	}
	return ids
}

// sendOne sends one message.
func (e *env) sendOne(q driver.Queue, msg driver.Outgoing) driver.Sent {
	e.t.Helper()
	sent, err := q.Send(e.ctx(), []driver.Outgoing{msg})
	e.ok(err, "send %q", brief(msg.Body))
	if len(sent) != 1 {
		e.failf("send of 1 message: got %d results", len(sent))
	}
	return sent[0]
}

// sendLater sends one body with a delay.
func (e *env) sendLater(q driver.Queue, delay time.Duration, body string) string {
	e.t.Helper()
	return e.sendOne(q, driver.Outgoing{Body: []byte(body), Delay: delay}).ID
}

// sendTo sends bodies to a group.
func (e *env) sendTo(q driver.Queue, group string, bodies ...string) {
	e.t.Helper()
	for _, body := range bodies {
		e.sendOne(q, driver.Outgoing{Body: []byte(body), Group: group})
	}
}

// receive leases n messages that are ready now.
func (e *env) receive(q driver.Queue, n int) []driver.Delivery {
	e.t.Helper()
	return e.receiveFor(q, n, e.hold)
}

// receiveFor leases n messages that are ready now, for a visibility.
func (e *env) receiveFor(q driver.Queue, n int, visibility time.Duration) []driver.Delivery {
	e.t.Helper()
	start := time.Now()
	got := e.take(q, n, visibility, start)
	if len(got) != n {
		e.failf("receive: got %d messages %q, want %d", len(got), bodies(got), n)
	}
	e.expectPrompt(start, "receive of ready messages")
	return got
}

// take receives until it has n messages, which are due, or its patience has ended.
func (e *env) take(q driver.Queue, n int, visibility time.Duration, due time.Time) []driver.Delivery {
	e.t.Helper()
	start := time.Now()
	defer func() { e.planned += min(time.Since(start), max(due.Sub(start), 0)) }()
	var got []driver.Delivery
	for len(got) < n {
		wait := max(time.Until(due)+e.patience, 0)
		batch, err := e.poll(q, driver.ReceiveRequest{Max: n - len(got), Visibility: visibility, Wait: e.waitUpTo(q, wait)})
		e.ok(err, "receive")
		if len(batch) == 0 && wait == 0 {
			break
		}
		got = append(got, batch...)
	}
	return got
}

// poll is a receive for loops, from any goroutine. It returns an error if the backend returns
// too many messages, or ends its wait early: a loop would never end.
func (e *env) poll(q driver.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	start := time.Now()
	got, err := q.Receive(e.ctx(), req)
	took := time.Since(start)
	switch {
	case err != nil:
		return nil, fmt.Errorf("receive: %w", err)
	case len(got) > req.Max:
		return nil, fmt.Errorf("receive with Max %d: got %d messages", req.Max, len(got))
	case len(got) == 0 && took < req.Wait-e.slack:
		return nil, fmt.Errorf("receive: empty after %v, want a wait of %v", took, req.Wait)
	}
	return got, nil
}

// receiveOnce calls Receive once, without waiting.
func (e *env) receiveOnce(q driver.Queue, req driver.ReceiveRequest) []driver.Delivery {
	e.t.Helper()
	got, err := q.Receive(e.ctx(), req)
	e.ok(err, "receive %+v", req)
	return got
}

// waitUpTo returns d or the longest wait that the queue allows.
func (e *env) waitUpTo(q driver.Queue, d time.Duration) time.Duration {
	if longest := q.Traits().MaxWait; longest > 0 {
		return min(d, longest)
	}
	return d
}

func (e *env) ack(q driver.Queue, deliveries ...driver.Delivery) {
	e.t.Helper()
	for chunk := range slices.Chunk(receipts(deliveries), q.Traits().MaxBatch) {
		e.ok(q.Ack(e.ctx(), chunk), "ack")
	}
}

func (e *env) nack(q driver.Queue, d driver.Delivery, delay time.Duration, cause string) {
	e.t.Helper()
	e.ok(tryNack(e, q, d, delay, cause), "nack %q", brief(d.Body))
}

func (e *env) extend(q driver.Queue, d driver.Delivery, visibility time.Duration) {
	e.t.Helper()
	e.ok(tryExtend(e, q, d, visibility), "extend %q by %v", brief(d.Body), visibility)
}

// extended returns the error of an extension.
func extended(_ []time.Duration, err error) error { return err }

// expire ends leases at once, as their deadline would.
func (e *env) expire(q driver.Queue, deliveries ...driver.Delivery) {
	e.t.Helper()
	for _, d := range deliveries {
		e.extend(q, d, 0)
	}
}

// The try functions settle one delivery and return the error.

func tryAck(e *env, q driver.Queue, d driver.Delivery) error {
	return q.Ack(e.ctx(), []driver.Receipt{d.Receipt})
}

func tryNack(e *env, q driver.Queue, d driver.Delivery, delay time.Duration, cause string) error {
	return q.Nack(e.ctx(), []driver.Nack{{Receipt: d.Receipt, Delay: delay, Cause: cause}})
}

func tryExtend(e *env, q driver.Queue, d driver.Delivery, visibility time.Duration) error {
	return extended(q.Extend(e.ctx(), []driver.Extension{{Receipt: d.Receipt, Visibility: visibility}}))
}

// An outcome is the result of a background receive, and its time.
type outcome struct {
	deliveries []driver.Delivery
	err        error
	at         time.Time
}

// receiveInBackground starts a receive with the longest wait, and returns when it is waiting.
func (e *env) receiveInBackground(ctx context.Context, q driver.Queue, n int) <-chan outcome {
	return e.waitInBackground(ctx, q, n, e.waitUpTo(q, 4*e.patience))
}

// waitInBackground starts a receive with a wait, and returns when it is waiting.
func (e *env) waitInBackground(ctx context.Context, q driver.Queue, n int, wait time.Duration) <-chan outcome {
	done := make(chan outcome, 1)
	e.running.Go(func() {
		deliveries, err := q.Receive(ctx, driver.ReceiveRequest{Max: n, Visibility: e.hold, Wait: wait})
		done <- outcome{deliveries, err, time.Now()}
	})
	e.settle()
	return done
}

// await returns the outcome of a background receive that should end now.
func (e *env) await(done <-chan outcome, why string) outcome {
	e.t.Helper()
	start := time.Now()
	select {
	case got := <-done:
		if e.backend.Virtual && got.at.Sub(start) > promptness {
			e.failf("%s: the waiting receiver took %v to notice, want at most %v", why, got.at.Sub(start), promptness)
		}
		return got
	case <-time.After(e.patience):
		e.failf("%s: the waiting receiver has not noticed after %v", why, e.patience)
		return outcome{}
	}
}

// parallel runs f in n goroutines at once and fails with their errors.
func (e *env) parallel(n int, f func(i int) error) {
	e.t.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		e.failf("%v", err)
	}
}

// expectUnblocked runs f, which must not block. A backend that makes it wait for a lock stops
// virtual time too, so the limit there is a number of yields instead of a time.
func (e *env) expectUnblocked(what string, f func() error) {
	e.t.Helper()
	var finished atomic.Bool
	done := make(chan error, 1)
	e.running.Go(func() {
		done <- f()
		finished.Store(true)
	})
	if e.backend.Virtual {
		for chances := 0; !finished.Load(); chances++ {
			if chances == 5_000_000 {
				e.failf("%s: is blocked", what)
			}
			runtime.Gosched()
		}
	}
	select {
	case err := <-done:
		e.ok(err, "%s", what)
	case <-time.After(e.patience):
		e.failf("%s: is blocked", what)
	}
}

func bodies(deliveries []driver.Delivery) []string {
	texts := make([]string, len(deliveries))
	for i, d := range deliveries {
		texts[i] = brief(d.Body)
	}
	return texts
}

func receipts(deliveries []driver.Delivery) []driver.Receipt {
	all := make([]driver.Receipt, len(deliveries))
	for i, d := range deliveries {
		all[i] = d.Receipt
	}
	return all
}

// brief shortens a body for messages.
func brief(body []byte) string {
	const enough = 40
	if len(body) > enough {
		return string(body[:enough]) + "…"
	}
	return string(body)
}
