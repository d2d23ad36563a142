package completion_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
)

// A pollQueue is a backend whose receives wait for messages of the test.
type pollQueue struct {
	*fakeQueue
	answers chan pollAnswer
	closed  chan struct{}
	// late: a receive that is cancelled returns these messages.
	late []driver.Delivery

	requests []driver.ReceiveRequest // of all calls, guarded by fakeQueue.mu
	calls    int                     // under way, likewise
}

// pollAnswer is what a receive returns.
type pollAnswer struct {
	got []driver.Delivery
	err error
}

var errClosed = &driver.Error{Code: driver.ErrClosed}

func newPollQueue() *pollQueue {
	return &pollQueue{fakeQueue: newFakeQueue(10), answers: make(chan pollAnswer), closed: make(chan struct{})}
}

func (q *pollQueue) Close() error {
	close(q.closed)
	return nil
}

func (q *pollQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.mu.Lock()
	q.requests = append(q.requests, req)
	q.calls++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		q.calls--
		q.mu.Unlock()
	}()
	timer := time.NewTimer(req.Wait)
	defer timer.Stop()
	select {
	case a := <-q.answers:
		return a.got, a.err
	case <-timer.C:
		return nil, nil
	case <-q.closed:
		return nil, errClosed
	case <-ctx.Done():
	}
	if late := q.late; len(late) > 0 {
		q.late = nil
		return late, nil
	}
	return nil, ctx.Err()
}

// answer lets one of the calls under way return.
func (q *pollQueue) answer(err error, bodies ...string) {
	synctest.Wait()
	q.answers <- pollAnswer{deliveriesOf(bodies...), err}
	synctest.Wait()
}

// expectCalls expects the Max of all calls so far, and how many of them are under way.
func (q *pollQueue) expectCalls(t *testing.T, underWay int, most ...int) {
	t.Helper()
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	var got []int
	for _, req := range q.requests {
		got = append(got, req.Max)
	}
	if !slices.Equal(got, most) || q.calls != underWay {
		t.Fatalf("calls asked for %d messages, and %d are under way; want %d and %d", got, q.calls, most, underWay)
	}
}

func deliveriesOf(bodies ...string) []driver.Delivery {
	deliveries := make([]driver.Delivery, len(bodies))
	for i, body := range bodies {
		deliveries[i].Body = []byte(body)
	}
	return deliveries
}

// pollReceive is a receive of a test, and what became of it.
type pollReceive struct {
	waiting completion.Waiting
	began   time.Time
	got     []string
	err     error
	took    time.Duration
	ends    int // how often it was completed
}

func startReceive(q completion.Queue, req driver.ReceiveRequest) *pollReceive {
	r := &pollReceive{began: time.Now()}
	r.waiting = q.StartReceive(new(completion.Round), req, r)
	synctest.Wait()
	return r
}

func (r *pollReceive) Received(_ *completion.Round, got []driver.Delivery, err error) {
	for i := range got {
		r.got = append(r.got, string(got[i].Body))
	}
	r.err, r.took = err, time.Since(r.began)
	r.ends++
}

func (r *pollReceive) expect(t *testing.T, err error, bodies ...string) {
	t.Helper()
	synctest.Wait()
	if r.ends != 1 || !slices.Equal(r.got, bodies) || !errors.Is(r.err, err) {
		t.Errorf("completed %d times with %q, %v; want %q, %v", r.ends, r.got, r.err, bodies, err)
	}
}

func (r *pollReceive) expectWaits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if r.ends != 0 {
		t.Errorf("completed with %q, %v; want that it waits", r.got, r.err)
	}
}

// inPoll runs a test with a queue whose receives wait for the backend.
func inPoll(t *testing.T, test func(t *testing.T, backend *pollQueue, q completion.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		backend := newPollQueue()
		test(t, backend, newQueue(t, backend))
	})
}

func waitingFor(most int) driver.ReceiveRequest {
	return driver.ReceiveRequest{Max: most, Visibility: time.Minute, Wait: time.Hour}
}

