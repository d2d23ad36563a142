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

// shown returns the series that have a topic, one a line, as a scrape has them.
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
					t.Errorf("%s does not say since when it counts", family.GetName())
				}
			}
			lines = append(lines, fmt.Sprintf("%s %s{%s} %v", kind, family.GetName(), text, value))
		}
	}
	return lines
}

func TestTheSeriesOfATopic(t *testing.T) {
	s := New()
	topic := s.Topic("acme", "orders")
	topic.Sent(5, 2)
	topic.Delivered(4)
	topic.Settled("ack", 1)
	topic.Settled("nack", 2)
	topic.Settled("dead-letter", 11)
	topic.Settled("extend", 3)
	topic.Died("expired", 1)
	topic.Died("max_attempts", 2)
	topic.Died("expired", 3)
	topic.Redriven(6)
	topic.Removed(7)
	topic.Dropped(8)
	topic.Keyless(9)
	topic.Measured(Level{
		Shards: []ShardLevel{
			{Label: "0", Ready: 2, Delayed: 1, InFlight: 3, Bytes: 10, Capacity: 12, MaxBytes: 100}, {Label: "1", Ready: 1, Bytes: 90, Capacity: 10, MaxBytes: 100},
		},
		MaxInFlight: 30, MaxReady: 70, RetainDead: 80,
		Dead: 4, MaxDead: 40, Keys: 5, MaxKeys: 50, OldestReady: time.Second, MaxReadyAge: time.Minute, OldestDead: 2 * time.Second, MaxDeadAge: time.Hour,
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
gauge mailbox_retain_dead_messages{queue=acme/orders} 80
gauge mailbox_retain_dead_seconds{queue=acme/orders} 3600
gauge mailbox_retain_ready_messages{queue=acme/orders} 70
gauge mailbox_retain_ready_seconds{queue=acme/orders} 60
gauge mailbox_saturation{queue=acme/orders,shard=0} 0.5
gauge mailbox_saturation{queue=acme/orders,shard=1} 0.9
counter mailbox_settled_total{outcome=ack,queue=acme/orders} 1
counter mailbox_settled_total{outcome=ack,queue=other} 0
counter mailbox_settled_total{outcome=dead-letter,queue=acme/orders} 11
counter mailbox_settled_total{outcome=dead-letter,queue=other} 0
counter mailbox_settled_total{outcome=nack,queue=acme/orders} 2
counter mailbox_settled_total{outcome=nack,queue=other} 0
`), "\n")
	if got := shown(t, s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTopicsBeyondTheBoundShareSeries(t *testing.T) {
	s := New()
	s.Topic("", "other").Sent(1, 0) // a topic may be called like that
	for i := range MaxTopics + 50 {
		topic := s.Topic("", fmt.Sprint("topic-", i))
		topic.Sent(1, 0)
		topic.Measured(Level{Shards: []ShardLevel{{Label: "0", Ready: 1}}})
	}
	if again := s.Topic("", "topic-7"); again.Label != "topic-7" {
		t.Errorf("a topic that had a label has %q now", again.Label)
	}
	enqueued := 0
	for _, line := range shown(t, s) {
		if strings.HasPrefix(line, "counter mailbox_enqueued_total{") {
			enqueued++
		}
	}
	if enqueued != MaxTopics+1 {
		t.Errorf("%d topics have series, want %d and the others", enqueued, MaxTopics)
	}
	if line := "counter mailbox_enqueued_total{queue=other} 51"; !slices.Contains(shown(t, s), line) {
		t.Errorf("there is no %s", line)
	}
}

func TestCountsAreNotLostAndDoNotGoBack(t *testing.T) {
	s := New()
	const workers, each = 8, 500
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for range each {
				topic := s.Topic("", fmt.Sprint("topic-", w%2))
				topic.Delivered(1)
				topic.Died("expired", 1)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		work.Wait()
		close(over)
	}()
	last := map[string]float64{}
	for looking := true; looking; {
		select {
		case <-over:
			looking = false // one last look
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
	for _, topic := range []string{"topic-0", "topic-1"} {
		delivered, died := last["counter mailbox_delivered_total{queue="+topic], last["counter mailbox_dlq_total{queue="+topic+",reason=expired"]
		if delivered != all || died != all {
			t.Errorf("%s has %v deliveries and %v deaths, want %d of each", topic, delivered, died, all)
		}
	}
}

// A topic that was used and measured costs its numbers and its name.
func TestTopicsCostLittle(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := New()
	s.Topic("", "the first").Sent(1, 0)
	shown(t, s)
	before := heap()
	const topics = MaxTopics - 1
	for i := range topics {
		topic := s.Topic("", fmt.Sprint("topic-", i))
		topic.Sent(1, 0)
		topic.Measured(Level{Shards: []ShardLevel{{Label: "0"}}})
	}
	shown(t, s)
	each := int64(heap()-before) / topics
	runtime.KeepAlive(s)
	t.Logf("%d bytes each", each)
	if each > 512 {
		t.Error("that is too much")
	}
}
