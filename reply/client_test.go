package reply_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

func TestCallReturnsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { o.work(ctx, reply.Handle(echo, nil)) })
		answer, err := o.client(nil).Call(t.Context(), "tea")
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "tea!")
		expectEqual(t, "slots that are left", reply.Len(o.slots), 0)
		synctest.Wait()
		o.expectRequests(t, mailbox.Stats{})
		stop()
		group.Wait()
	})
}

func TestRPL4WaitWakesOnTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		start := time.Now()
		var group sync.WaitGroup
		for range 3 { // every waiting caller gets it
			group.Go(func() {
				answer, err := future.Wait(t.Context())
				expectError(t, err, nil)
				expectEqual(t, "answer", answer, "yes")
				expectEqual(t, "time it took", time.Since(start), time.Minute)
			})
		}
		time.Sleep(time.Minute)
		expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
		group.Wait()
		answer, err := future.Wait(t.Context()) // and again
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "yes")
		expectEqual(t, "slots", reply.Len(o.slots), 0)
	})
}

func TestRPL4WaitWakesOnCancelFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		client := o.client(nil)
		future := must(client.Send(t.Context(), "tea"))(t)
		start := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			_, err := future.Wait(t.Context())
			expectError(t, err, mailbox.ErrReplyCancelled)
			expectEqual(t, "time it took", time.Since(start), time.Second)
		})
		time.Sleep(time.Second)
		elsewhere := client.Future(future.ID())
		expectError(t, elsewhere.Cancel(t.Context()), nil)
		expectError(t, elsewhere.Cancel(t.Context()), nil)
		group.Wait()
		for _, f := range []*reply.Future[string]{future, elsewhere} {
			cancelled, err := f.Cancelled(t.Context())
			expectError(t, err, nil)
			expectEqual(t, "cancelled", cancelled, true)
			_, err = f.Wait(t.Context())
			expectError(t, err, mailbox.ErrReplyCancelled)
		}
		expectError(t, mailbox.Reply(t.Context(), o.receive(t), "late"), mailbox.ErrReplyCancelled)
		o.expectRequests(t, mailbox.Stats{})
	})
}

func TestRPL4WaitWakesWhenSlotExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		client := o.client(&reply.Options[string]{TTL: time.Hour})
		for name, wait := range map[string]func(id string) *reply.Future[string]{
			"sent": func(string) *reply.Future[string] { return must(client.Send(t.Context(), "tea"))(t) },
			"resumed": func(string) *reply.Future[string] {
				return client.Future(must(client.Send(t.Context(), "tea"))(t).ID())
			},
		} {
			future := wait(name)
			start := time.Now()
			_, err := future.Wait(t.Context())
			expectError(t, err, mailbox.ErrTimeout)
			expectError(t, err, mailbox.ErrReplyExpired)
			expectEqual(t, name+": time it took", time.Since(start), time.Hour)
			_, err = future.Wait(t.Context())
			expectError(t, err, mailbox.ErrTimeout)
			expectError(t, future.Cancel(t.Context()), mailbox.ErrReplyExpired)
		}
		expectEqual(t, "slots", reply.Len(o.slots), 0)
	})
}

func TestRPL4WaitEndsWithContextAndIsRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := future.Wait(ctx)
		expectError(t, err, mailbox.ErrTimeout)
		expectError(t, err, context.DeadlineExceeded)
		expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
		answer, err := future.Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "yes")
	})
}

func TestRPL4PollReadyAndCancelledDoNotWait(t *testing.T) {
	o := newEnv(t)
	client := o.client(nil)
	future := must(client.Send(t.Context(), "tea"))(t)
	check := func(f *reply.Future[string], wantReady bool) {
		t.Helper()
		ready, err := f.Ready(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "ready", ready, wantReady)
		cancelled, err := f.Cancelled(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "cancelled", cancelled, false)
	}
	check(future, false)
	_, ready, err := future.Poll(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "ready", ready, false)
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
	check(future, true)
	check(future, true) // checking does not read it
	for range 2 {
		answer, ready, err := future.Poll(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "ready", ready, true)
		expectEqual(t, "answer", answer, "yes")
	}
	check(future, true)
	expectError(t, future.Cancel(t.Context()), mailbox.ErrReplyAlreadySent)
	expectEqual(t, "slots", reply.Len(o.slots), 0)

	stranger := client.Future("unknown")
	check(stranger, false)
	_, _, err = stranger.Poll(t.Context())
	expectError(t, err, mailbox.ErrNotFound)
	_, err = stranger.Wait(t.Context())
	expectError(t, err, mailbox.ErrNotFound)
}

