package redisbox

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// inBucket returns ids of n slots in one bucket.
func inBucket(r *replyStore, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprint("slot ", i); r.bucket(id) == r.buckets[0] {
			ids = append(ids, id)
		}
	}
	return ids
}

func createAll(t *testing.T, r *replyStore, ids []string, ttl time.Duration) {
	t.Helper()
	var group sync.WaitGroup
	for part := range 50 {
		group.Go(func() {
			for i := part; i < len(ids); i += 50 {
				if err := r.Create(t.Context(), ids[i], ttl); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// memoryOf returns how many bytes the server uses for a bucket.
func memoryOf(t *testing.T, client rueidis.Client, k *replyBucket) (size int64) {
	t.Helper()
	for _, key := range k.Keys {
		n, err := client.Do(t.Context(), client.B().MemoryUsage().Key(key).Samples(0).Build()).AsInt64()
		if err != nil && !rueidis.IsRedisNil(err) { // it is empty
			t.Fatal(err)
		}
		size += n
	}
	return size
}

// RPL-5: many slots can be listed and swept with one call.
func TestManySlotsCanBeSweptAtOnce(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	r := open(t, client, &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	ids := inBucket(r, 4500)
	createAll(t, r, ids, hold)
	for _, id := range ids { // makes it expire
		if err := client.Do(t.Context(), client.B().Zadd().Key(r.buckets[0].Keys[2]).ScoreMember().ScoreMember(1, id).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Expired(t.Context(), 10_000)
	if err != nil || len(got) != len(ids) {
		t.Errorf("expired: %d of %d, %v", len(got), len(ids), err)
	}
	removed, err := r.Sweep(t.Context(), 10_000)
	if err != nil || removed != len(ids) {
		t.Errorf("sweep: removed %d of %d, %v", removed, len(ids), err)
	}
	if got, err := r.Expired(t.Context(), 1000); err != nil || len(got) > 0 {
		t.Errorf("afterwards %d are left, error %v", len(got), err)
	}
	if size := memoryOf(t, client, r.buckets[0]); size > 64<<10 {
		t.Errorf("no slot is left, but the bucket has %d KiB", size>>10)
	}
}

// The server does not keep a consumed answer.
func TestConsumedAnswerIsGone(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	r := open(t, client, &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	const n, workers = 32, 8
	ids := inBucket(r, n)
	createAll(t, r, ids, hold)
	for _, id := range ids {
		if err := r.Resolve(t.Context(), id, answerOf(strings.Repeat("s", 1<<20))); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for some := range slices.Chunk(ids, n/workers) {
		group.Go(func() {
			for _, id := range some {
				if _, err := r.Consume(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if size := memoryOf(t, client, r.buckets[0]); size > 1<<20 {
		t.Errorf("no slot is left, but the bucket has %d MiB", size>>20)
	}
}

// RPL-5: the server forgets a large answer soon after it has arrived.
func TestLargeAnswerSurvivesLostConnection(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	r := open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	body := strings.Repeat("a", 1<<20)
	if err := r.Create(t.Context(), "id", hold); err != nil {
		t.Fatal(err)
	}
	if err := r.Resolve(t.Context(), "id", answerOf(body)); err != nil {
		t.Fatal(err)
	}
	var cuts atomic.Int32
	proxy.OnRequest(func(args []string) redistest.Action {
		if strings.HasPrefix(args[0], "EVAL") && cuts.CompareAndSwap(0, 1) {
			return redistest.CutAfter
		}
		return redistest.Pass
	})
	slot, err := r.Consume(t.Context(), "id")
	if err != nil || string(slot.Answer.Body) != body {
		t.Errorf("got %d bytes, error %v", len(slot.Answer.Body), err)
	}
	if cuts.Load() != 1 {
		t.Error("nothing was cut")
	}
}

// driver.ReplyStore: a store removes an expired slot a minute later at the earliest; until
// then it is expired and not unknown.
func TestFullStoreKeepsExpiredSlotsForAMinute(t *testing.T) {
	t.Parallel()
	r := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(shard.Buckets)
	ids := inBucket(r, 2)
	start := time.Now()
	if err := r.Create(t.Context(), ids[0], 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	pause(100 * time.Millisecond)
	err := r.Create(t.Context(), ids[1], hold)
	wantCode(t, err, driver.ErrFull)
	if after := driver.RetryAfter(err); after < time.Minute-time.Since(start) || after > time.Minute {
		t.Errorf("there is room after %v, want the rest of a minute", after)
	}
	if slot, err := r.Get(t.Context(), ids[0]); err != nil || slot.State != driver.SlotExpired {
		t.Errorf("soon after its end: got %s, error %v", slot.State, err)
	}
}
