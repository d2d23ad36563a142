package queuecopy_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/queuecopy"
	"github.com/mailboxmq/mailbox/membox"
)

// open opens a queue on a backend of its own.
func open(t *testing.T, config driver.Config) driver.Queue {
	t.Helper()
	backend := membox.New(nil)
	if err := backend.ConfigureQueue(t.Context(), "orders", config); err != nil {
		t.Fatal(err)
	}
	queue, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return queue
}

func send(t *testing.T, queue driver.Queue, messages ...driver.Outgoing) {
	t.Helper()
	if _, err := queue.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
}

// bodies receives and acks everything that becomes ready in two days, and lists it.
func bodies(t *testing.T, queue driver.Queue) (list []string) {
	t.Helper()
	for range 48 {
		for {
			got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				break
			}
			for _, d := range got {
				list = append(list, string(d.Body))
				if err := queue.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Hour)
	}
	return list
}

func TestMessagesArriveWithTheirProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := open(t, driver.Config{}), open(t, driver.Config{})
		send(t, from,
			driver.Outgoing{Body: []byte("a"), Attributes: map[string]string{"k": "v"}, Group: "g", ReplyTo: "answers", CorrelationID: "c"},
			driver.Outgoing{Body: []byte("b"), Priority: 3})
		due := time.Now().Add(24 * time.Hour)
		send(t, from, driver.Outgoing{Body: []byte("later"), DeliverAt: due})
		result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{})
		if err != nil || result.Moved != 3 || result.Early != 1 || result.Left != (driver.Stats{}) {
			t.Fatalf("got %+v, %v", result, err)
		}
		var got []driver.Peeked
		for m, err := range to.Peek(t.Context(), driver.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		if len(got) != 3 {
			t.Fatalf("got %v", got)
		}
		if b := got[0]; string(b.Body) != "b" || b.Priority != 3 || b.Deliveries != 0 {
			t.Errorf("got %+v", b)
		}
		if a := got[1]; string(a.Body) != "a" || a.Attributes["k"] != "v" || a.Group != "g" || a.ReplyTo != "answers" || a.CorrelationID != "c" {
			t.Errorf("got %+v", a)
		}
		if d := got[2]; string(d.Body) != "later" || d.State != driver.StateDelayed || !d.DueAt.Equal(due) {
			t.Errorf("got %+v", d)
		}
	})
}

func TestOrderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := open(t, driver.Config{StrictGroups: true}), open(t, driver.Config{StrictGroups: true})
		var want []string
		for i := range 1000 {
			want = append(want, fmt.Sprint(i))
			send(t, from, driver.Outgoing{Body: []byte(want[i]), Group: fmt.Sprint(i % 3)})
		}
		if result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{}); err != nil || result.Moved != len(want) {
			t.Fatalf("got %+v, %v", result, err)
		}
		byGroup := make(map[int][]int)
		for _, body := range bodies(t, to) {
			var n int
			if _, err := fmt.Sscan(body, &n); err != nil {
				t.Fatal(err)
			}
			byGroup[n%3] = append(byGroup[n%3], n)
		}
		for group, numbers := range byGroup {
			if !slices.IsSorted(numbers) || len(numbers) < 333 {
				t.Errorf("group %d: %v", group, numbers)
			}
		}
	})
}

// A breaking fails at its nth call, before it does anything or after.
type breaking struct {
	driver.Queue
	left  *int
	after bool
}

var errBroken = errors.New("broken")

// call does what an operation does, and says how it ended.
func (b *breaking) call(do func() error) error {
	*b.left--
	if *b.left == 0 && !b.after {
		return errBroken
	}
	if err := do(); err != nil {
		return err
	}
	if *b.left == 0 {
		return errBroken
	}
	return nil
}

func (b *breaking) Send(ctx context.Context, messages []driver.Outgoing) (sent []driver.Sent, err error) {
	err = b.call(func() (err error) { sent, err = b.Queue.Send(ctx, messages); return err })
	return sent, err
}

func (b *breaking) Receive(ctx context.Context, request driver.ReceiveRequest) (got []driver.Delivery, err error) {
	if err = b.call(func() (err error) { got, err = b.Queue.Receive(ctx, request); return err }); err != nil {
		return nil, err
	}
	return got, nil
}

func (b *breaking) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return b.call(func() error { return b.Queue.Ack(ctx, receipts) })
}

func (b *breaking) Edit(ctx context.Context, id string, edit driver.Edit) (was driver.State, err error) {
	err = b.call(func() (err error) { was, err = b.Queue.Edit(ctx, id, edit); return err })
	return was, err
}

// TestBrokenCopyIsResumed breaks a copy at each of its calls, before and after the call
// takes effect, and starts it again.
func TestBrokenCopyIsResumed(t *testing.T) {
	want := []string{"a", "b", "c", "later", "latest"}
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			broke := false
			synctest.Test(t, func(t *testing.T) {
				from, to := open(t, driver.Config{}), open(t, driver.Config{})
				for i, body := range want {
					send(t, from, driver.Outgoing{Body: []byte(body), Delay: time.Duration(max(0, i-2)) * time.Hour})
				}
				left := at
				_, err := queuecopy.Run(t.Context(), &breaking{from, &left, after}, &breaking{to, &left, after}, queuecopy.Options{})
				if broke = left <= 0; broke != (err != nil) {
					t.Errorf("call %d, after %v: %v", at, after, err)
				}
				time.Sleep(2 * time.Minute) // leases end
				result, err := queuecopy.Run(t.Context(), shifted{from}, to, queuecopy.Options{})
				if err != nil || result.Left != (driver.Stats{}) {
					t.Errorf("call %d, after %v: %+v, %v", at, after, result, err)
				}
				if got := bodies(t, to); !slices.Equal(got, want) {
					t.Errorf("call %d, after %v: got %q", at, after, got)
				}
			})
			if !broke {
				if at < 8 {
					t.Errorf("only %d calls", at)
				}
				break
			}
		}
	}
}