// spurious is a store whose waits end too early.
type spurious struct {
	driver.ReplyStore
	share   time.Duration // a wait takes its time divided by that; 0 means no time
	calls   int
	forever bool // slots never expire here
}

func (s *spurious) Create(ctx context.Context, id string, ttl time.Duration) error {
	if s.forever {
		ttl = driver.MaxSlotTTL
	}
	return s.ReplyStore.Create(ctx, id, ttl)
}

func (s *spurious) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	s.calls++
	if s.share == 0 {
		return s.ReplyStore.Get(ctx, id)
	}
	return s.ReplyStore.Wait(ctx, id, wait/s.share)
}

func TestRPL4SpuriousWakeNeverRestartsTheClock(t *testing.T) {
	const ttl = time.Hour
	synctest.Test(t, func(t *testing.T) {
		for name, store := range map[string]*spurious{
			"half":    {share: 2},
			"at once": {},
			"broken":  {forever: true},
		} {
			o := newEnv(t)
			store.ReplyStore = o.slots
			client := reply.NewClient(o.requests, driver.ReplyStore(store), &reply.Options[string]{TTL: ttl})
			future := must(client.Send(t.Context(), "tea"))(t)
			start := time.Now()
			_, err := future.Wait(t.Context())
			expectError(t, err, mailbox.ErrTimeout)
			if took := time.Since(start); took < ttl || took > ttl+7*time.Second {
				t.Errorf("%s: waited for %v, want %v", name, took, ttl)
			}
			if store.calls > 4000 {
				t.Errorf("%s: asked %d times", name, store.calls)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			future = must(client.Send(t.Context(), "tea"))(t)
			start = time.Now()
			_, err = future.Wait(ctx)
			expectError(t, err, context.DeadlineExceeded)
			expectEqual(t, name+": time until the context ended", time.Since(start), time.Minute)
			cancel()
		}
	})
}

func TestRPL4WaitIsRepeatableAfterStoreFailure(t *testing.T) {
	o := newEnv(t)
	future := must(o.client(nil).Send(t.Context(), "tea"))(t)
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
	remove := o.faults.Add(mailboxtest.Fault{Op: "wait", Err: mailbox.ErrUnavailable})
	_, err := future.Wait(t.Context())
	expectError(t, err, mailbox.ErrUnavailable)
	remove()
	o.faults.Add(mailboxtest.Fault{Op: "delete", Err: mailbox.ErrUnavailable})
	answer, err := future.Wait(t.Context())
	expectError(t, err, nil) // a failed removal of the slot does not lose the answer
	expectEqual(t, "answer", answer, "yes")
}

func TestRPL6FailedSendLeavesNoSlot(t *testing.T) {
	o := newEnv(t)
	o.faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrFull})
	_, err := o.client(nil).Send(t.Context(), "tea")
	expectError(t, err, mailbox.ErrFull)
	expectEqual(t, "slots", reply.Len(o.slots), 0)
	o.faults.Clear()

	ctx, cancel := context.WithCancel(t.Context())
	o.faults.Add(mailboxtest.Fault{Op: "send", Delay: time.Hour})
	var group sync.WaitGroup
	group.Go(func() { _, err = o.client(nil).Send(ctx, "tea") })
	cancel()
	group.Wait()
	expectError(t, err, context.Canceled)
	expectEqual(t, "slots after a cancelled send", reply.Len(o.slots), 0)

	_, err = reply.NewClient[func(), string](mailbox.New[func()]("f", o.requests.Queue(), nil), o.store, nil).Send(t.Context(), nil)
	expectError(t, err, mailbox.ErrEncoding)
	expectEqual(t, "slots after an unencodable request", reply.Len(o.slots), 0)
}

