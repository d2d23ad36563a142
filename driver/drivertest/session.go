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
)

// promptness is how late our own backends may be (VIS-1). It can be held to
// only where the clock is virtual.
const promptness = 50 * time.Millisecond

// A session is one case at work: a fresh backend, a few durations, and the
// words the cases are written in.
type session struct {
	t       *testing.T
	rule    string
	backend Backend
	opener  driver.Opener

	// tick is the duration to let pass: long enough to be told from nothing,
	// short enough to be waited for.
	tick time.Duration
	// hold is a delay or visibility that does not end during a case.
	hold time.Duration
	// patience is how long to wait for what ought to happen at once before
	// saying that it does not happen.
	patience time.Duration
	// slack is how far the backend's clock may run from ours during a case.
	slack time.Duration

	// running are the goroutines a case has started. A bubble must not end
	// before they have.
	running sync.WaitGroup
}

type closer interface{ Close() error }

// queueName is the queue under test.
const queueName = "orders"

func newSession(t *testing.T, b Backend, rule string) *session {
	s := &session{t: t, rule: rule, backend: b, hold: 10 * time.Minute}
	if b.Virtual {
		s.tick, s.patience = 10*time.Second, time.Minute
	} else {
		s.tick, s.patience, s.slack = cmp.Or(b.Tick, 200*time.Millisecond), 15*time.Second, 5*time.Millisecond
	}
	t.Cleanup(s.running.Wait)
	s.opener = b.Open(t)
	t.Cleanup(func() {
		if opener, ok := s.opener.(closer); ok {
			if err := opener.Close(); err != nil {
				s.t.Errorf("%s: closing the opener: %v", s.rule, err)
			}
		}
	})
	return s
}

// prepare opens the queue under test. It returns nil, having checked the
// refusal, if the backend cannot have a queue with this configuration.
func (s *session) prepare(config func(*session) driver.Config) driver.Queue {
	s.t.Helper()
	if config == nil {
		return s.open(queueName)
	}
	admin, ok := s.opener.(driver.Admin)
	if !ok {
		s.t.Log("the opener does not implement Admin, and so says that its queues cannot be configured")
		return nil
	}
	wanted := complete(config(s))
	err := admin.ConfigureQueue(s.ctx(), queueName, wanted)
	if !errors.Is(err, driver.ErrUnsupported) {
		s.ok(err, "configure %+v", wanted)
		return s.open(queueName)
	}
	if detail, ok := errors.AsType[*driver.Error](err); !ok || detail.Field == "" {
		s.failf("configure: ErrUnsupported does not name the setting: %v", err)
	}
	if got, err := admin.QueueConfig(s.ctx(), queueName); err == nil && got == wanted {
		s.failf("configure: ErrUnsupported, but QueueConfig says that it is in force: %+v", got)
	}
	s.t.Logf("the backend refuses this configuration: %v", err)
	return nil
}

// open opens a handle on a queue.
func (s *session) open(name string) driver.Queue {
	s.t.Helper()
	q, err := s.opener.OpenQueue(s.ctx(), name)
	s.ok(err, "open queue %q", name)
	return q
}

// complete turns off what a configuration leaves unset, so that a case or program
// states all that holds. Only DedupWindow stays unset: without it there would be no
// dedup keys.
func complete(config driver.Config) driver.Config {
	window := config.DedupWindow
	if config.DedupMax == 0 {
		config.DedupMax = driver.Off
	}
	config = config.Effective()
	config.DedupWindow = window
	return config
}

// configure sets up another queue, or changes one, which must work. What config
// leaves unset is off.
func (s *session) configure(name string, config driver.Config) driver.Queue {
	s.t.Helper()
	config = complete(config)
	s.ok(s.opener.(driver.Admin).ConfigureQueue(s.ctx(), name, config), "configure queue %q with %+v", name, config)
	return s.open(name)
}

// restart takes the backend down and up again, and opens the queue anew.
func (s *session) restart(how Crash) driver.Queue {
	s.t.Helper()
	s.opener = s.backend.Restart(s.t, s.opener, how)
	return s.open(queueName)
}

func (s *session) ctx() context.Context { return s.t.Context() }

// sleep lets d pass on every clock concerned.
func (s *session) sleep(d time.Duration) { time.Sleep(d + s.slack) }

// nap sleeps between two looks at something that changes when due: not past
// it, and in small steps around it.
func (s *session) nap(due time.Time) {
	s.sleep(min(max(time.Until(due)-time.Millisecond, time.Millisecond), s.tick/4))
}

