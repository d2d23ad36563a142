package completion_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSendsWaitInOrderAndShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(4)
		q := newQueue(t, backend)
		var o outcomes
		o.send(q, "a")
		backend.expectCalls(t, "send a")
		o.send(q, "b", "c")
		o.send(q, "d")
		o.send(q, "e", "f") // the call before has room for one
		o.send(q, "g")
		o.send(q, "h", "i", "j", "k", "l") // more than a call allows
		o.send(q)
		o.send(q, "m")
		backend.expectCalls(t, "send a") // one call at a time
		backend.release(t, 1)
		backend.expectCalls(t, "send a", "send b c d")
		backend.release(t, 4)
		backend.expectCalls(t, "send a", "send b c d", "send e f g", "send h i j k l", "send m")
		o.expect(t, 0, sentAs([]string{"a"}), nil)
		o.expect(t, 1, sentAs([]string{"b", "c"}), nil)
		o.expect(t, 2, sentAs([]string{"d"}), nil)
		o.expect(t, 3, sentAs([]string{"e", "f"}), nil)
		o.expect(t, 4, sentAs([]string{"g"}), nil)
		o.expect(t, 5, sentAs([]string{"h", "i", "j", "k", "l"}), nil)
		o.expect(t, 6, []driver.Sent(nil), nil)
		o.expect(t, 7, sentAs([]string{"m"}), nil)
		if backend.most != 1 {
			t.Errorf("%d sends were under way at the same time, want 1", backend.most)
		}
	})
}

func TestCallsOfSendsAreBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(100)
		var sizes []int
		backend.send = func(msgs []driver.Outgoing) ([]driver.Sent, error) {
			bytes := 0
			for i := range msgs {
				bytes += len(msgs[i].Body)
			}
			sizes = append(sizes, bytes)
			return make([]driver.Sent, len(msgs)), nil
		}
		q := newQueue(t, backend)
		var o outcomes
		const mebi = 1 << 20
		for _, size := range []int{1, 3 * mebi, mebi, 1, 5 * mebi, 2, 3} {
			o.send(q, strings.Repeat("x", size))
			synctest.Wait()
		}
		backend.release(t, 5)
		if want := []int{1, 4 * mebi, 1, 5 * mebi, 5}; !slices.Equal(sizes, want) {
			t.Errorf("bytes of calls: got %v, want %v", sizes, want)
		}
	})
}

func TestFailedPositionsReachTheirOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, expired := errors.New("full"), errors.New("expired")
		backend := newFakeQueue(10)
		backend.send = func(msgs []driver.Outgoing) ([]driver.Sent, error) {
			sent, errs := make([]driver.Sent, len(msgs)), make([]error, len(msgs))
			for i := range msgs {
				if body := string(msgs[i].Body); strings.HasPrefix(body, "bad") {
					errs[i] = full
				} else {
					sent[i].ID = "id-" + body
				}
			}
			return sent, driver.NewBatchError(errs)
		}
		backend.settle = func(_ string, receipts []driver.Receipt) error {
			errs := make([]error, len(receipts))
			for i, r := range receipts {
				if r.Handle == "bad" {
					errs[i] = expired
				}
			}
			return driver.NewBatchError(errs)
		}
		q := newQueue(t, backend)
		var o outcomes
		o.send(q, "first")
		synctest.Wait()
		o.send(q, "a", "bad")
		o.send(q, "b")
		o.send(q, "bad")
		backend.release(t, 2)
		backend.expectCalls(t, "send first", "send a bad b bad")
		o.expect(t, 1, []driver.Sent{{ID: "id-a"}, {}}, &driver.BatchError{Errs: []error{nil, full}})
		o.expect(t, 2, sentAs([]string{"b"}), nil)
		o.expect(t, 3, []driver.Sent{{}}, &driver.BatchError{Errs: []error{full}})

		o.extend(q, "first")
		synctest.Wait()
		o.extend(q, "r")
		o.extend(q, "bad", "ss")
		backend.release(t, 2)
		o.expect(t, 5, []time.Duration{time.Second}, nil)
		o.expect(t, 6, []time.Duration{0, 2 * time.Second}, &driver.BatchError{Errs: []error{expired, nil}})
	})
}

func TestUnansweredCallFailsItsOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &driver.Error{Code: driver.ErrUnavailable}
		backend := newFakeQueue(10)
		backend.send = func([]driver.Outgoing) ([]driver.Sent, error) { return nil, down }
		q := newQueue(t, backend)
		var o outcomes
		o.send(q, "a")
		synctest.Wait()
		o.send(q, "b")
		o.send(q, "c", "d")
		backend.release(t, 2)
		backend.expectCalls(t, "send a", "send b c d") // they are not sent twice
		for n := range 3 {
			o.expect(t, n, []driver.Sent(nil), down)
		}
	})
}

func TestRefusedCallIsMadeForEachOperation(t *testing.T) {
	for _, code := range []driver.Code{driver.ErrTooLarge, driver.ErrFull, driver.ErrInvalid, driver.ErrUnsupported} {
		synctest.Test(t, func(t *testing.T) {
			refusal := &driver.Error{Code: code}
			backend := newFakeQueue(10)
			backend.send = func(msgs []driver.Outgoing) ([]driver.Sent, error) {
				if len(msgs) > 2 {
					return nil, refusal
				}
				return make([]driver.Sent, len(msgs)), nil
			}
			q := newQueue(t, backend)
			var o outcomes
			o.send(q, "a")
			synctest.Wait()
			o.send(q, "b", "c")
			o.send(q, "d", "e", "f")
			o.send(q, "g")
			backend.release(t, 5)
			backend.expectCalls(t, "send a", "send b c d e f g", "send b c", "send d e f", "send g")
			o.expect(t, 1, make([]driver.Sent, 2), nil)
			o.expect(t, 2, []driver.Sent(nil), refusal)
			o.expect(t, 3, make([]driver.Sent, 1), nil)
		})
	}
}

func TestFullCallsOfAcksRunInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(2)
		q := newQueue(t, backend)
		var o outcomes
		for n := range 6 {
			o.ack(q, fmt.Sprint(n))
			synctest.Wait()
		}
		backend.expectCalls(t, "ack 0", "ack 1 2", "ack 3 4") // others can still join 5
		o.extend(q, "e")
		synctest.Wait()
		for range 7 {
			o.extend(q, "f")
		}
		backend.expectCalls(t, "ack 0", "ack 1 2", "ack 3 4", "extend e") // the last extension counts
		backend.release(t, 1)
		backend.expectCalls(t, "ack 0", "ack 1 2", "ack 3 4", "extend e", "ack 5") // it waits for one call, not for all
		backend.release(t, 2+1+4+1)
		if len(o.all) != o.next {
			t.Errorf("%d operations were completed, want %d", len(o.all), o.next)
		}
	})
}

func TestKeyedSendsOfOtherGroupsRunInParallel(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			backend := newFakeQueue(10)
			backend.traits.Ordering, backend.traits.StrictGroups = driver.OrderingPerShard, strict
			q := newQueue(t, backend)
			completed := 0
			send := func(group, key string) {
				q.StartSend(new(completion.Round), []driver.Outgoing{{Body: []byte(group + key), Group: group, DedupKey: key}},
					func(*completion.Round, []driver.Sent, error) { completed++ })
				synctest.Wait()
			}
			send("a", "1")
			send("a", "2") // it waits for the one before
			for n := range 40 {
				send(fmt.Sprint(n), "k")
			}
			if backend.calls[0] != "send a1" || slices.Contains(backend.calls, "send a2") {
				t.Errorf("calls: got %q, want a1 and not yet a2", backend.calls)
			}
			if backend.most < 8 { // a few groups share a line
				t.Errorf("%d sends were under way at the same time, want 8 or more", backend.most)
			}
			for backend.releaseOne(0) {
			}
			if len(backend.calls) != 42 || completed != 42 {
				t.Errorf("%d calls for %d sends, want 42 for 42", len(backend.calls), completed)
			}
		})
	}
}

// groupTrials is how often tests try two groups that may share a line.
const groupTrials = 8

