package oapapi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
	"github.com/mailboxmq/mailbox/worker"
)

// newAsking returns a daemon whose token allows every operation.
func newAsking(t testing.TB, backend driver.Opener) *daemon {
	t.Helper()
	ring := keyring.New(keyring.NewKey())
	token, err := ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return newDaemonWith(t, backend, oapapi.Options{}, ring, token.Reveal())
}

// slotsOverMemory is the reply store of a daemon in front of memory, in virtual time.
var slotsOverMemory = drivertest.ReplyStore{
	Virtual: true,
	Open: func(t testing.TB) driver.ReplyStore {
		d := newAsking(t, membox.New(nil))
		return newRemote(t, d, d.client()).Replies()
	},
}

// TestReplyConformance runs the suite of reply stores through frames.
func TestReplyConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunReplyStore(t, slotsOverMemory)
}

func TestReplyConformanceOnDisk(t *testing.T) {
	drivertest.RunReplyStore(t, drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
		replytest.InPart(t)
		backend, err := diskbox.Open(t.Context(), t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return newListening(t, newAsking(t, backend)).Replies()
	}})
}

func TestReplyConformanceOnRedis(t *testing.T) {
	server := redistest.Standalone(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
		replytest.InPart(t)
		return newListening(t, newAsking(t, openRedis(t, server))).Replies()
	}})
}

func openRedis(t testing.TB, server *redistest.Server) driver.Opener {
	t.Helper()
	client, err := rueidis.NewClient(server.ClientOption())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	backend, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	return backend
}

// TestSlotSaboteursAreCaughtThroughFrames shows that the suite sees faults of the store through the wire.
func TestSlotSaboteursAreCaughtThroughFrames(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaught(t, func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore {
		return drivertest.ReplyStore{Virtual: true, Open: func(t testing.TB) driver.ReplyStore {
			d := newAsking(t, spoil(membox.New(nil)))
			return newRemote(t, d, d.client()).Replies()
		}}
	})
}

// TestSlotSaboteursAreCaughtOnDisk shows that for a daemon in front of a directory.
func TestSlotSaboteursAreCaughtOnDisk(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaughtInPart(t, func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore {
		return drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
			replytest.InPart(t)
			backend, err := diskbox.Open(t.Context(), t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return newListening(t, newAsking(t, spoil(backend))).Replies()
		}}
	})
}

// TestSlotSaboteursAreCaughtOnRedis shows that for a daemon in front of Redis.
func TestSlotSaboteursAreCaughtOnRedis(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaughtInPart(t, func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore {
		server := redistest.Standalone(t)
		return drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
			replytest.InPart(t)
			return newListening(t, newAsking(t, spoil(openRedis(t, server)))).Replies()
		}}
	})
}

// newListening returns a client over loopback of a daemon that serves by now.
func newListening(t testing.TB, d *daemon) *remote {
	t.Helper()
	r := newRemote(t, d, remotebox.New([]string{d.listen(t)}, d.token, nil))
	if err := r.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCallIsAnsweredThroughDaemon has a client and a worker with nothing but a daemon, and no slot is
// left.
func TestCallIsAnsweredThroughDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAsking(t, membox.New(nil))
		asking, answering := newRemote(t, d, d.client()), d.client()
		t.Cleanup(func() { _ = answering.Close() })
		d.make(t, "sums")
		requests, work := openSums(t, asking.Backend), openSums(t, answering)
		client := reply.NewClient[[]int, int](requests, asking.Replies(), nil)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			for {
				got, err := work.Receive(ctx, mailbox.WithWait(time.Minute))
				if err != nil {
					served <- err
					return
				}
				for _, m := range got {
					sum := 0
					for _, n := range m.Body {
						sum += n
					}
					if sum < 0 {
						err = mailbox.ReplyError(context.WithoutCancel(ctx), m, errors.New("too small"))
					} else {
						err = mailbox.Reply(context.WithoutCancel(ctx), m, sum)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		}()
		for n := range 20 {
			if got, err := client.Call(t.Context(), []int{n, 1}); err != nil || got != n+1 {
				t.Errorf("%d + 1: got %d, %v", n, got, err)
			}
		}
		var failure *mailbox.Failure
		if _, err := client.Call(t.Context(), []int{-7}); !errors.As(err, &failure) || failure.Text != "too small" {
			t.Errorf("an error was answered as %v", err)
		}
		stop()
		<-served
		synctest.Wait()
		for _, share := range d.broker.Shares() {
			if share.Resource == "reply slots" && share.Used != 0 {
				t.Errorf("%d slots are left", share.Used)
			}
		}
	})
}