// settle lets goroutines come to rest. In virtual time it is exact; in real
// time it only makes it likely that they do what the case is about, and no
// case depends on it.
func (s *session) settle() {
	if s.backend.Virtual {
		synctest.Wait()
	} else {
		time.Sleep(s.tick / 4)
	}
}

// rounds is how often to try for a race: often where a round costs no time.
func (s *session) rounds(virtual, realTime int) int {
	if s.backend.Virtual {
		return virtual
	}
	return realTime
}

// send sends bodies in order and returns the ids.
func (s *session) send(q driver.Queue, bodies ...string) []string {
	s.t.Helper()
	var ids []string
	for chunk := range slices.Chunk(bodies, q.Traits().MaxBatch) {
		msgs := make([]driver.Outgoing, len(chunk))
		for i, body := range chunk {
			msgs[i].Body = []byte(body)
		}
		sent, err := q.Send(s.ctx(), msgs)
		s.ok(err, "send %q", chunk)
		if len(sent) != len(msgs) {
			s.failf("send of %d messages: got %d results", len(msgs), len(sent))
		}
		for _, result := range sent {
			ids = append(ids, result.ID)
		}
	}
	return ids
}

// sendOne sends one message.
func (s *session) sendOne(q driver.Queue, msg driver.Outgoing) driver.Sent {
	s.t.Helper()
	sent, err := q.Send(s.ctx(), []driver.Outgoing{msg})
	s.ok(err, "send %q", brief(msg.Body))
	if len(sent) != 1 {
		s.failf("send of 1 message: got %d results", len(sent))
	}
	return sent[0]
}

// sendLater sends one body with a delay.
func (s *session) sendLater(q driver.Queue, delay time.Duration, body string) string {
	s.t.Helper()
	return s.sendOne(q, driver.Outgoing{Body: []byte(body), Delay: delay}).ID
}

// sendTo sends bodies to a group.
func (s *session) sendTo(q driver.Queue, group string, bodies ...string) {
	s.t.Helper()
	for _, body := range bodies {
		s.sendOne(q, driver.Outgoing{Body: []byte(body), Group: group})
	}
}

// receive leases n messages that are ready now.
func (s *session) receive(q driver.Queue, n int) []driver.Delivery {
	s.t.Helper()
	return s.receiveFor(q, n, s.hold)
}

// receiveFor leases n messages that are ready now, for a visibility.
func (s *session) receiveFor(q driver.Queue, n int, visibility time.Duration) []driver.Delivery {
	s.t.Helper()
	start := time.Now()
	got := s.take(q, n, visibility, start.Add(s.patience))
	if len(got) != n {
		s.failf("receive: got %d messages %q, want %d", len(got), bodies(got), n)
	}
	s.expectPrompt(start, "receive of ready messages")
	return got
}

// take receives until it has n messages or until has come.
func (s *session) take(q driver.Queue, n int, visibility time.Duration, until time.Time) []driver.Delivery {
	s.t.Helper()
	var got []driver.Delivery
	for len(got) < n {
		wait := max(time.Until(until), 0)
		batch, err := s.poll(q, driver.ReceiveRequest{Max: n - len(got), Visibility: visibility, Wait: s.waitUpTo(q, wait)})
		s.ok(err, "receive")
		if len(batch) == 0 && wait == 0 {
			break
		}
		got = append(got, batch...)
	}
	return got
}

// poll is a receive for loops, from any goroutine. It reports a backend that
// gives too much, or gives up before its time: a loop would run for ever on it.
func (s *session) poll(q driver.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	start := time.Now()
	got, err := q.Receive(s.ctx(), req)
	took := time.Since(start)
	switch {
	case err != nil:
		return nil, fmt.Errorf("receive: %w", err)
	case len(got) > req.Max:
		return nil, fmt.Errorf("receive with Max %d: got %d messages", req.Max, len(got))
	case len(got) == 0 && took < req.Wait-s.slack:
		return nil, fmt.Errorf("receive: empty after %v, but it was to wait for %v", took, req.Wait)
	}
	return got, nil
}

// receiveOnce is one call of Receive that does not wait.
func (s *session) receiveOnce(q driver.Queue, req driver.ReceiveRequest) []driver.Delivery {
	s.t.Helper()
	got, err := q.Receive(s.ctx(), req)
	s.ok(err, "receive %+v", req)
	return got
}

// waitUpTo is d or the longest wait that the queue allows.
func (s *session) waitUpTo(q driver.Queue, d time.Duration) time.Duration {
	if longest := q.Traits().MaxWait; longest > 0 {
		return min(d, longest)
	}
	return d
}