func TestKeyedSendDoesNotWaitForOtherGroups(t *testing.T) {
	together := 0
	for n := range groupTrials {
		synctest.Test(t, func(t *testing.T) {
			backend := newFakeQueue(10)
			backend.traits.Ordering = driver.OrderingPerShard
			q := newQueue(t, backend)
			first, second := fmt.Sprint("a", n), fmt.Sprint("b", n)
			send := func(key string, groups ...string) {
				msgs := make([]driver.Outgoing, len(groups))
				for i, group := range groups {
					msgs[i] = driver.Outgoing{Group: group, DedupKey: key}
				}
				q.StartSend(new(completion.Round), msgs, func(*completion.Round, []driver.Sent, error) {})
				synctest.Wait()
			}
			send("", first, second)
			send("k1", first)
			send("k2", second)
			if len(backend.held) != 1 {
				t.Errorf("%d calls are under way while both groups are in one, want 1", len(backend.held))
			}
			backend.release(t, 1)
			together += len(backend.held) - 1
			for backend.releaseOne(0) {
			}
			send("k3", first)
			send("k4", second)
			together += len(backend.held) - 1
			for backend.releaseOne(0) {
			}
		})
	}
	if together <= groupTrials {
		t.Errorf("keyed sends of two groups were under way together in %d of %d cases", together, 2*groupTrials)
	}
}

func TestKeyedSendsWithoutGroupAreAloneInStrictQueues(t *testing.T) {
	for strict, want := range map[bool][]string{
		false: {"send k1", "send k2 k3 4"},
		true:  {"send k1", "send k2", "send k3", "send 4"},
	} {
		synctest.Test(t, func(t *testing.T) {
			backend := newFakeQueue(10)
			backend.traits.Ordering, backend.traits.StrictGroups = driver.OrderingPerShard, strict
			q := newQueue(t, backend)
			for _, body := range []string{"k1", "k2", "k3", "4"} {
				msgs := outgoing(body)
				if body != "4" {
					msgs[0].DedupKey = body
				}
				q.StartSend(new(completion.Round), msgs, func(*completion.Round, []driver.Sent, error) {})
				synctest.Wait()
			}
			for backend.releaseOne(0) {
			}
			backend.expectCalls(t, want...)
		})
	}
}

func TestUnorderedQueueSendsInParallelUpToBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(1)
		backend.traits.Ordering = driver.OrderingNone
		q := newQueue(t, backend)
		var o outcomes
		for range 20 {
			o.send(q, "m")
			synctest.Wait()
		}
		backend.release(t, 20)
		if backend.most != 16 {
			t.Errorf("%d sends were under way at the same time, want 16", backend.most)
		}
	})
}

func TestKindsOfOperationsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(10)
		q := newQueue(t, backend)
		completed := 0
		settled := func(_ *completion.Round, err error) {
			if err == nil {
				completed++
			}
		}
		var o outcomes
		o.send(q, "m")
		synctest.Wait()
		o.ack(q, "a")
		synctest.Wait()
		q.StartNack(new(completion.Round), []driver.Nack{{Receipt: driver.Receipt{Handle: "n"}}}, settled)
		synctest.Wait()
		o.extend(q, "e")
		synctest.Wait()
		q.StartDeadLetter(new(completion.Round), []driver.DeadLetterRequest{{Receipt: driver.Receipt{Handle: "d"}}}, settled)
		backend.expectCalls(t, "send m", "ack a", "nack n", "extend e", "dead-letter d")
		backend.release(t, 5)
		if completed != 2 {
			t.Errorf("%d of nack and dead-letter were completed, want 2", completed)
		}
	})
}

func TestStartedOperationsKeepNoArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(10)
		var attributes, seals []string
		backend.send = func(msgs []driver.Outgoing) ([]driver.Sent, error) {
			for i := range msgs {
				attributes = append(attributes, msgs[i].Attributes["k"])
				seals = append(seals, string(msgs[i].Seal))
			}
			return make([]driver.Sent, len(msgs)), nil
		}
		q := newQueue(t, backend)
		body, seal, values := []byte("a"), []byte("a"), map[string]string{"k": "a"}
		msgs, rs := make([]driver.Outgoing, 1), make([]driver.Receipt, 1)
		for _, text := range []string{"a", "b", "c"} {
			copy(body, text)
			copy(seal, text)
			values["k"] = text
			msgs[0] = driver.Outgoing{Body: body, Seal: seal, Attributes: values}
			q.StartSend(new(completion.Round), msgs, func(*completion.Round, []driver.Sent, error) {})
			body[0], seal[0], values["k"] = 'x', 'x', "x"
			synctest.Wait()
			rs[0].Handle = text
			q.StartAck(new(completion.Round), rs, func(*completion.Round, error) {})
			rs[0].Handle = "x"
			synctest.Wait()
		}
		backend.release(t, 4)
		backend.expectCalls(t, "send a", "ack a", "send b c", "ack b c")
		if want := []string{"a", "b", "c"}; !slices.Equal(attributes, want) || !slices.Equal(seals, want) {
			t.Errorf("attributes and seals: got %q and %q, want %q", attributes, seals, want)
		}
	})
}

