package metrics

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// shown returns the series that have a queue label, one per line, as in a scrape.
func shown(t *testing.T, s *Set) []string {
	t.Helper()
	families, err := s.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			text := strings.Join(labels, ",")
			if !strings.Contains(text, "queue=") {
				continue
			}
			kind, value := strings.ToLower(family.GetType().String()), metric.GetGauge().GetValue()
			if counter := metric.GetCounter(); counter != nil {
				value = counter.GetValue()
				if counter.GetCreatedTimestamp() == nil {
					t.Errorf("%s has no created timestamp", family.GetName())
				}
			}
			lines = append(lines, fmt.Sprintf("%s %s{%s} %v", kind, family.GetName(), text, value))
		}
	}
	return lines
}

func TestQueueSeriesShowCountsAndLevels(t *testing.T) {
	s := New()
	queue := s.Queue("acme", "orders")
	queue.Sent(5, 2)
	queue.Delivered(4)
	queue.Settled("ack", 1)
	queue.Settled("nack", 2)
	queue.Settled("release", 12)
	queue.Settled("put-back", 13)
	queue.Settled("dead-letter", 11)
	queue.Settled("extend", 3)
	queue.Died("expired", 1)
	queue.Died("max_attempts", 2)
	queue.Died("expired", 3)
	queue.Edited("remove")
	queue.Edited("ready")
	queue.Edited("due")
	queue.Edited("due")
	queue.Edited("priority")
	queue.Edited("replace")
	queue.Fired("sent", 14)
	queue.Fired("failed", 15)
	queue.Redriven(6)
	queue.Removed(7)
	queue.Dropped(8)
	queue.Keyless(9)
	queue.Measured(Level{
		Shards: []ShardLevel{
			{Label: "0", Ready: 2, Delayed: 1, InFlight: 3, Bytes: 10, Capacity: 12, MaxBytes: 100}, {Label: "1", Ready: 1, Bytes: 90, Capacity: 10, MaxBytes: 100},
		},
		MaxInFlight: 30, MaxReady: 70, RetainDead: 80, Paused: 1, Throttled: 3,
		Dead: 4, MaxDead: 40, Keys: 5, MaxKeys: 50, Unique: 6, MaxUnique: 60, OldestReady: time.Second, MaxReadyAge: time.Minute, OldestDead: 2 * time.Second, MaxDeadAge: time.Hour,
	})
	want := strings.Split(strings.TrimSpace(`
gauge mailbox_dedup_keys{queue=acme/orders} 5
gauge mailbox_dedup_keys_limit{queue=acme/orders} 50
counter mailbox_deduplicated_total{queue=acme/orders} 2
counter mailbox_deduplicated_total{queue=other} 0
counter mailbox_delivered_total{queue=acme/orders} 4
counter mailbox_delivered_total{queue=other} 0
gauge mailbox_dlq_depth{queue=acme/orders} 4
gauge mailbox_dlq_limit{queue=acme/orders} 40
counter mailbox_dlq_redriven_total{queue=acme/orders} 6
counter mailbox_dlq_redriven_total{queue=other} 0
counter mailbox_dlq_removed_total{queue=acme/orders} 7
counter mailbox_dlq_removed_total{queue=other} 0
counter mailbox_dlq_total{queue=acme/orders,reason=expired} 4
counter mailbox_dlq_total{queue=acme/orders,reason=max_attempts} 2
counter mailbox_dropped_total{queue=acme/orders} 8
counter mailbox_dropped_total{queue=other} 0
counter mailbox_edited_total{change=due,queue=acme/orders} 2
counter mailbox_edited_total{change=due,queue=other} 0
counter mailbox_edited_total{change=priority,queue=acme/orders} 1
counter mailbox_edited_total{change=priority,queue=other} 0
counter mailbox_edited_total{change=ready,queue=acme/orders} 1
counter mailbox_edited_total{change=ready,queue=other} 0
counter mailbox_edited_total{change=remove,queue=acme/orders} 1
counter mailbox_edited_total{change=remove,queue=other} 0
counter mailbox_edited_total{change=replace,queue=acme/orders} 1
counter mailbox_edited_total{change=replace,queue=other} 0
counter mailbox_enqueued_total{queue=acme/orders} 5
counter mailbox_enqueued_total{queue=other} 0
counter mailbox_extended_total{queue=acme/orders} 3
counter mailbox_extended_total{queue=other} 0
gauge mailbox_inflight{queue=acme/orders,shard=0} 3
gauge mailbox_inflight{queue=acme/orders,shard=1} 0
gauge mailbox_inflight_limit{queue=acme/orders} 30
counter mailbox_keyless_total{queue=acme/orders} 9
counter mailbox_keyless_total{queue=other} 0
gauge mailbox_oldest_dead_seconds{queue=acme/orders} 2
gauge mailbox_oldest_ready_seconds{queue=acme/orders} 1
gauge mailbox_queue_bytes{queue=acme/orders,shard=0} 10
gauge mailbox_queue_bytes{queue=acme/orders,shard=1} 90
gauge mailbox_queue_bytes_limit{queue=acme/orders,shard=0} 100
gauge mailbox_queue_bytes_limit{queue=acme/orders,shard=1} 100
gauge mailbox_queue_depth{queue=acme/orders,shard=0,state=delayed} 1
gauge mailbox_queue_depth{queue=acme/orders,shard=0,state=ready} 2
gauge mailbox_queue_depth{queue=acme/orders,shard=1,state=delayed} 0
gauge mailbox_queue_depth{queue=acme/orders,shard=1,state=ready} 1
gauge mailbox_queue_limit{queue=acme/orders,shard=0} 12
gauge mailbox_queue_limit{queue=acme/orders,shard=1} 10
gauge mailbox_queue_paused{queue=acme/orders} 1
gauge mailbox_queue_throttled{queue=acme/orders} 3
gauge mailbox_retain_dead_messages{queue=acme/orders} 80
gauge mailbox_retain_dead_seconds{queue=acme/orders} 3600
gauge mailbox_retain_ready_messages{queue=acme/orders} 70
gauge mailbox_retain_ready_seconds{queue=acme/orders} 60
gauge mailbox_saturation{queue=acme/orders,shard=0} 0.5
gauge mailbox_saturation{queue=acme/orders,shard=1} 0.9
counter mailbox_schedule_runs_total{outcome=failed,queue=acme/orders} 15
counter mailbox_schedule_runs_total{outcome=failed,queue=other} 0
counter mailbox_schedule_runs_total{outcome=sent,queue=acme/orders} 14
counter mailbox_schedule_runs_total{outcome=sent,queue=other} 0
counter mailbox_settled_total{outcome=ack,queue=acme/orders} 1
counter mailbox_settled_total{outcome=ack,queue=other} 0
counter mailbox_settled_total{outcome=dead-letter,queue=acme/orders} 11
counter mailbox_settled_total{outcome=dead-letter,queue=other} 0
counter mailbox_settled_total{outcome=nack,queue=acme/orders} 2
counter mailbox_settled_total{outcome=nack,queue=other} 0
counter mailbox_settled_total{outcome=put-back,queue=acme/orders} 13
counter mailbox_settled_total{outcome=put-back,queue=other} 0
counter mailbox_settled_total{outcome=release,queue=acme/orders} 12
counter mailbox_settled_total{outcome=release,queue=other} 0
gauge mailbox_unique_keys{queue=acme/orders} 6
gauge mailbox_unique_keys_limit{queue=acme/orders} 60
`), "\n")
	if got := shown(t, s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestQueuesBeyondBoundShareSeries(t *testing.T) {
	s := New()
	s.Queue("", "other").Sent(1, 0) // a queue may have this name
	for i := range MaxQueues + 50 {
		queue := s.Queue("", fmt.Sprint("queue-", i))
		queue.Sent(1, 0)
		queue.Measured(Level{Shards: []ShardLevel{{Label: "0", Ready: 1}}})
	}
	if again := s.Queue("", "queue-7"); again.Label != "queue-7" {
		t.Errorf("a queue that had a label has %q now", again.Label)
	}
	enqueued := 0
	for _, line := range shown(t, s) {
		if strings.HasPrefix(line, "counter mailbox_enqueued_total{") {
			enqueued++
		}
	}
	if enqueued != MaxQueues+1 {
		t.Errorf("%d queues have series, want %d and the label other", enqueued, MaxQueues)
	}
	if line := "counter mailbox_enqueued_total{queue=other} 51"; !slices.Contains(shown(t, s), line) {
		t.Errorf("missing series %s", line)
	}
}

func TestCountsNeverDecreaseUnderConcurrentUse(t *testing.T) {
	s := New()
	const workers, each = 8, 500
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for range each {
				queue := s.Queue("", fmt.Sprint("queue-", w%2))
				queue.Delivered(1)
				queue.Died("expired", 1)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		work.Wait()
		close(over)
	}()
	last := map[string]float64{}
	for scraping := true; scraping; {
		select {
		case <-over:
			scraping = false // one last scrape
		default:
		}
		for _, line := range shown(t, s) {
			series, text, _ := strings.Cut(line, "} ")
			value, err := strconv.ParseFloat(text, 64)
			if err != nil || value < last[series] {
				t.Fatalf("%s} was %v and is %s: %v", series, last[series], text, err)
			}
			last[series] = value
		}
	}
	const all = workers / 2 * each
	for _, queue := range []string{"queue-0", "queue-1"} {
		delivered, died := last["counter mailbox_delivered_total{queue="+queue], last["counter mailbox_dlq_total{queue="+queue+",reason=expired"]
		if delivered != all || died != all {
			t.Errorf("%s has %v deliveries and %v deaths, want %d of each", queue, delivered, died, all)
		}
	}
}

func TestMeasuredQueueCostsAtMost512Bytes(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := New()
	s.Queue("", "the first").Sent(1, 0)
	shown(t, s)
	before := heap()
	const queues = MaxQueues - 1
	for i := range queues {
		queue := s.Queue("", fmt.Sprint("queue-", i))
		queue.Sent(1, 0)
		queue.Measured(Level{Shards: []ShardLevel{{Label: "0"}}})
	}
	shown(t, s)
	each := int64(heap()-before) / queues
	runtime.KeepAlive(s)
	t.Logf("%d bytes each", each)
	if each > 512 {
		t.Error("want at most 512")
	}
}