func (s *session) ack(q driver.Queue, deliveries ...driver.Delivery) {
	s.t.Helper()
	for chunk := range slices.Chunk(receipts(deliveries), q.Traits().MaxBatch) {
		s.ok(q.Ack(s.ctx(), chunk), "ack")
	}
}

func (s *session) nack(q driver.Queue, d driver.Delivery, delay time.Duration, cause string) {
	s.t.Helper()
	s.ok(tryNack(s, q, d, delay, cause), "nack %q", brief(d.Body))
}

func (s *session) extend(q driver.Queue, d driver.Delivery, visibility time.Duration) {
	s.t.Helper()
	s.ok(tryExtend(s, q, d, visibility), "extend %q by %v", brief(d.Body), visibility)
}

// extended is the error of an extension.
func extended(_ []time.Duration, err error) error { return err }

// expire ends leases as their deadline would, without the waiting.
func (s *session) expire(q driver.Queue, deliveries ...driver.Delivery) {
	s.t.Helper()
	for _, d := range deliveries {
		s.extend(q, d, 0)
	}
}

// The try functions settle one delivery and return what the backend said.

func tryAck(s *session, q driver.Queue, d driver.Delivery) error {
	return q.Ack(s.ctx(), []driver.Receipt{d.Receipt})
}

func tryNack(s *session, q driver.Queue, d driver.Delivery, delay time.Duration, cause string) error {
	return q.Nack(s.ctx(), []driver.Nack{{Receipt: d.Receipt, Delay: delay, Cause: cause}})
}

func tryExtend(s *session, q driver.Queue, d driver.Delivery, visibility time.Duration) error {
	return extended(q.Extend(s.ctx(), []driver.Extension{{Receipt: d.Receipt, Visibility: visibility}}))
}

// An outcome is what a receive in the background came to, and when.
type outcome struct {
	deliveries []driver.Delivery
	err        error
	at         time.Time
}

// receiveInBackground starts a receive that waits as long as it may, and
// returns when it is waiting.
func (s *session) receiveInBackground(ctx context.Context, q driver.Queue, n int) <-chan outcome {
	return s.waitInBackground(ctx, q, n, s.waitUpTo(q, 4*s.patience))
}

// waitInBackground starts a receive that waits for so long, and returns when
// it is waiting.
func (s *session) waitInBackground(ctx context.Context, q driver.Queue, n int, wait time.Duration) <-chan outcome {
	done := make(chan outcome, 1)
	s.running.Go(func() {
		deliveries, err := q.Receive(ctx, driver.ReceiveRequest{Max: n, Visibility: s.hold, Wait: wait})
		done <- outcome{deliveries, err, time.Now()}
	})
	s.settle()
	return done
}

// await returns the outcome of a background receive that ought to end now.
func (s *session) await(done <-chan outcome, why string) outcome {
	s.t.Helper()
	start := time.Now()
	select {
	case got := <-done:
		if s.backend.Virtual && got.at.Sub(start) > promptness {
			s.failf("%s: the waiting receiver took %v to notice, want at most %v", why, got.at.Sub(start), promptness)
		}
		return got
	case <-time.After(s.patience):
		s.failf("%s: the waiting receiver has not noticed after %v", why, s.patience)
		return outcome{}
	}
}

// parallel runs f in n goroutines at once and reports what they return.
func (s *session) parallel(n int, f func(i int) error) {
	s.t.Helper()
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
		s.failf("%v", err)
	}
}

// expectUnblocked runs f, which must not wait for anybody. A backend that lets
// it wait for a lock does not let virtual time pass either, so the limit there
// is a number of chances to run and not a time.
func (s *session) expectUnblocked(what string, f func() error) {
	s.t.Helper()
	var finished atomic.Bool
	done := make(chan error, 1)
	s.running.Go(func() {
		done <- f()
		finished.Store(true)
	})
	if s.backend.Virtual {
		for chances := 0; !finished.Load(); chances++ {
			if chances == 5_000_000 {
				s.failf("%s: is blocked", what)
			}
			runtime.Gosched()
		}
	}
	select {
	case err := <-done:
		s.ok(err, "%s", what)
	case <-time.After(s.patience):
		s.failf("%s: is blocked", what)
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

// brief is a body as a message for people may show it.
func brief(body []byte) string {
	const enough = 40
	if len(body) > enough {
		return string(body[:enough]) + "…"
	}
	return string(body)
}