// flushCounter counts its flushes.
type flushCounter struct{ flushes int }

func (f *flushCounter) Flush() { f.flushes++ }

func TestOperationsOfOneCallShareARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(10)
		q := newQueue(t, backend)
		var conn flushCounter
		q.StartSend(new(completion.Round), outgoing("a"), func(r *completion.Round, _ []driver.Sent, _ error) { r.Later(&conn) })
		synctest.Wait()
		for n := range 5 {
			q.StartSend(new(completion.Round), outgoing("b"), func(r *completion.Round, _ []driver.Sent, _ error) {
				if n == 0 {
					r.Later(&conn)
				}
				if conn.flushes != 1 {
					t.Errorf("operation %d was completed after the flush of its call", n)
				}
			})
		}
		backend.release(t, 2)
		if conn.flushes != 2 {
			t.Errorf("%d flushes, want one for each of 2 calls", conn.flushes)
		}
	})
}

// failures are the errors of receives.
type failures []error

func (f *failures) Received(_ *completion.Round, _ []driver.Delivery, err error) {
	*f = append(*f, err)
}

func TestReceiveThatWaitsIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, newFakeQueue(10))
		var errs failures
		waiting := q.StartReceive(new(completion.Round), driver.ReceiveRequest{Max: 1, Wait: time.Hour}, &errs)
		synctest.Wait()
		if len(errs) != 0 {
			t.Fatalf("the receive was completed with %v before it was cancelled", errs)
		}
		waiting.Cancel()
		waiting.Cancel()
		synctest.Wait()
		if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
			t.Fatalf("cancelled receive: got %v, want one context.Canceled", errs)
		}
		if waiting := q.StartReceive(new(completion.Round), driver.ReceiveRequest{Max: 1}, &errs); waiting != nil {
			t.Error("a receive that does not wait can be cancelled")
		}
		synctest.Wait()
		if len(errs) != 2 || errs[1] != nil {
			t.Errorf("receive without a wait: got %v, want no error", errs)
		}
	})
}

// conn is a connection that answers receives.
type conn struct {
	hold   chan struct{} // the first completion waits for it
	queued bool
	events []string
}

func (c *conn) Received(r *completion.Round, _ []driver.Delivery, _ error) {
	if len(c.events) == 0 {
		<-c.hold
	}
	c.events = append(c.events, "received")
	if !c.queued {
		c.queued = true
		r.Later(c)
	}
}

func (c *conn) Flush() {
	c.queued = false
	c.events = append(c.events, "flushed")
}

func TestReceivesThatEndTogetherShareARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(10)
		backend.traits.StrictGroups = true // each receive has a call of its own
		q := newQueue(t, backend)
		c := &conn{hold: make(chan struct{})}
		for range 4 { // the first one is being completed while the others end
			waiting := q.StartReceive(new(completion.Round), driver.ReceiveRequest{Max: 1, Wait: time.Hour}, c)
			synctest.Wait()
			waiting.Cancel()
			synctest.Wait()
		}
		close(c.hold)
		synctest.Wait()
		if want := []string{"received", "flushed", "received", "received", "received", "flushed"}; !slices.Equal(c.events, want) {
			t.Errorf("got %q, want %q", c.events, want)
		}
	})
}

func TestIdleQueueHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFakeQueue(10)
		q := completion.Of(backend) // it stays open
		var o outcomes
		o.send(q, "a")
		synctest.Wait()
		o.ack(q, "b")
		q.StartReceive(new(completion.Round), driver.ReceiveRequest{Max: 1}, new(failures))
		backend.release(t, 2)
		time.Sleep(time.Second) // the bubble reports goroutines that do not end
	})
}