func TestReceivesThatWaitShareCalls(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		first := startReceive(q, waitingFor(1))
		second, third, fourth := startReceive(q, waitingFor(1)), startReceive(q, waitingFor(3)), startReceive(q, waitingFor(1))
		backend.expectCalls(t, 1, 1)
		backend.answer(nil, "a")
		first.expect(t, nil, "a")
		backend.expectCalls(t, 1, 1, 5)
		backend.answer(nil, "b", "c", "d")
		second.expect(t, nil, "b")
		third.expect(t, nil, "c", "d") // it does not wait for more
		fourth.expectWaits(t)
		backend.expectCalls(t, 1, 1, 5, 1)
		backend.answer(nil, "e")
		fourth.expect(t, nil, "e")
		backend.expectCalls(t, 0, 1, 5, 1) // no receive waits
	})
}

func TestReceivesOfOneCallShareARound(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		c := &conn{hold: make(chan struct{})}
		close(c.hold)
		for range 4 {
			q.StartReceive(new(completion.Round), waitingFor(1), c)
			synctest.Wait()
		}
		backend.answer(nil, "a")
		backend.answer(nil, "b", "c", "d")
		if want := []string{"received", "flushed", "received", "received", "received", "flushed"}; !slices.Equal(c.events, want) {
			t.Errorf("got %q, want %q", c.events, want)
		}
	})
}

func TestSharedReceivesEndWithTheirOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newPollQueue()
		q := newQueue(t, backend)
		var receives []*pollReceive
		for _, seconds := range []int{3, 5, 3, 9, 1} {
			req := waitingFor(1)
			req.Wait = time.Duration(seconds) * time.Second
			receives = append(receives, startReceive(q, req))
		}
		backend.expectCalls(t, 2, 1, 1) // the last one waits for less than the first call
		time.Sleep(2 * time.Second)
		receives[4].expect(t, nil)
		backend.expectCalls(t, 1, 1, 1)
		time.Sleep(2 * time.Second)
		backend.expectCalls(t, 1, 1, 1, 3, 2) // the third has joined a call that waited as long as it
		time.Sleep(10 * time.Second)
		backend.expectCalls(t, 0, 1, 1, 3, 2, 1)
		for i, want := range []int{3, 5, 3, 9, 1} {
			receives[i].expect(t, nil)
			if took := receives[i].took; took != time.Duration(want)*time.Second {
				t.Errorf("receive %d took %v, want %d s", i, took, want)
			}
		}
	})
}

func TestCancelledReceiveLeavesThoseItSharesWith(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		first, second, third := startReceive(q, waitingFor(1)), startReceive(q, waitingFor(2)), startReceive(q, waitingFor(3))
		third.waiting.Cancel() // it is not in the call
		third.expect(t, context.Canceled)
		backend.expectCalls(t, 1, 1)
		first.waiting.Cancel()
		first.waiting.Cancel()
		first.expect(t, context.Canceled)
		backend.expectCalls(t, 1, 1, 2)
		backend.answer(nil, "a")
		second.expect(t, nil, "a")
		second.waiting.Cancel()
		third.waiting.Cancel()
		second.expect(t, nil, "a")
		third.expect(t, context.Canceled)
	})
}

func TestMessagesOfACancelledCallAreNotLost(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		first, second, third := startReceive(q, waitingFor(1)), startReceive(q, waitingFor(1)), startReceive(q, waitingFor(1))
		backend.late = deliveriesOf("a")
		first.waiting.Cancel()
		first.expect(t, nil, "a") // it was alone in its call
		backend.expectCalls(t, 1, 1, 2)
		backend.late = deliveriesOf("b")
		second.waiting.Cancel()
		second.expect(t, context.Canceled)
		third.expect(t, nil, "b") // it still waits, so it is first
		fourth, fifth := startReceive(q, waitingFor(1)), startReceive(q, waitingFor(2))
		backend.answer(nil, "c")
		fourth.expect(t, nil, "c")
		backend.late = deliveriesOf("d", "e")
		fifth.waiting.Cancel()
		fifth.expect(t, nil, "d", "e")
		backend.expectCalls(t, 0, 1, 2, 1, 2)
	})
}

func TestCloseEndsAllReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := completion.Of(newPollQueue())
		receives := []*pollReceive{startReceive(q, waitingFor(1)), startReceive(q, waitingFor(1)), startReceive(q, waitingFor(10))}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		receives = append(receives, startReceive(q, waitingFor(1)))
		for _, r := range receives {
			r.expect(t, errClosed)
		}
	})
}

func TestReceivesThatDifferShareNoCall(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		startReceive(q, waitingFor(1))
		shorter := waitingFor(2)
		shorter.Visibility = time.Second
		startReceive(q, shorter)
		startReceive(q, waitingFor(10)) // more than is left of a batch
		noWait := startReceive(q, driver.ReceiveRequest{Max: 4, Visibility: time.Minute})
		noWait.expect(t, nil)
		backend.expectCalls(t, 3, 1, 2, 10, 4)
		startReceive(q, waitingFor(100)) // as many as a batch allows
		backend.expectCalls(t, 4, 1, 2, 10, 4, 10)
		small := waitingFor(2)
		small.MaxBytes = 100
		startReceive(q, small) // others would get few messages with it
		backend.expectCalls(t, 5, 1, 2, 10, 4, 10, 2)
		startReceive(q, waitingFor(0)) // the backend refuses it
		backend.expectCalls(t, 6, 1, 2, 10, 4, 10, 2, 0)
	})
}

func TestReceivesOfStrictQueuesShareNoCall(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		backend.traits.StrictGroups = true
		first, second := startReceive(q, waitingFor(1)), startReceive(q, waitingFor(3))
		backend.expectCalls(t, 2, 1, 3)
		first.waiting.Cancel()
		first.expect(t, context.Canceled)
		backend.answer(nil, "a", "b")
		second.expect(t, nil, "a", "b")
	})
}

func TestCallBringsNoMoreBytesThanReceivesMayHave(t *testing.T) {
	const kibi = 1 << 10
	for _, c := range []struct {
		most, bytes []int
		together    int // of all but the first
	}{
		{most: []int{1, 1, 1}, bytes: []int{7, 5, 6}, together: 0}, // each gets one message
		{most: []int{1, 1, 2}, bytes: []int{7, 5, 90 * kibi}, together: 90 * kibi},
		{most: []int{1, 3, 2}, bytes: []int{7, 80 * kibi, 90 * kibi}, together: 80 * kibi},
		{most: []int{1, 3, 2}, bytes: []int{7, 0, 90 * kibi}, together: 90 * kibi},
		{most: []int{1, 3, 2}, bytes: []int{7, 0, 0}, together: 0},
	} {
		inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
			for i := range c.most {
				req := waitingFor(c.most[i])
				req.MaxBytes = c.bytes[i]
				startReceive(q, req)
			}
			backend.answer(nil, "a")
			backend.expectCalls(t, 1, c.most[0], c.most[1]+c.most[2])
			if got := backend.requests[1].MaxBytes; got != c.together {
				t.Errorf("receives of %d messages and %d bytes: a call of the last two may bring %d bytes, want %d", c.most, c.bytes, got, c.together)
			}
		})
	}
}

func TestFailedCallEndsTheReceivesInIt(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		down := &driver.Error{Code: driver.ErrUnavailable}
		first, second, third := startReceive(q, waitingFor(1)), startReceive(q, waitingFor(2)), startReceive(q, waitingFor(3))
		backend.answer(down)
		first.expect(t, down)
		second.expectWaits(t)
		backend.expectCalls(t, 1, 1, 5)
		backend.answer(down)
		second.expect(t, down)
		third.expect(t, down)
		backend.expectCalls(t, 0, 1, 5)
	})
}

func TestInFlightLimitEndsReceivesAfterTheirWait(t *testing.T) {
	inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
		full := &driver.Error{Code: driver.ErrFull}
		startReceive(q, waitingFor(1))
		short, long := waitingFor(2), waitingFor(3)
		short.Wait, long.Wait = time.Hour+time.Second, time.Hour+time.Minute
		second, third := startReceive(q, short), startReceive(q, long)
		backend.answer(nil, "a")
		backend.expectCalls(t, 1, 1, 5)
		backend.answer(full) // at the end of the wait that was asked for
		second.expect(t, full)
		third.expectWaits(t)
		backend.expectCalls(t, 1, 1, 5, 3)
	})
}