func openSums(t testing.TB, backend *remotebox.Backend) *mailbox.Mailbox[[]int] {
	t.Helper()
	box, err := mailbox.Open[[]int](t.Context(), backend, "sums", &mailbox.Options[[]int]{Replies: backend.Replies()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })
	return box
}

// TestServeAndStreamsWorkThroughDaemon has a client and two workers on connections of their own: one with
// worker.Serve, and one that answers in parts.
func TestServeAndStreamsWorkThroughDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAsking(t, membox.New(nil))
		asking := newRemote(t, d, d.client())
		serving, streaming := d.client(), d.client()
		for _, name := range []string{"sums", "counts", "client"} {
			d.make(t, name)
		}
		ctx, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		sums := openSums(t, serving)
		sum := func(_ context.Context, m *mailbox.Message[[]int]) (int, error) {
			if len(m.Body) == 0 {
				return 0, errors.New("nothing to add")
			}
			return m.Body[0] + m.Body[1], nil
		}
		workers.Go(func() {
			if err := worker.New(sums, worker.Serve(sum, nil), nil).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		queues := registry.New(&registry.Options{Fallback: streaming})
		counts, err := mailbox.Open(t.Context(), streaming, "counts", &mailbox.Options[int]{Resolver: queues})
		if err != nil {
			t.Fatal(err)
		}
		count := reply.HandleStream(func(ctx context.Context, m *mailbox.Message[int], stream *reply.Stream[int]) error {
			for n := range m.Body {
				if err := stream.Send(ctx, n); err != nil {
					return err
				}
			}
			return errors.New("no more")
		}, nil)
		workers.Go(func() {
			for m, err := range counts.Messages(ctx) {
				if err == nil {
					err = count(ctx, m)
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})

		client := reply.NewClient[[]int, int](openSums(t, asking.Backend), asking.Replies(), nil)
		if got, err := client.Call(t.Context(), []int{2, 3}); err != nil || got != 5 {
			t.Errorf("2 + 3: got %d, %v", got, err)
		}
		var failure *mailbox.Failure
		if _, err := client.Call(t.Context(), nil); !errors.As(err, &failure) || failure.Text != "nothing to add" {
			t.Errorf("an error was answered as %v", err)
		}
		parts, err := mailbox.Open(t.Context(), asking.Backend, "client", &mailbox.Options[reply.Result[int]]{Codec: reply.Results[int](nil)})
		if err != nil {
			t.Fatal(err)
		}
		requests, err := mailbox.Open[int](t.Context(), asking.Backend, "counts", nil)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := requests.Send(t.Context(), 3, mailbox.WithReplyTo("client"))
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for part, err := range reply.Parts(t.Context(), parts, sent.ID, 0) {
			if failure = nil; err == nil {
				got = append(got, part.Value)
			} else if !errors.As(err, &failure) || failure.Text != "no more" {
				t.Errorf("the stream ended with %v", err)
			}
		}
		if !slices.Equal(got, []int{0, 1, 2}) || failure == nil {
			t.Errorf("got the parts %v, and the failure %v", got, failure)
		}
		stop()
		workers.Wait()
		if err := errors.Join(queues.Close(), serving.Close(), streaming.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestWorkerGetsRequestWithStateOfSlot (RPL-6) looks at the wire: a request whose slot waits says so, and one
// that was cancelled before does not, in a receive and in a subscription.
func TestWorkerGetsRequestWithStateOfSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAsking(t, membox.New(nil))
		remote := newRemote(t, d, d.client())
		d.make(t, "sums")
		box := openSums(t, remote.Backend)
		client := reply.NewClient[[]int, int](box, remote.Replies(), nil)
		ask := func(cancel bool) {
			t.Helper()
			future, err := client.Send(t.Context(), []int{1})
			if err == nil && cancel {
				err = future.Cancel(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, cancelled := range []bool{false, true} {
			ask(cancelled)
			got, err := box.Queue().Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
			if err != nil || len(got) != 1 || got[0].SlotPending == cancelled {
				t.Errorf("cancelled %t: got %+v, %v", cancelled, got, err)
			}
			ask(cancelled)
			for got, err := range box.Queue().(remotebox.Subscriber).Subscribe(t.Context(), time.Hour, 1) {
				if err != nil || got.SlotPending == cancelled {
					t.Errorf("subscribed, cancelled %t: got %+v, %v", cancelled, got, err)
				}
				break
			}
		}
	})
}

// TestRequestCancelledBeforeReceiveIsNotStarted (RPL-6).
func TestRequestCancelledBeforeReceiveIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAsking(t, membox.New(nil))
		remote := newRemote(t, d, d.client())
		d.make(t, "sums")
		box := openSums(t, remote.Backend)
		client := reply.NewClient[[]int, int](box, remote.Replies(), nil)
		future, err := client.Send(t.Context(), []int{1})
		if err == nil {
			err = future.Cancel(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := box.Receive(t.Context())
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		handle := reply.Handle(func(context.Context, *mailbox.Message[[]int]) (int, error) {
			t.Error("it was started")
			return 0, nil
		}, nil)
		if err := handle(t.Context(), got[0]); err != nil || !got[0].Settled() {
			t.Errorf("got %v, settled %t", err, got[0].Settled())
		}
	})
}

// TestCancelledRequestReachesWorkerThroughDaemon (RPL-6) waits in the daemon, and no goroutine polls.
func TestCancelledRequestReachesWorkerThroughDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAsking(t, membox.New(nil))
		remote := newRemote(t, d, d.client())
		d.make(t, "sums")
		box := openSums(t, remote.Backend)
		client := reply.NewClient[[]int, int](box, remote.Replies(), nil)
		future, err := client.Send(t.Context(), []int{1})
		if err != nil {
			t.Fatal(err)
		}
		got, err := box.Receive(t.Context(), mailbox.WithVisibility(time.Hour))
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		m := got[0]
		cancelled := make(chan time.Time, 1)
		stop := m.OnCancel(t.Context(), func(error) { cancelled <- time.Now() })
		defer stop()
		time.Sleep(time.Minute)
		began := time.Now()
		if err := future.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := (<-cancelled).Sub(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if err := mailbox.Reply(t.Context(), m, 1); !errors.Is(err, mailbox.ErrReplyCancelled) {
			t.Errorf("an answer after that: %v", err)
		}
	})
}

// TestWaitingSlotsCostNoGoroutine has more waits on one connection than it may have requests in
// flight.
func TestWaitingSlotsCostNoGoroutine(t *testing.T) {
	const slots = 2_000
	d := newAsking(t, membox.New(nil))
	remote := newRemote(t, d, remotebox.New([]string{d.listen(t)}, d.token, nil))
	store := remote.Replies()
	for n := range slots {
		if err := store.Create(t.Context(), fmt.Sprint(n), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	results := make(chan error, slots)
	for n := range slots {
		go func() {
			slot, err := store.Wait(context.Background(), fmt.Sprint(n), time.Hour)
			if err == nil && string(slot.Answer.Body) != fmt.Sprint(n) {
				err = fmt.Errorf("slot %d has the answer %q", n, slot.Answer.Body)
			}
			results <- err
		}()
	}
	waiting := func() (used int64) {
		for _, share := range d.broker.Shares() {
			if share.Resource == "waiting receives" {
				used = share.Used
			}
		}
		return used
	}
	for deadline := time.Now().Add(time.Minute); waiting() < slots; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d wait", waiting())
		}
	}
	if own := runtime.NumGoroutine() - before - slots; own > slots/10 {
		t.Errorf("the daemon has %d goroutines for %d waits", own, slots)
	}
	for n := range slots {
		if err := store.Resolve(t.Context(), fmt.Sprint(n), driver.Answer{Body: fmt.Append(nil, n)}); err != nil {
			t.Fatal(err)
		}
	}
	for range slots {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestRequestThatCannotBeSentLeavesNoSlot (RPL-6) asks on a queue that is full, with a token that may not
// send, and with one that may not ask.
func TestRequestThatCannotBeSentLeavesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		as := func(operations ...capability.Operation) string {
			token, err := ring.Mint("", capability.Operations(operations...), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
			return token.Reveal()
		}
		backend := membox.New(nil)
		d := newDaemonWith(t, backend, oapapi.Options{}, ring, as(capability.OpSend, capability.OpAsk))
		if err := backend.ConfigureQueue(t.Context(), "sums", driver.Config{MaxMessages: 1}); err != nil {
			t.Fatal(err)
		}
		ask := func(client *remotebox.Backend, want driver.Code) {
			t.Helper()
			box := openSums(t, client)
			_, err := reply.NewClient[[]int, int](box, client.Replies(), nil).Send(t.Context(), []int{1})
			if want == "" && err != nil || want != "" && !errors.Is(err, want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		remote := newRemote(t, d, d.client())
		ask(remote.Backend, "")
		ask(remote.Backend, driver.ErrFull)
		for _, operation := range []capability.Operation{capability.OpSend, capability.OpAsk} {
			d.token = as(operation)
			other := d.client()
			ask(other, driver.ErrForbidden)
			_ = other.Close()
		}
		for _, share := range d.broker.Shares() {
			if share.Resource == "reply slots" && share.Used != 1 {
				t.Errorf("there are %d slots, want that of the first request", share.Used)
			}
		}
	})
}
