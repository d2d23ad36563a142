package redisbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// A storeUnderTest is a reply store with the prefix of its slots.
type storeUnderTest struct {
	*replyStore
	prefix string
}

func TestRedisReplyStoreConformance(t *testing.T) {
	t.Parallel()
	for name, option := range topologies(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, other := connect(t, option), connect(t, option)
			drivertest.RunReplyStore(t, drivertest.ReplyStore{
				Open: func(t testing.TB) driver.ReplyStore {
					beside(t)
					prefix := redistest.Prefix(t)
					return &storeUnderTest{open(t, client, &Options{Prefix: prefix}).newReplyStore(0), prefix}
				},
				Another: func(t testing.TB, store driver.ReplyStore) driver.ReplyStore {
					return open(t, other, &Options{Prefix: store.(*storeUnderTest).prefix}).newReplyStore(0)
				},
			})
		})
	}
}

func answerOf(body string) driver.Answer { return driver.Answer{Body: []byte(body)} }

// TestRepeatedSlotCallTakesEffectOnce: a call that is repeated because its answer was lost
// is not taken for a call of another process.
func TestRepeatedSlotCallTakesEffectOnce(t *testing.T) {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	r := open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	ctx := t.Context()
	for name, action := range map[string]redistest.Action{
		"before the request": redistest.CutBefore, "inside the request": redistest.CutInside, "before the answer": redistest.CutAfter,
	} {
		cuts := 0
		cut := func() { // cuts the next call
			armed := true
			proxy.OnRequest(func(args []string) redistest.Action {
				if armed && (args[0] == "EVALSHA" || args[0] == "EVAL") {
					armed = false
					cuts++
					return action
				}
				return redistest.Pass
			})
		}
		for range 2 {
			cut()
			if err := r.Create(ctx, "id", hold); err != nil {
				t.Errorf("create cut %s: %v", name, err)
			}
			cut()
			if err := r.Resolve(ctx, "id", answerOf("yes")); err != nil {
				t.Errorf("resolve cut %s: %v", name, err)
			}
			wantCode(t, r.Resolve(ctx, "id", answerOf("again")), driver.ErrReplyAlreadySent)
			cut()
			if slot, err := r.Consume(ctx, "id"); err != nil || string(slot.Answer.Body) != "yes" {
				t.Errorf("consume cut %s: got %+v, %v", name, slot, err)
			}
			_, err := r.Get(ctx, "id")
			wantCode(t, err, driver.ErrNotFound)
		}
		if cuts != 6 {
			t.Errorf("%d calls were cut %s: this proves nothing", cuts, name)
		}
	}
}

// TestWaitForAnswerSendsNoCommands: one call starts the wait, and Redis pushes the answer.
func TestWaitForAnswerSendsNoCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	option := server.ClientOption()
	option.Dialer.KeepAlive = time.Minute
	here, there := open(t, connect(t, option), nil).newReplyStore(0), open(t, connect(t, option), nil).newReplyStore(0)
	ctx := t.Context()
	for i := range 3 {
		id := fmt.Sprint("slot ", i)
		if err := here.Create(ctx, id, hold); err != nil {
			t.Fatal(err)
		}
		got := make(chan driver.Slot, 1)
		go func() {
			slot, err := here.Wait(ctx, id, time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- slot
		}()
		k := here.bucket(id)
		eventually(t, "it waits", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.waiting[id]) == 1 && k.announcements.Active.Load()
		})
		expectNoCommands(t, server)
		if err := there.Resolve(ctx, id, answerOf(id)); err != nil {
			t.Fatal(err)
		}
		select {
		case slot := <-got:
			if string(slot.Answer.Body) != id {
				t.Errorf("got %q for %q", slot.Answer.Body, id)
			}
		case <-time.After(soon):
			t.Fatal("the waiter was not woken")
		}
	}
}

// expectNoCommands waits until the server gets no command for a while: longer than the
// interval of a polling client.
func expectNoCommands(t *testing.T, server *redistest.Server) {
	t.Helper()
	eventually(t, "no commands are sent", func() bool {
		before := redistest.CommandCount(t, server)
		pause(pollInterval + pollInterval/4)
		return redistest.CommandCount(t, server) == before
	})
}

// TestMissedAnswerIsFound: an answer that was announced while the connection was cut is
// found when the connection is back.
func TestMissedAnswerIsFound(t *testing.T) {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	prefix, ctx := redistest.Prefix(t), t.Context()
	here := open(t, connect(t, through(server, proxy)), &Options{Prefix: prefix}).newReplyStore(0)
	there := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}).newReplyStore(0)
	if err := here.Create(ctx, "id", hold); err != nil {
		t.Fatal(err)
	}
	got := make(chan driver.Slot, 1)
	go func() {
		slot, err := here.Wait(ctx, "id", time.Minute)
		if err != nil {
			t.Error(err)
		}
		got <- slot
	}()
	eventually(t, "it listens", func() bool { return here.bucket("id").announcements.Active.Load() })
	pause(100 * time.Millisecond)
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "the connection is gone", func() bool { return proxy.Connections() == 0 })
	if err := there.Resolve(ctx, "id", answerOf("yes")); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(false)
	select {
	case slot := <-got:
		if string(slot.Answer.Body) != "yes" {
			t.Errorf("got %+v", slot)
		}
	case <-time.After(soon):
		t.Fatal("the answer was not found")
	}
}

func TestSlotsAreBoundedAndSpread(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	r := open(t, connect(t, cluster.ClientOption()), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(10 * shard.Buckets)
	primaries := make(map[string]bool)
	for _, k := range r.buckets {
		primary, err := cluster.PrimaryOf(t.Context(), k.Keys[0])
		if err != nil {
			t.Fatal(err)
		}
		primaries[primary.Addr()] = true
		for _, key := range k.Keys {
			if redistest.Slot(key) != redistest.Slot(k.Keys[0]) {
				t.Errorf("%s is not in the slot of %s", key, k.Keys[0])
			}
		}
	}
	if len(primaries) != 3 {
		t.Errorf("slots are on %d of 3 primaries", len(primaries))
	}
	made, refused := 0, 0
	for i := range 20 * shard.Buckets {
		switch err := r.Create(t.Context(), fmt.Sprint(i), hold); {
		case err == nil:
			made++
		case errors.Is(err, driver.ErrFull) && driver.RetryAfter(err) > 0:
			refused++
		default:
			t.Fatal(err)
		}
	}
	if made > 10*shard.Buckets || refused == 0 {
		t.Errorf("%d slots were made and %d refused, in a store for %d", made, refused, 10*shard.Buckets)
	}
}

func TestClosedReplyStoreWakesWaiters(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	for _, test := range []struct {
		name string
		end  func(r *replyStore) error
	}{
		{"the store", (*replyStore).Close},
		{"the backend", func(*replyStore) error { return b.Close() }},
	} {
		name, end, r := test.name, test.end, b.newReplyStore(0)
		if err := r.Create(t.Context(), "id "+name, hold); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := r.Wait(t.Context(), "id "+name, time.Minute)
			ended <- err
		}()
		k := r.bucket("id " + name)
		eventually(t, "it listens", func() bool { return k.announcements.Active.Load() })
		if err := end(r); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			wantCode(t, err, driver.ErrClosed)
		case <-time.After(soon):
			t.Fatal("the waiter was not woken")
		}
		wantCode(t, r.Delete(t.Context(), "id "+name), driver.ErrClosed)
	}
}