// A storeQueue is a backend that holds messages.
type storeQueue struct {
	*fakeQueue
	random func(n int) int

	mu    sync.Mutex // guards the fields below
	ready []string
	sent  map[string]bool
	added chan struct{} // closed when messages are added
}

func (q *storeQueue) add(bodies ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = append(q.ready, bodies...)
	for _, body := range bodies {
		q.sent[body] = true
	}
	close(q.added)
	q.added = make(chan struct{})
}

func (q *storeQueue) take(most int) (got []driver.Delivery, added <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.ready))
	got, q.ready = deliveriesOf(q.ready[:n]...), q.ready[n:]
	return got, q.added
}

func (q *storeQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	timer := time.NewTimer(req.Wait)
	defer timer.Stop()
	for {
		got, added := q.take(req.Max)
		if len(got) > 0 {
			return got, nil
		}
		select {
		case <-added:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			<-time.After(time.Duration(q.random(3)) * time.Second) // a slow server
			if got, _ := q.take(req.Max); len(got) > 0 {
				return got, nil
			}
			return nil, ctx.Err()
		}
	}
}

// TestRandomReceivesLoseNoMessage sends, receives and cancels at random times. Each message
// reaches one receive or stays in the queue, each receive ends once, and none gets more than
// it may have.
func TestRandomReceivesLoseNoMessage(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			source := rand.New(rand.NewPCG(seed, 0))
			random := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return source.IntN(n)
			}
			backend := &storeQueue{fakeQueue: newFakeQueue(10), random: random, sent: map[string]bool{}, added: make(chan struct{})}
			q := newQueue(t, backend)
			const operations = 100
			receives := make([]*pollReceive, operations)
			most := make([]int, operations)
			var all sync.WaitGroup
			for i := range operations {
				all.Go(func() {
					time.Sleep(time.Duration(random(20_000)) * time.Millisecond)
					for n := range random(4) {
						backend.add(fmt.Sprint(i, " ", n))
					}
				})
				all.Go(func() {
					time.Sleep(time.Duration(random(20)) * time.Second)
					req := waitingFor(1 + random(4))
					req.Wait, req.Visibility = time.Duration(1+random(10))*time.Second, time.Duration(random(2))*time.Second
					r := &pollReceive{}
					receives[i], most[i] = r, req.Max
					waiting := q.StartReceive(new(completion.Round), req, r)
					time.Sleep(time.Duration(random(20)) * time.Second)
					waiting.Cancel()
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			places := map[string]int{}
			for i, r := range receives {
				if r.ends != 1 || len(r.got) > most[i] {
					t.Errorf("seed %d: receive %d ended %d times, with %d messages; want once, with at most %d", seed, i, r.ends, len(r.got), most[i])
				}
				for _, body := range r.got {
					places[body]++
				}
			}
			for _, body := range backend.ready {
				places[body]++
			}
			for body := range backend.sent {
				if places[body] != 1 {
					t.Errorf("seed %d: message %q is in %d places, want 1", seed, body, places[body])
				}
			}
		})
	}
}

// TestInvalidReceivesReachTheBackendAsTheyAre leaves the refusal of a request to the backend.
func TestInvalidReceivesReachTheBackendAsTheyAre(t *testing.T) {
	for _, req := range []driver.ReceiveRequest{
		{Max: 0, Visibility: time.Minute},
		{Max: 2, MaxBytes: -1, Visibility: time.Minute},
		{Max: 2, Visibility: -time.Minute, Wait: time.Second},
		{Max: 2, Visibility: time.Minute, Wait: -time.Second},
		{Max: 2, Visibility: time.Minute, Wait: time.Hour + 1},
	} {
		inPoll(t, func(t *testing.T, backend *pollQueue, q completion.Queue) {
			backend.traits.MaxWait = time.Hour
			startReceive(q, req)
			if got := backend.requests; len(got) != 1 || got[0] != req {
				t.Errorf("the backend was asked for %+v, want %+v", got, req)
			}
		})
	}
}
