package redisbox

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// listening returns a reply store that has waited for a slot before, so that it is
// told about slots of the bucket of this id.
func listening(t *testing.T, r *replyStore, id string) *replyBucket {
	t.Helper()
	k := r.bucket(id)
	if err := r.Create(t.Context(), id, hold); err != nil {
		t.Fatal(err)
	}
	told := k.addWaiter(t.Context(), id)
	if news := <-told; news != lookAgain { // what may have been missed before it listens
		t.Fatalf("told %q", news)
	}
	k.removeWaiter(id, told)
	if err := r.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return k
}

// desks returns a reply store behind a proxy, and another one.
func desks(t *testing.T) (here, there *replyStore, proxy *redistest.Proxy) {
	t.Helper()
	server, prefix := redistest.SharedServer(t), redistest.Prefix(t)
	proxy = redistest.NewProxy(t, server.Addr())
	here = open(t, connect(t, through(server, proxy)), &Options{Prefix: prefix}).newReplyStore(0)
	there = open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}).newReplyStore(0)
	return here, there, proxy
}

func wantAnswer(t *testing.T, r *replyStore, id, body string) {
	t.Helper()
	if slot, err := r.Wait(t.Context(), id, soon); err != nil || string(slot.Answer.Body) != body {
		t.Fatalf("got %+v, %v; want %q", slot, err, body)
	}
}

func TestWaitForCreatedSlotSendsNoCommands(t *testing.T) {
	here, there, proxy := desks(t)
	listening(t, here, "id")
	var calls atomic.Int64
	proxy.OnRequest(func(args []string) redistest.Action {
		if args[0] == "EVALSHA" || args[0] == "EVAL" {
			calls.Add(1)
		}
		return redistest.Pass
	})
	if err := here.Create(t.Context(), "id", hold); err != nil {
		t.Fatal(err)
	}
	if err := there.Resolve(t.Context(), "id", answerOf("yes")); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, here, "id", "yes")
	if got := calls.Load(); got != 1 {
		t.Errorf("to create a slot and to wait for its answer took %d calls", got)
	}
	wantAnswer(t, here, "id", "yes") // which was heard, and is still there
	if got := calls.Load(); got != 2 {
		t.Errorf("to wait once more took %d calls", got-1)
	}
}

func TestAnswerMissedBeforeWaitIsFound(t *testing.T) {
	here, there, proxy := desks(t)
	listening(t, here, "id")
	if err := here.Create(t.Context(), "id", hold); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "the connection is gone", func() bool { return proxy.Connections() == 0 })
	if err := there.Resolve(t.Context(), "id", answerOf("yes")); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(false)
	wantAnswer(t, here, "id", "yes")
}

func TestCreatedSlotExpiresInTime(t *testing.T) {
	here, there, _ := desks(t)
	listening(t, here, "id")
	for name, end := range map[string]func(id string) error{
		"cancelled elsewhere": func(id string) error { return there.Cancel(t.Context(), id) },
		"deleted elsewhere":   func(id string) error { return there.Delete(t.Context(), id) },
		"over":                func(string) error { return nil },
	} {
		ttl := hold
		if name == "over" {
			ttl = tick
		}
		if err := here.Create(t.Context(), "id", ttl); err != nil {
			t.Fatal(err)
		}
		if err := end("id"); err != nil {
			t.Fatal(err)
		}
		slot, err := here.Wait(t.Context(), "id", soon)
		switch name {
		case "cancelled elsewhere":
			if err != nil || slot.State != driver.SlotCancelled {
				t.Errorf("%s: got %+v, %v", name, slot, err)
			}
		case "deleted elsewhere":
			wantCode(t, err, driver.ErrNotFound)
		case "over":
			if err != nil || slot.State != driver.SlotExpired {
				t.Errorf("%s: got %+v, %v", name, slot, err)
			}
		}
		if err := here.Delete(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnawaitedSlotsAreForgotten: futures may be dropped, and
// slots be read by another process.
func TestUnawaitedSlotsAreForgotten(t *testing.T) {
	r := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	k := listening(t, r, "id")
	size := func() (waiting, expected int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.waiting), len(k.created.byID)
	}
	made := 0
	for i := 0; made < 2*maxCreated; i++ {
		id := fmt.Sprint("id ", i)
		if r.bucket(id) != k {
			continue
		}
		made++
		if err := r.Create(t.Context(), id, hold); err != nil {
			t.Fatal(err)
		}
		if made%2 == 0 {
			if err := r.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if waiting, expected := size(); waiting != expected || expected == 0 || expected > maxCreated {
		t.Errorf("of %d slots %d are remembered, and %d listened for", made, expected, waiting)
	}
}

func TestDiscardedSlotIsGoneAfterBackendClose(t *testing.T) {
	for name, option := range topologies(t) {
		t.Run(name, func(t *testing.T) {
			client := connect(t, option)
			b := open(t, client, &Options{Prefix: redistest.Prefix(t)})
			r := b.newReplyStore(0)
			const slots = 2 * maxDiscards
			for i := range slots {
				id := fmt.Sprint(i)
				if err := r.Create(t.Context(), id, hold); err != nil {
					t.Fatal(err)
				}
				if err := r.Resolve(t.Context(), id, answerOf("yes")); err != nil {
					t.Fatal(err)
				}
			}
			for i := range slots {
				r.Discard(t.Context(), fmt.Sprint(i))
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			for _, k := range r.buckets {
				left, err := client.Do(t.Context(), client.B().Hlen().Key(k.Key("slots")).Build()).AsInt64()
				if err != nil || left != 0 {
					t.Errorf("%d slots are left, %v", left, err)
				}
				if left, err = client.Do(t.Context(), client.B().Zcard().Key(k.Key("ends")).Build()).AsInt64(); err != nil || left != 0 {
					t.Errorf("%d ends are left, %v", left, err)
				}
			}
		})
	}
}
