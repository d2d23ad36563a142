package redisbox

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// RPL-5: earlier waiters that have left do not keep others from waiting.
func TestSlotAcceptsManyWaitingProcessesInTurn(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	r := b.newReplyStore(0)
	if err := r.Create(t.Context(), "id", hold); err != nil {
		t.Fatal(err)
	}
	for i := range 3400 { // each stands for a process that looks once and ends
		k := b.newReplyStore(0)
		_, err := k.bucket("id").Look(t.Context(), "w", "id")
		_ = k.Close()
		if err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
	}
}

// A slot that was created again is not taken for the one before it: one process polls with
// short waits, and another deletes the slot and creates it again.
func TestWaitIgnoresEarlierSlotOfSameName(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	prefix := redistest.Prefix(t)
	here := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}).newReplyStore(0)
	there := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}).newReplyStore(0)
	ctx := t.Context()
	wrong := make(map[string]int)
	const rounds = 300
	for range rounds {
		for _, err := range []error{there.Delete(ctx, "id"), there.Create(ctx, "id", hold)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		slot, err := here.Wait(ctx, "id", 5*time.Millisecond)
		if err != nil || slot.State != driver.SlotPending {
			wrong[fmt.Sprint(slot.State, " ", err)]++
		}
	}
	if len(wrong) > 0 {
		t.Errorf("a new slot, which is pending, was seen otherwise, of %d times: %v", rounds, wrong)
	}
}

// The same, with an announcement that arrives late.
func TestLateAnnouncementDoesNotResolveNewSlot(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	r := open(t, connect(t, server.ClientOption()), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	ctx := t.Context()
	if err := r.Create(ctx, "id", hold); err != nil {
		t.Fatal(err)
	}
	if err := r.Resolve(ctx, "id", answerOf("old")); err != nil {
		t.Fatal(err)
	}
	_, text, err := r.bucket("id").Write(ctx, shard.ReplySlotScript, shard.SlotRequest{What: "t", ID: "id"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Create(ctx, "id", hold); err != nil {
		t.Fatal(err)
	}
	done := make(chan driver.Slot, 1)
	go func() {
		slot, err := r.Wait(ctx, "id", time.Second)
		if err != nil {
			t.Error(err)
		}
		done <- slot
	}()
	k := r.bucket("id")
	eventually(t, "it waits", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.waiting["id"]) == 1
	})
	k.onAnnouncement(ctx, "\x02\x00id"+text) // the announcement of the first slot
	if slot := <-done; slot.State != driver.SlotPending {
		t.Errorf("got %s %q for a slot that is pending", slot.State, slot.Answer.Body)
	}
}

// Many large answers can be waited for at once: they are not announced, because a server
// cuts off a subscriber that is 32 MB behind.
func TestManyLargeAnswersArriveAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := connect(t, server.ClientOption())
	here := open(t, connect(t, through(server, proxy)), nil).newReplyStore(0)
	there := open(t, client, nil).newReplyStore(0)
	const n, pendingBytes = 80, 43 // bytes of a slot that is pending
	body := strings.Repeat("a", 1<<20)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("big", i)
	}
	createAll(t, here, ids, hold)
	var group sync.WaitGroup
	errs := make([]error, n)
	for i, id := range ids {
		group.Go(func() {
			slot, err := here.Wait(t.Context(), id, time.Minute)
			if err == nil && len(slot.Answer.Body) != len(body) {
				err = errors.New("another body")
			}
			errs[i] = err
		})
	}
	for _, id := range ids {
		key := here.bucket(id).Keys[1]
		eventually(t, "it waits", func() bool {
			size, err := client.Do(t.Context(), client.B().Hstrlen().Key(key).Field(id).Build()).AsInt64()
			return err == nil && size > pendingBytes
		})
	}
	proxy.Blackhole(true) // so that all announcements arrive at once
	var resolving sync.WaitGroup
	for part := range 8 {
		resolving.Go(func() {
			for i := part; i < n; i += 8 {
				if err := there.Resolve(t.Context(), ids[i], answerOf(body)); err != nil {
					t.Error("resolve:", err)
				}
			}
		})
	}
	resolving.Wait()
	proxy.Blackhole(false)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("wait: %v", err)
	}
	if cut := strings.Count(server.Log(), "output buffer limits"); cut > 0 {
		t.Errorf("the server has cut the connection %d times", cut)
	}
}

// RPL-4: a waiter is woken although the slot moves to another server meanwhile.
func TestAnswerArrivesAfterSlotHasMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t, redistest.Primaries(3), redistest.Replicas(0))
	here := open(t, connect(t, cluster.ClientOption()), nil).newReplyStore(0)
	there := open(t, connect(t, cluster.ClientOption()), nil).newReplyStore(0)
	ctx := t.Context()
	for _, late := range []time.Duration{0, 500 * time.Millisecond} {
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
		k := here.bucket("id")
		eventually(t, "it listens", func() bool { return k.announcements.Active.Load() })
		pause(200 * time.Millisecond)
		from, err := cluster.PrimaryOf(ctx, k.Keys[0])
		if err != nil {
			t.Fatal(err)
		}
		to := cluster.Nodes()[0]
		if to == from {
			to = cluster.Nodes()[1]
		}
		if err := cluster.MoveSlot(ctx, redistest.Slot(k.Keys[0]), from, to, func() {}); err != nil {
			t.Fatal(err)
		}
		pause(late)
		if err := there.Resolve(ctx, "id", answerOf("yes")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		slot := <-got
		if took := time.Since(start); took > soon || string(slot.Answer.Body) != "yes" {
			t.Errorf("resolved %v after the move: got %s after %v", late, slot.State, took)
		}
		if _, err := here.Consume(ctx, "id"); err != nil {
			t.Fatal(err)
		}
	}
}
