package redisbox

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// TestOldConfigurationsCanBeRead: neither what is stored nor what scripts read has
// what can be set since then.
func TestOldConfigurationsCanBeRead(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	config := driver.Config{MaxDeliveries: 3, RetainReady: driver.Retention{Age: tick}}
	q := configured(t, b, config.Effective()) // 0 was off
	var fields map[string]any
	if err := json.Unmarshal([]byte(shard.Stored(config, 0)), &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "Annotation")
	delete(fields, "DropExpired")
	before, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	meta := keyOf(q, "meta")
	if err := b.server.Client.Do(t.Context(), b.server.Client.B().Hset().Key(meta).FieldValue().FieldValue("settings", string(before)).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if packed := field(t, b, meta, "rules"); len(packed) != 8*15 {
		t.Fatalf("scripts read %d bytes, and used to read 120", len(packed))
	}
	if got, err := b.QueueConfig(t.Context(), "orders"); err != nil || got != config.Effective() {
		t.Errorf("got %+v, error %v; want %+v", got, err, config.Effective())
	}
	send(t, q, "a")
	pause(2 * tick)
	wantStats(t, q, driver.Stats{Dead: 1})
}

// VIS-5: a queue of an earlier version has multiples of the visibility, in its
// settings and in what scripts read.
func TestStoredMultipleHoldsForTwelveHours(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{MaxHold: time.Hour})
	meta := keyOf(q, "meta")
	rules := field(t, b, meta, "rules")
	const at = 8 * 7 // after version, strict, deliveries, messages, bytes, in flight and dead
	if shard.DoubleAt(rules, 7) != float64(time.Hour) {
		t.Fatalf("scripts read a hold of %v", shard.DoubleAt(rules, 7))
	}
	settings := strings.Replace(field(t, b, meta, "settings"), `"MaxHold":3600000000000`, `"MaxHold":10`, 1)
	err := b.server.Client.Do(t.Context(), b.server.Client.B().Hset().Key(meta).FieldValue().FieldValue("settings", settings).
		FieldValue("rules", rules[:at]+shard.PackDoubles(10)+rules[at+8:]).Build()).Error()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.QueueConfig(t.Context(), "orders"); err != nil || got.MaxHold != 12*time.Hour {
		t.Errorf("got a MaxHold of %v, error %v; want 12 hours", got.MaxHold, err)
	}
	for range 2 { // by the fast path and by the slow one
		send(t, q, "a", "b")
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: time.Minute})
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		granted, err := q.Extend(t.Context(), []driver.Extension{{Receipt: got[0].Receipt, Visibility: 11 * time.Hour}, {Receipt: got[1].Receipt}})
		if err != nil || granted[0] != 11*time.Hour || granted[1] != 0 {
			t.Errorf("extend by 11 hours: granted %v, error %v", granted, err)
		}
	}
}

func field(t *testing.T, b *Backend, key, name string) string {
	t.Helper()
	text, err := b.server.Client.Do(t.Context(), b.server.Client.B().Hget().Key(key).Field(name).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}
	return text
}

// TestAnnotationIsStoredOnce: shards need not have it, and listing queues does not read
// it.
func TestAnnotationIsStoredOnce(t *testing.T) {
	t.Parallel()
	for topology, option := range topologies(t) {
		b := open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)})
		config := driver.Config{Shards: 3, DedupWindow: time.Hour, DropExpired: true, Annotation: strings.Repeat("<ä\u2028\x00\">", 1000)}.Effective()
		q := configured(t, b, config)
		if got, err := b.QueueConfig(t.Context(), "orders"); err != nil || got != config {
			t.Errorf("%s: got %+v, error %v", topology, got, err)
		}
		for _, s := range q.Shards {
			if n := len(field(t, b, s.Keys[0], "settings")); (n > len(config.Annotation)) != (s.Number == 0) {
				t.Errorf("%s: shard %d has settings of %d bytes", topology, s.Number, n)
			}
		}
		config.Annotation, config.DropExpired = "", false
		if err := b.ConfigureQueue(t.Context(), "orders", config); err != nil {
			t.Fatal(err)
		}
		if got, err := b.QueueConfig(t.Context(), "orders"); err != nil || got != config {
			t.Errorf("%s: got %+v, error %v", topology, got, err)
		}
	}
}

// TestParallelConfiguresKeepEachOthersSettings: each process sets one setting and leaves
// the other unset, which must not reset it.
func TestParallelConfiguresKeepEachOthersSettings(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	first := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	second := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	for round := 1; round <= 30; round++ {
		var group sync.WaitGroup
		for backend, config := range map[*Backend]driver.Config{first: {MaxDeliveries: round}, second: {MaxMessages: round}} {
			group.Go(func() {
				if err := backend.ConfigureQueue(t.Context(), "orders", config); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		got, err := first.QueueConfig(t.Context(), "orders")
		if err != nil || got.MaxDeliveries != round || got.MaxMessages != round {
			t.Fatalf("round %d: got %+v, error %v", round, got, err)
		}
	}
}