func TestRPL6SlotOfFailedCreateIsRemoved(t *testing.T) {
	o := newEnv(t)
	o.faults.Add(mailboxtest.Fault{Op: "create slot", Err: mailbox.ErrUnavailable, Late: true})
	_, err := o.client(nil).Send(t.Context(), "tea")
	expectError(t, err, mailbox.ErrUnavailable)
	expectEqual(t, "slots", reply.Len(o.slots), 0)
}

func TestCallCancelsRequestWhenStoreFails(t *testing.T) {
	o := newEnv(t)
	o.faults.Add(mailboxtest.Fault{Op: "wait", Err: mailbox.ErrUnavailable, Times: 1})
	_, err := o.client(nil).Call(t.Context(), "tea")
	expectError(t, err, mailbox.ErrUnavailable)
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "late"), mailbox.ErrReplyCancelled)
	o.expectRequests(t, mailbox.Stats{})
}

func TestRPL6RequestIsNotSentWithoutASlot(t *testing.T) {
	o := newEnv(t)
	o.faults.Add(mailboxtest.Fault{Op: "create slot", Err: mailbox.ErrUnavailable})
	_, err := o.client(nil).Call(t.Context(), "tea")
	expectError(t, err, mailbox.ErrUnavailable)
	o.expectRequests(t, mailbox.Stats{})
	_, err = o.client(&reply.Options[string]{TTL: -1}).Call(t.Context(), "tea")
	expectError(t, err, mailbox.ErrUnavailable)
	o.faults.Clear()
	_, err = o.client(&reply.Options[string]{TTL: -1}).Call(t.Context(), "tea")
	expectError(t, err, mailbox.ErrInvalid)
	o.expectRequests(t, mailbox.Stats{})
}

func TestRPL6ErrorRepliesKeepKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { o.work(ctx, reply.Handle(echo, nil)) })
		answer, err := o.client(nil).Call(t.Context(), "coffee")
		expectEqual(t, "answer", answer, "")
		expectError(t, err, errSoldOut)
		failure, ok := errors.AsType[*mailbox.Failure](err)
		if !ok || failure.Text != "sold out: coffee" {
			t.Errorf("error is %#v", err)
		}
		stop()
		group.Wait()
		o.expectRequests(t, mailbox.Stats{})
	})
}

func TestUndecodableAnswerIsError(t *testing.T) {
	o := newEnv(t)
	future := must(reply.NewClient[string, int](o.requests, o.store, nil).Send(t.Context(), "tea"))(t)
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "not a number"), nil)
	_, err := future.Wait(t.Context())
	expectError(t, err, mailbox.ErrEncoding)
}

func TestCallCancelsRequestWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := o.client(nil).Call(ctx, "tea")
		expectError(t, err, mailbox.ErrTimeout)
		expectError(t, err, context.DeadlineExceeded)
		served := false
		handle := reply.Handle(func(context.Context, *mailbox.Message[string]) (string, error) { served = true; return "", nil }, nil)
		expectError(t, handle(t.Context(), o.receive(t)), nil)
		expectEqual(t, "served", served, false)
		o.expectRequests(t, mailbox.Stats{})
		time.Sleep(reply.DefaultTTL)
		swept, err := o.slots.Sweep(t.Context(), 10)
		expectError(t, err, nil)
		expectEqual(t, "swept", swept, 1)
	})
}

func TestCallReturnsAnswerThatBeatCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		// Wait misses the answer; Cancel finds it.
		deaf := &deafStore{ReplyStore: o.slots}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			answer, err := reply.NewClient[string, string](o.requests, deaf, nil).Call(ctx, "tea")
			expectError(t, err, nil)
			expectEqual(t, "answer", answer, "yes")
		})
		synctest.Wait()
		expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
		group.Wait()
		expectEqual(t, "slots", reply.Len(o.slots), 0)
	})
}

type deafStore struct{ driver.ReplyStore }

func (s *deafStore) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if slot, err := s.Get(ctx, id); err != nil || slot.State != driver.SlotPending || wait <= 0 {
		return slot, err
	}
	<-ctx.Done()
	return driver.Slot{}, ctx.Err()
}

