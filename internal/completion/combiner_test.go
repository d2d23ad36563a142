package completion_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
)

// A strictBackend has every reason to refuse a message or a call. Its results depend on
// the order of the messages only.
type strictBackend struct {
	maxBatch, maxBytes, room int

	sent []string
	keys map[string]string // of dedup keys, the bodies
}

func (b *strictBackend) send(msgs []driver.Outgoing) ([]driver.Sent, error) {
	bytes := 0
	for i := range msgs {
		bytes += len(msgs[i].Body)
	}
	if len(msgs) > b.maxBatch || bytes > b.maxBytes {
		return nil, driver.ErrTooLarge
	}
	sent, errs := make([]driver.Sent, len(msgs)), make([]error, len(msgs))
	for i := range msgs {
		body, key := string(msgs[i].Body), msgs[i].DedupKey
		first, known := b.keys[key]
		switch {
		case strings.HasPrefix(body, "bad"):
			errs[i] = driver.ErrInvalid
		case key != "" && known && first != body:
			errs[i] = driver.ErrConflict
		case key != "" && known:
			sent[i] = driver.Sent{ID: key, Duplicate: true}
		case len(b.sent) == b.room:
			errs[i] = driver.ErrFull
		default:
			b.sent = append(b.sent, body)
			sent[i].ID = fmt.Sprint(len(b.sent))
			if key != "" {
				sent[i].ID = key
				b.keys[key] = body
			}
		}
	}
	return sent, driver.NewBatchError(errs)
}

// settleStrictly refuses calls with a broken receipt, and fails receipts that have expired.
func settleStrictly(_ string, receipts []driver.Receipt) error {
	errs := make([]error, len(receipts))
	for i, r := range receipts {
		if strings.HasPrefix(r.Handle, "broken") {
			return driver.ErrInvalid
		}
		if strings.HasPrefix(r.Handle, "old") {
			errs[i] = driver.ErrReceiptExpired
		}
	}
	return driver.NewBatchError(errs)
}

// A drawnOperation starts an operation on the queue and makes the same call of another
// backend, with the same arguments.
type drawnOperation struct {
	start func(q completion.Queue, done func(results any, err error))
	call  func(q driver.Queue) (results any, err error)
}

var operations = map[string]func(*rapid.T) drawnOperation{
	"send": func(t *rapid.T) drawnOperation {
		msgs := rapid.SliceOfN(rapid.Custom(drawOutgoing), 0, 7).Draw(t, "messages")
		return drawnOperation{
			func(q completion.Queue, done func(any, error)) {
				q.StartSend(new(completion.Round), msgs, func(_ *completion.Round, sent []driver.Sent, err error) { done(sent, err) })
			},
			func(q driver.Queue) (any, error) { return q.Send(context.Background(), msgs) },
		}
	},
	"ack": func(t *rapid.T) drawnOperation {
		rs := drawSettle(t, func(r driver.Receipt) driver.Receipt { return r })
		return drawnOperation{
			func(q completion.Queue, done func(any, error)) { q.StartAck(new(completion.Round), rs, settled(done)) },
			func(q driver.Queue) (any, error) { return nil, q.Ack(context.Background(), rs) },
		}
	},
	"nack": func(t *rapid.T) drawnOperation {
		nacks := drawSettle(t, func(r driver.Receipt) driver.Nack { return driver.Nack{Receipt: r} })
		return drawnOperation{
			func(q completion.Queue, done func(any, error)) {
				q.StartNack(new(completion.Round), nacks, settled(done))
			},
			func(q driver.Queue) (any, error) { return nil, q.Nack(context.Background(), nacks) },
		}
	},
	"extend": func(t *rapid.T) drawnOperation {
		extensions := drawSettle(t, func(r driver.Receipt) driver.Extension { return driver.Extension{Receipt: r, Visibility: 1} })
		return drawnOperation{
			func(q completion.Queue, done func(any, error)) {
				q.StartExtend(new(completion.Round), extensions, func(_ *completion.Round, granted []time.Duration, err error) { done(granted, err) })
			},
			func(q driver.Queue) (any, error) { return q.Extend(context.Background(), extensions) },
		}
	},
	"dead-letter": func(t *rapid.T) drawnOperation {
		requests := drawSettle(t, func(r driver.Receipt) driver.DeadLetterRequest { return driver.DeadLetterRequest{Receipt: r} })
		return drawnOperation{
			func(q completion.Queue, done func(any, error)) {
				q.StartDeadLetter(new(completion.Round), requests, settled(done))
			},
			func(q driver.Queue) (any, error) { return nil, q.DeadLetter(context.Background(), requests) },
		}
	},
}

