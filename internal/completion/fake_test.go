package completion_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
)

// A fakeQueue is a backend that blocks: each call waits until the test releases it.
type fakeQueue struct {
	driver.Unsupported
	traits driver.Traits
	// The results of calls. Nil means that every element succeeds.
	send   func([]driver.Outgoing) ([]driver.Sent, error)
	settle func(op string, receipts []driver.Receipt) error
	free   bool // calls do not block

	mu    sync.Mutex      // guards the fields below
	calls []string        // "send a b c", in the order in which they began
	held  []chan struct{} // of the calls under way; closed by their release
	most  int             // calls that were under way at the same time
}

func newFakeQueue(maxBatch int) *fakeQueue {
	return &fakeQueue{
		traits: driver.Traits{MaxBatch: maxBatch, MaxVisibility: time.Hour, Ordering: driver.OrderingFIFO, DeadLetters: true},
	}
}

// newQueue starts operations on a backend until the test ends.
func newQueue(t testing.TB, backend driver.Queue) completion.Queue {
	q := completion.Of(backend)
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func (f *fakeQueue) Traits() driver.Traits { return f.traits }

// enter records a call, and waits for its release.
func (f *fakeQueue) enter(op string, elements []string) {
	release := make(chan struct{})
	f.mu.Lock()
	f.calls = append(f.calls, strings.Join(append([]string{op}, elements...), " "))
	if !f.free {
		f.held = append(f.held, release)
		f.most = max(f.most, len(f.held))
	}
	f.mu.Unlock()
	if !f.free {
		<-release
	}
}

// release lets n calls return, the oldest first.
func (f *fakeQueue) release(t *testing.T, n int) {
	t.Helper()
	for range n {
		if !f.releaseOne(0) {
			t.Fatalf("no call is under way; calls so far: %q", f.calls)
		}
	}
}

// releaseOne lets one of the calls under way return, and reports whether there was one.
func (f *fakeQueue) releaseOne(which int) bool {
	synctest.Wait()
	f.mu.Lock()
	if len(f.held) == 0 {
		f.mu.Unlock()
		return false
	}
	which %= len(f.held)
	close(f.held[which])
	f.held = slices.Delete(f.held, which, which+1)
	f.mu.Unlock()
	synctest.Wait()
	return true
}

func (f *fakeQueue) expectCalls(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.calls, want) {
		t.Fatalf("calls:\n got %q\nwant %q", f.calls, want)
	}
}

func (f *fakeQueue) Send(_ context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	bodies := make([]string, len(msgs))
	for i := range msgs {
		bodies[i] = string(msgs[i].Body)
	}
	f.enter("send", bodies)
	if f.send != nil {
		return f.send(msgs)
	}
	return sentAs(bodies), nil
}

func sentAs(bodies []string) []driver.Sent {
	sent := make([]driver.Sent, len(bodies))
	for i, body := range bodies {
		sent[i].ID = "id-" + body
	}
	return sent
}

func (f *fakeQueue) settled(op string, receipts []driver.Receipt) error {
	handles := make([]string, len(receipts))
	for i, r := range receipts {
		handles[i] = r.Handle
	}
	f.enter(op, handles)
	if f.settle != nil {
		return f.settle(op, receipts)
	}
	return nil
}

func (f *fakeQueue) Ack(_ context.Context, receipts []driver.Receipt) error {
	return f.settled("ack", receipts)
}

func (f *fakeQueue) Nack(_ context.Context, nacks []driver.Nack) error {
	return f.settled("nack", receiptsOf(nacks, func(n driver.Nack) driver.Receipt { return n.Receipt }))
}

func (f *fakeQueue) DeadLetter(_ context.Context, requests []driver.DeadLetterRequest) error {
	return f.settled("dead-letter", receiptsOf(requests, func(r driver.DeadLetterRequest) driver.Receipt { return r.Receipt }))
}

func (f *fakeQueue) Extend(_ context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	err := f.settled("extend", receiptsOf(extensions, func(e driver.Extension) driver.Receipt { return e.Receipt }))
	return driver.GrantedAsAsked(extensions, err), err
}

func receiptsOf[E any](elements []E, receipt func(E) driver.Receipt) []driver.Receipt {
	receipts := make([]driver.Receipt, len(elements))
	for i, e := range elements {
		receipts[i] = receipt(e)
	}
	return receipts
}

// Receive waits for its context only.
func (f *fakeQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if req.Wait == 0 {
		return nil, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *fakeQueue) Purge(context.Context) (int, error)          { return 0, nil }
func (f *fakeQueue) Stats(context.Context) (driver.Stats, error) { return driver.Stats{}, nil }
func (f *fakeQueue) Close() error                                { return nil }

// outcomes collects the results of operations by number.
type outcomes struct {
	mu   sync.Mutex
	all  map[int]outcome
	next int
}

type outcome struct {
	results any
	err     error
}

func (o *outcomes) add() (record func(results any, err error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = make(map[int]outcome)
	}
	n := o.next
	o.next++
	return func(results any, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if _, twice := o.all[n]; twice {
			panic(fmt.Sprintf("operation %d was completed twice", n))
		}
		o.all[n] = outcome{results, err}
	}
}

func (o *outcomes) send(q completion.Queue, bodies ...string) {
	done := o.add()
	q.StartSend(new(completion.Round), outgoing(bodies...), func(_ *completion.Round, sent []driver.Sent, err error) { done(sent, err) })
}

func (o *outcomes) ack(q completion.Queue, handles ...string) {
	done := o.add()
	q.StartAck(new(completion.Round), receipts(handles...), func(_ *completion.Round, err error) { done(nil, err) })
}

func (o *outcomes) extend(q completion.Queue, handles ...string) {
	done := o.add()
	extensions := make([]driver.Extension, len(handles))
	for i, r := range receipts(handles...) {
		extensions[i] = driver.Extension{Receipt: r, Visibility: time.Duration(len(r.Handle)) * time.Second}
	}
	q.StartExtend(new(completion.Round), extensions, func(_ *completion.Round, granted []time.Duration, err error) { done(granted, err) })
}

func (o *outcomes) expect(t *testing.T, n int, results any, err error) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	got, ok := o.all[n]
	if !ok {
		t.Fatalf("operation %d: not completed", n)
	}
	if !reflect.DeepEqual(got, outcome{results, err}) {
		t.Errorf("operation %d:\n got %#v, %v\nwant %#v, %v", n, got.results, got.err, results, err)
	}
}

func outgoing(bodies ...string) []driver.Outgoing {
	msgs := make([]driver.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i].Body = []byte(body)
	}
	return msgs
}

func receipts(handles ...string) []driver.Receipt {
	rs := make([]driver.Receipt, len(handles))
	for i, handle := range handles {
		rs[i].Handle = handle
	}
	return rs
}