func TestRestartedClientFindsAnswerByID(t *testing.T) {
	o := newEnv(t)
	future := must(o.client(nil).Send(t.Context(), "tea"))(t)
	id := future.ID() // kept somewhere safe
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
	answer, err := o.client(nil).Future(id).Wait(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "answer", answer, "yes")
	_, err = o.client(nil).Future(id).Wait(t.Context())
	expectError(t, err, mailbox.ErrNotFound) // it was read
}

func TestKeptAnswersCanBeReadAgain(t *testing.T) {
	o := newEnv(t)
	client := o.client(&reply.Options[string]{Keep: true})
	future := must(client.Send(t.Context(), "tea"))(t)
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
	for range 3 {
		answer, err := client.Future(future.ID()).Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "yes")
	}
}

func TestSendAsCanBeRepeated(t *testing.T) {
	o := newEnv(t)
	client := o.client(nil)
	first := must(client.SendAs(t.Context(), "order 7", "tea"))(t)
	again := must(client.SendAs(t.Context(), "order 7", "tea"))(t)
	expectEqual(t, "id", again.ID(), first.ID())
	o.expectRequests(t, mailbox.Stats{Ready: 1})
	expectError(t, mailbox.Reply(t.Context(), o.receive(t), "yes"), nil)
	third := must(client.SendAs(t.Context(), "order 7", "tea"))(t) // answered already
	for _, future := range []*reply.Future[string]{third} {
		answer, err := future.Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "yes")
	}
	_, err := client.SendAs(t.Context(), "order 7", "tea") // answered, and read
	expectError(t, err, mailbox.ErrReplyExpired)
	expectEqual(t, "slots", reply.Len(o.slots), 0)
	_, err = client.SendAs(t.Context(), "order 7", "coffee")
	expectError(t, err, mailbox.ErrConflict)
	expectEqual(t, "slots", reply.Len(o.slots), 0)
}

func TestSendAsAfterExpirySendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		client := o.client(&reply.Options[string]{TTL: time.Minute})
		must(client.SendAs(t.Context(), "order 7", "tea"))(t)
		time.Sleep(2 * time.Minute)
		_, err := client.SendAs(t.Context(), "order 7", "tea") // the request is known for longer than its slot
		expectError(t, err, mailbox.ErrReplyExpired)
		time.Sleep(driver.DefaultDedupWindow)
		future := must(client.SendAs(t.Context(), "order 7", "tea"))(t)
		expectError(t, mailbox.Reply(t.Context(), must(o.requests.Receive(t.Context(), mailbox.WithMax(2)))(t)[1], "yes"), nil)
		answer, err := future.Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "yes")
	})
}

func TestRepeatedRequestWithAnotherSlotIsRefused(t *testing.T) {
	o := newEnv(t)
	client := o.client(nil)
	must(client.Send(t.Context(), "tea", mailbox.WithDedupKey("k")))(t)
	_, err := client.Send(t.Context(), "tea", mailbox.WithDedupKey("k"))
	expectError(t, err, mailbox.ErrConflict)
	expectEqual(t, "slots", reply.Len(o.slots), 1)
}

func TestClientWithoutMailboxOrStoreIsInvalid(t *testing.T) {
	o := newEnv(t)
	for _, client := range []*reply.Client[string, string]{
		reply.NewClient[string, string](nil, o.store, nil),
		reply.NewClient[string, string](o.requests, nil, nil),
	} {
		_, err := client.Call(t.Context(), "tea")
		expectError(t, err, mailbox.ErrInvalid)
	}
	lost := reply.NewClient[string, string](o.requests, nil, nil).Future("x")
	_, err := lost.Wait(t.Context())
	expectError(t, err, mailbox.ErrInvalid)
	expectError(t, lost.Cancel(t.Context()), mailbox.ErrInvalid)
}

func TestIdsCannotBeGuessed(t *testing.T) {
	o := newEnv(t)
	seen := make(map[string]bool)
	for range 100 {
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		if seen[future.ID()] || len(future.ID()) < 32 || strings.Count(future.ID(), future.ID()[:1]) == len(future.ID()) {
			t.Errorf("id %q", future.ID())
		}
		seen[future.ID()] = true
	}
}