func settled(done func(any, error)) completion.Settled {
	return func(_ *completion.Round, err error) { done(nil, err) }
}

func drawOutgoing(t *rapid.T) driver.Outgoing {
	return driver.Outgoing{
		Body:     []byte(rapid.SampledFrom([]string{"a", "b", "cc", "ddd", "bad", "a long body"}).Draw(t, "body")),
		DedupKey: rapid.SampledFrom([]string{"", "", "k1", "k2", "k3"}).Draw(t, "dedup key"),
	}
}

func drawSettle[E any](t *rapid.T, element func(driver.Receipt) E) []E {
	handles := rapid.SliceOfN(rapid.SampledFrom([]string{"good", "good", "good", "old", "broken"}), 0, 7).Draw(t, "receipts")
	elements := make([]E, len(handles))
	for i, handle := range handles {
		elements[i] = element(driver.Receipt{Handle: handle})
	}
	return elements
}

// TestCombinedResultsAreThoseOfSingleCalls starts operations of all kinds while calls begin
// and end, and compares with a backend that is called for each of them.
func TestCombinedResultsAreThoseOfSingleCalls(t *testing.T) {
	kinds := []string{"send", "send", "send", "ack", "nack", "extend", "dead-letter", "release"}
	rapid.Check(t, func(rt *rapid.T) {
		strict := strictBackend{
			maxBatch: rapid.IntRange(1, 12).Draw(rt, "max batch"),
			maxBytes: rapid.IntRange(4, 40).Draw(rt, "max bytes"),
			room:     rapid.IntRange(0, 30).Draw(rt, "room"),
		}
		steps := make([]drawnOperation, rapid.IntRange(1, 60).Draw(rt, "steps")) // empty: a call ends
		for i := range steps {
			if kind := rapid.SampledFrom(kinds).Draw(rt, "step"); kind != "release" {
				steps[i] = operations[kind](rt)
			}
		}
		var difference string
		synctest.Test(t, func(*testing.T) { difference = compare(strict, steps) })
		if difference != "" {
			rt.Fatal(difference)
		}
	})
}

// compare makes all steps with combined and with single calls, and returns the first
// difference.
func compare(strict strictBackend, steps []drawnOperation) (difference string) {
	combined, single := strict, strict
	combined.keys, single.keys = make(map[string]string), make(map[string]string)
	backend, alone := newFakeQueue(strict.maxBatch), newFakeQueue(strict.maxBatch)
	backend.send, backend.settle = combined.send, settleStrictly
	alone.send, alone.settle, alone.free = single.send, settleStrictly, true
	q := completion.Of(backend)
	defer q.Close()
	var got outcomes
	var want []outcome
	for _, step := range steps {
		if step.start == nil {
			backend.releaseOne(0)
			continue
		}
		step.start(q, got.add())
		results, err := step.call(alone)
		want = append(want, outcome{results, err})
	}
	for backend.releaseOne(0) {
	}
	for n, w := range want {
		g, completed := got.all[n]
		if !completed || fmt.Sprint(g.results) != fmt.Sprint(w.results) || !reflect.DeepEqual(g.err, w.err) {
			return fmt.Sprintf("operation %d: completed %v\n got %v, %#v\nwant %v, %#v", n, completed, g.results, g.err, w.results, w.err)
		}
	}
	if !slices.Equal(combined.sent, single.sent) {
		return fmt.Sprintf("messages in the backend:\n got %q\nwant %q", combined.sent, single.sent)
	}
	return ""
}