// A snatching queue has its delayed messages made ready and received between a look at them and
// their removal.
type snatching struct {
	driver.Queue
	snatched []driver.Delivery
}

func (s *snatching) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		for m, err := range s.Queue.Peek(ctx, query) {
			if err == nil && s.snatched == nil {
				if _, err = s.Edit(ctx, m.ID, driver.Edit{Ready: true}); err == nil {
					s.snatched, err = s.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
				}
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

func TestMessageTakenMeanwhileStaysAtTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &snatching{Queue: open(t, driver.Config{})}, open(t, driver.Config{})
		send(t, from, driver.Outgoing{Body: []byte("a"), Delay: 24 * time.Hour})
		result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{})
		if err != nil || result.Moved != 0 || result.Left.InFlight != 1 {
			t.Fatalf("got %+v, %v", result, err)
		}
		if stats, err := to.Stats(t.Context()); err != nil || stats != (driver.Stats{}) {
			t.Errorf("the destination has %+v, %v", stats, err)
		}
		// Its receiver gives it back, and it moves.
		if err := from.Nack(t.Context(), []driver.Nack{{Receipt: from.snatched[0].Receipt}}); err != nil {
			t.Fatal(err)
		}
		if result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{}); err != nil || result.Moved != 1 {
			t.Errorf("got %+v, %v", result, err)
		}
		if got := bodies(t, to); !slices.Equal(got, []string{"a"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestMessageThatIsDelayedAgainMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &snatching{Queue: open(t, driver.Config{})}, open(t, driver.Config{})
		send(t, from, driver.Outgoing{Body: []byte("a"), Delay: 24 * time.Hour})
		if result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{}); err != nil || result.Moved != 0 {
			t.Fatalf("got %+v, %v", result, err)
		}
		if err := from.Nack(t.Context(), []driver.Nack{{Receipt: from.snatched[0].Receipt, Mode: driver.NackRelease}}); err != nil {
			t.Fatal(err)
		}
		for m, err := range from.Queue.Peek(t.Context(), driver.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := from.Edit(t.Context(), m.ID, driver.Edit{DeliverAt: time.Now().Add(24 * time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		if result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{}); err != nil || result.Moved != 1 || result.Early != 1 {
			t.Errorf("got %+v, %v", result, err)
		}
		if got := bodies(t, to); !slices.Equal(got, []string{"a"}) {
			t.Errorf("got %q", got)
		}
	})
}

// A shifted queue reports due times a millisecond late, as a queue on disk may when it is opened again.
type shifted struct{ driver.Queue }

func (s shifted) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		for m, err := range s.Queue.Peek(ctx, query) {
			m.DueAt = m.DueAt.Add(time.Millisecond)
			if !yield(m, err) {
				return
			}
		}
	}
}

func TestRefusedMessageGoesBackUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := open(t, driver.Config{}), open(t, driver.Config{MaxMessages: 1})
		send(t, from, driver.Outgoing{Body: []byte("a")}, driver.Outgoing{Body: []byte("b")}, driver.Outgoing{Body: []byte("c")})
		result, err := queuecopy.Run(t.Context(), from, to, queuecopy.Options{})
		if !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), "copy: message ") || result.Moved != 1 || result.Left.Ready != 2 {
			t.Fatalf("got %+v, %v", result, err)
		}
		got, err := from.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
		if err != nil || len(got) != 2 || string(got[0].Body) != "b" || got[0].Deliveries != 1 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestUnfitQueuesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		strict, plain := open(t, driver.Config{StrictGroups: true}), open(t, driver.Config{})
		if _, err := queuecopy.Run(t.Context(), strict, plain, queuecopy.Options{}); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("strict to plain: %v", err)
		}
		daemons := open(t, driver.Config{})
		send(t, daemons, driver.Outgoing{Body: []byte("a"), Seal: []byte("sealed")})
		result, err := queuecopy.Run(t.Context(), daemons, plain, queuecopy.Options{})
		if !errors.Is(err, driver.ErrUnsupported) || result.Left.Ready != 1 {
			t.Errorf("sealed: %+v, %v", result, err)
		}
	})
}

func TestQueueIsNotCopiedToItself(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			queue := open(t, driver.Config{})
			send(t, queue, driver.Outgoing{Body: []byte("a"), Delay: delay}, driver.Outgoing{Body: []byte("b"), Delay: delay})
			if _, err := queuecopy.Run(t.Context(), queue, queue, queuecopy.Options{}); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("delay %v: got %v", delay, err)
			}
			if got := bodies(t, queue); len(got) != 2 {
				t.Errorf("delay %v: got %q", delay, got)
			}
		})
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := open(t, driver.Config{}), open(t, driver.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var moved int
		go func() {
			result, err := queuecopy.Run(ctx, from, to, queuecopy.Options{Follow: true})
			moved = result.Moved
			ended <- err
		}()
		for range 3 {
			time.Sleep(time.Minute)
			send(t, from, driver.Outgoing{Body: []byte("a")})
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil || moved != 3 {
			t.Errorf("%d moved, %v", moved, err)
		}
	})
}