// TestGroupsKeepTheirOrder starts sends to a queue of several shards while calls end in any
// order.
func TestGroupsKeepTheirOrder(t *testing.T) {
	groups := rapid.SampledFrom([]string{"", "a", "b", "c", "d"})
	rapid.Check(t, func(rt *rapid.T) {
		maxBatch := rapid.IntRange(1, 6).Draw(rt, "max batch")
		strict := rapid.Bool().Draw(rt, "strict")
		var steps [][]driver.Outgoing // nil: a call ends
		var ends []int
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			ends = append(ends, rapid.IntRange(0, 20).Draw(rt, "end"))
			var msgs []driver.Outgoing
			for range rapid.IntRange(0, 3).Draw(rt, "messages") {
				msgs = append(msgs, driver.Outgoing{
					Body: fmt.Append(nil, n), Group: groups.Draw(rt, "group"), DedupKey: rapid.SampledFrom([]string{"", "k"}).Draw(rt, "key"),
				})
			}
			steps = append(steps, msgs)
		}
		var difference string
		synctest.Test(t, func(*testing.T) { difference = compareGroups(maxBatch, strict, steps, ends) })
		if difference != "" {
			rt.Fatal(difference)
		}
	})
}

// compareGroups compares the messages of each group in the backend with those that were
// sent. A message is in the backend when its call ends.
func compareGroups(maxBatch int, strict bool, steps [][]driver.Outgoing, ends []int) (difference string) {
	got, want := make(map[string]string), make(map[string]string)
	var mu sync.Mutex
	backend := newFakeQueue(maxBatch)
	backend.traits.Ordering, backend.traits.StrictGroups = driver.OrderingPerShard, strict
	backend.send = func(msgs []driver.Outgoing) ([]driver.Sent, error) {
		mu.Lock()
		defer mu.Unlock()
		for i := range msgs {
			got[msgs[i].Group] += string(msgs[i].Body) + " "
		}
		return make([]driver.Sent, len(msgs)), nil
	}
	q := completion.Of(backend)
	defer q.Close()
	for n, msgs := range steps {
		if msgs == nil {
			backend.releaseOne(ends[n])
			continue
		}
		q.StartSend(new(completion.Round), msgs, func(*completion.Round, []driver.Sent, error) {})
		for i := range msgs {
			want[msgs[i].Group] += string(msgs[i].Body) + " "
		}
	}
	for n := 0; backend.releaseOne(ends[n%len(ends)]); n++ {
	}
	if !maps.Equal(got, want) {
		return fmt.Sprintf("messages by group:\n got %v\nwant %v", got, want)
	}
	return ""
}

// BenchmarkStartSend sends from one goroutine to a backend that answers at once.
func BenchmarkStartSend(b *testing.B) {
	for _, size := range []int{100, 4 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			q := newQueue(b, instantQueue{newFakeQueue(driver.DefaultMaxBatch)})
			msgs := []driver.Outgoing{{Body: make([]byte, size)}}
			ended := make(chan struct{}, 64) // operations under way
			done := func(*completion.Round, []driver.Sent, error) { <-ended }
			var r completion.Round
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				ended <- struct{}{}
				q.StartSend(&r, msgs, done)
			}
			for range cap(ended) {
				ended <- struct{}{}
			}
		})
	}
}

func BenchmarkStartAck(b *testing.B) {
	q := newQueue(b, instantQueue{newFakeQueue(driver.DefaultMaxBatch)})
	receipts := []driver.Receipt{{Handle: "receipt"}}
	ended := make(chan struct{}, 64) // operations under way
	done := func(*completion.Round, error) { <-ended }
	var r completion.Round
	b.ReportAllocs()
	for b.Loop() {
		ended <- struct{}{}
		q.StartAck(&r, receipts, done)
	}
	for range cap(ended) {
		ended <- struct{}{}
	}
}

// instantQueue answers at once, and allocates no results.
type instantQueue struct{ *fakeQueue }

func (instantQueue) Send(context.Context, []driver.Outgoing) ([]driver.Sent, error) { return nil, nil }
func (instantQueue) Ack(context.Context, []driver.Receipt) error                    { return nil }
