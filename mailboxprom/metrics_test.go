package mailboxprom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxprom"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

var errMilk = errors.New("no milk")

// An env is a registry with our metrics, and a backend that can fail.
type env struct {
	*testing.T
	registry *prometheus.Registry
	metrics  *mailboxprom.Metrics
	faults   *mailboxtest.Faults
}

func newEnv(t *testing.T, options *mailboxprom.Options) *env {
	t.Helper()
	s := &env{T: t, registry: prometheus.NewPedanticRegistry(), faults: mailboxtest.NewFaults(nil)}
	t.Cleanup(func() { _ = s.faults.Close() })
	var err error
	s.metrics, err = mailboxprom.New(s.registry, options)
	s.must(err)
	return s
}

func (s *env) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *env) open(name string) *mailbox.Mailbox[string] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.faults, name, &mailbox.Options[string]{Hooks: s.metrics.MailboxHooks(), Replies: reply.NewMemory(nil)})
	s.must(err)
	s.Cleanup(func() { _ = m.Close() })
	return m
}

// expectLines compares the metrics with these names with lines of the text format.
func (s *env) expectLines(lines string, names ...string) {
	s.Helper()
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(lines), names...); err != nil {
		s.Error(err)
	}
}

// value returns the value of a sample written as in the text format, such as name_count
// or name_sum for a histogram.
func (s *env) value(sample string) float64 {
	s.Helper()
	families, err := s.registry.Gather()
	s.must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, pair := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", pair.GetName(), pair.GetValue()))
			}
			suffix := ""
			if len(labels) > 0 {
				suffix = "{" + strings.Join(labels, ",") + "}"
			}
			for name, value := range map[string]float64{
				family.GetName():            m.GetCounter().GetValue() + m.GetGauge().GetValue(),
				family.GetName() + "_count": float64(m.GetHistogram().GetSampleCount()),
				family.GetName() + "_sum":   m.GetHistogram().GetSampleSum(),
			} {
				if name+suffix == sample {
					return value
				}
			}
		}
	}
	return 0
}

func (s *env) expect(sample string, want float64) {
	s.Helper()
	if got := s.value(sample); got != want {
		s.Errorf("%s is %v, want %v", sample, got, want)
	}
}

func TestMessageLifeIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		orders := s.open("orders")
		_, err := orders.SendAll(s.Context(), []string{"tea", "milk", "sugar"})
		s.must(err)
		_, err = orders.Send(s.Context(), "cake", mailbox.WithDedupKey("7"))
		s.must(err)
		_, err = orders.Send(s.Context(), "cake", mailbox.WithDedupKey("7"))
		s.must(err)
		if _, err = orders.Send(s.Context(), "pie", mailbox.WithDedupKey("7")); !errors.Is(err, mailbox.ErrConflict) {
			t.Fatal(err)
		}
		s.expect(`mailbox_enqueued_total{queue="orders"}`, 4)
		s.expect(`mailbox_deduplicated_total{queue="orders"}`, 1)
		s.expect(`mailbox_rejected_total{queue="orders",reason="duplicate"}`, 1)
		s.expect(`mailbox_enqueue_latency_seconds_count{queue="orders"}`, 4)

		time.Sleep(2 * time.Second)
		got, err := orders.Receive(s.Context(), mailbox.WithMax(4), mailbox.WithVisibility(time.Minute))
		s.must(err)
		s.expect(`mailbox_delivered_total{queue="orders"}`, 4)
		s.expect(`mailbox_receives_total{queue="orders",result="messages"}`, 1)
		s.expect(`mailbox_wait_seconds_sum{queue="orders"}`, 8)
		time.Sleep(3 * time.Second)
		s.must(got[0].Ack(s.Context()))
		s.must(got[1].DeadLetter(s.Context(), mailbox.ReasonFatal, errMilk))
		s.must(got[2].Nack(s.Context(), 0, errMilk))
		s.must(got[3].Extend(s.Context(), time.Second))
		time.Sleep(time.Minute)
		if err = got[3].Ack(s.Context()); !errors.Is(err, mailbox.ErrReceiptExpired) {
			t.Fatal(err)
		}
		s.expect(`mailbox_settled_total{outcome="ack",queue="orders"}`, 1)
		s.expect(`mailbox_settled_total{outcome="nack",queue="orders"}`, 1)
		s.expect(`mailbox_dlq_total{queue="orders",reason="fatal"}`, 1)
		s.expect(`mailbox_held_seconds_sum{queue="orders"}`, 9)
		s.expect(`mailbox_attempts_count{queue="orders"}`, 2)
		s.expect(`mailbox_extended_total{queue="orders"}`, 1)
		s.expect(`mailbox_settle_failed_total{queue="orders",reason="expired"}`, 1)
		s.expect(`mailbox_visibility_timeout_total{queue="orders"}`, 1)
		s.expect(`mailbox_ack_commit_latency_seconds_count{outcome="ack",queue="orders"}`, 1)

		_, err = orders.Receive(s.Context(), mailbox.WithMax(4))
		s.must(err)
		s.expect(`mailbox_redelivered_total{queue="orders"}`, 2)
		_, err = orders.Receive(s.Context(), mailbox.WithWait(time.Second))
		s.must(err)
		s.expect(`mailbox_receives_total{queue="orders",result="empty"}`, 1)
		s.faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable})
		_, _ = orders.SendAll(s.Context(), []string{"a", "b"})
		_, _ = orders.Receive(s.Context())
		s.expect(`mailbox_rejected_total{queue="orders",reason="unavailable"}`, 2)
		s.expect(`mailbox_receives_total{queue="orders",result="failed"}`, 1)
	})
}

func TestPoisonAndRepliesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		orders := s.open("orders")
		_, err := orders.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte("{not json")}})
		s.must(err)
		_, err = orders.Receive(s.Context())
		s.must(err)
		s.expect(`mailbox_poisoned_total{queue="orders"}`, 1)
		s.expect(`mailbox_dlq_total{queue="orders",reason="parse"}`, 1)

		replies := reply.NewMemory(nil)
		requests, err := mailbox.Open(s.Context(), s.faults, "requests", &mailbox.Options[string]{Hooks: s.metrics.MailboxHooks(), Replies: replies})
		s.must(err)
		client := reply.NewClient[string, string](requests, replies, nil)
		for range 2 {
			_, err = client.Send(s.Context(), "tea")
			s.must(err)
		}
		got, err := requests.Receive(s.Context(), mailbox.WithMax(2))
		s.must(err)
		s.must(mailbox.NewReplyChannel[string](got[0], nil).Send(s.Context(), "TEA"))
		s.must(mailbox.ReplyError(s.Context(), got[1], errMilk))
		s.expect(`mailbox_replies_total{queue="requests",result="answer"}`, 1)
		s.expect(`mailbox_replies_total{queue="requests",result="error"}`, 1)
		s.expect(`mailbox_reply_latency_seconds_count{queue="requests"}`, 2)
	})
}

func TestWatchedQueuesAreCountedWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		orders := s.open("orders")
		ctx, cancel := context.WithCancel(s.Context())
		s.metrics.Watch(ctx, orders, &mailboxprom.WatchOptions{Capacity: 10})
		s.metrics.Watch(ctx, orders, nil) // it is watched already
		_, err := orders.SendAll(s.Context(), []string{"a", "b", "c", "d"})
		s.must(err)
		_, err = orders.Send(s.Context(), "later", mailbox.WithDelay(time.Minute))
		s.must(err)
		got, err := orders.Receive(s.Context(), mailbox.WithMax(2))
		s.must(err)
		s.must(got[0].DeadLetter(s.Context(), mailbox.ReasonFatal, nil))
		s.expectLines(`
# HELP mailbox_dlq_depth Dead letters that the backend keeps with the queue.
# TYPE mailbox_dlq_depth gauge
mailbox_dlq_depth{queue="orders"} 1
# HELP mailbox_inflight Messages that are delivered and not settled.
# TYPE mailbox_inflight gauge
mailbox_inflight{queue="orders"} 1
# HELP mailbox_queue_depth Messages that wait in the queue, by state: ready or delayed.
# TYPE mailbox_queue_depth gauge
mailbox_queue_depth{queue="orders",state="delayed"} 1
mailbox_queue_depth{queue="orders",state="ready"} 2
# HELP mailbox_saturation Part of the queue's capacity that is used.
# TYPE mailbox_saturation gauge
mailbox_saturation{queue="orders"} 0.4
# HELP mailbox_watch_failed 1 if the last Stats call for the queue failed and its other figures are missing; else 0.
# TYPE mailbox_watch_failed gauge
mailbox_watch_failed{queue="orders"} 0
`, "mailbox_queue_depth", "mailbox_inflight", "mailbox_dlq_depth", "mailbox_saturation", "mailbox_watch_failed")
		remove := s.faults.Add(mailboxtest.Fault{Op: "stats", Err: mailbox.ErrUnavailable})
		s.expect(`mailbox_watch_failed{queue="orders"}`, 1)
		s.expect(`mailbox_inflight{queue="orders"}`, 0) // it is missing
		remove()
		// A hanging backend delays a scrape by five seconds at most.
		s.faults.Add(mailboxtest.Fault{Op: "stats", Delay: time.Hour})
		began := time.Now()
		s.expect(`mailbox_watch_failed{queue="orders"}`, 1)
		if took := time.Since(began); took != 5*time.Second {
			s.Errorf("the scrape took %v", took)
		}
		cancel()
		s.expectLines("", "mailbox_queue_depth", "mailbox_watch_failed")
	})
}

// TestProgressIsMeasured has a handler that reports once, one that goes on, and one that does not
// report.
func TestProgressIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		orders := s.open("orders")
		_, err := orders.SendAll(s.Context(), []string{"once", "often", "never"})
		s.must(err)
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error)
		go func() {
			done <- worker.New(orders, func(ctx context.Context, m *mailbox.Message[string]) error {
				for i := range 60 {
					if m.Body == "often" || m.Body == "once" && i == 0 {
						worker.SetProgress(ctx, float64(i)/60, "")
					}
					time.Sleep(time.Minute)
				}
				return nil
			}, &worker.Options[string]{Name: "kitchen", Concurrency: 3, Hooks: s.metrics.WorkerHooks()}).Run(ctx)
		}()
		time.Sleep(10*time.Minute + 30*time.Second)
		s.expect(`mailbox_handlers_running{loop="kitchen"}`, 3)
		s.expect(`mailbox_handlers_reporting{loop="kitchen"}`, 2)
		s.expect(`mailbox_handler_progress_age_seconds{loop="kitchen"}`, 630)
		time.Sleep(time.Hour)
		s.expectLines("", "mailbox_handlers_reporting", "mailbox_handler_progress_age_seconds") // they have returned
		cancel()
		s.must(<-done)
	})
}

func TestWorkersAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		orders := s.open("orders")
		letters, err := mailbox.Open(s.Context(), s.faults, "dead", &mailbox.Options[deadletter.Message[string]]{Codec: deadletter.Codec[string](nil)})
		s.must(err)
		work := func(policy *deadletter.Policy[string], bodies ...string) {
			_, err := orders.SendAll(s.Context(), bodies)
			s.must(err)
			for range bodies {
				_, err = worker.New(orders, func(_ context.Context, m *mailbox.Message[string]) error {
					time.Sleep(time.Second)
					s.expect(`mailbox_handlers_running{loop="kitchen"}`, 1)
					switch m.Body {
					case "panic":
						panic("spilled")
					case "error":
						return errMilk
					}
					return nil
				}, &worker.Options[string]{Name: "kitchen", DeadLetters: policy, Hooks: s.metrics.WorkerHooks()}).RunOnce(s.Context())
				s.must(err)
			}
		}
		work(nil, "tea", "panic", "error")
		work(&deadletter.Policy[string]{MaxDeliveries: 1}, "error")
		work(&deadletter.Policy[string]{MaxDeliveries: 1, Mailbox: letters}, "error")
		s.expect(`mailbox_handlers_running{loop="kitchen"}`, 0)
		s.expect(`mailbox_handler_seconds_sum{loop="kitchen",result="ok"}`, 1)
		s.expect(`mailbox_handler_seconds_count{loop="kitchen",result="panic"}`, 1)
		s.expect(`mailbox_handler_seconds_count{loop="kitchen",result="error"}`, 3)
		s.expect(`mailbox_worker_settled_total{loop="kitchen",result="acked"}`, 1)
		s.expect(`mailbox_worker_settled_total{loop="kitchen",result="nacked"}`, 2)
		s.expect(`mailbox_worker_settled_total{loop="kitchen",result="dead"}`, 2)
		// Each dead letter is counted once, wherever it is kept.
		s.expect(`mailbox_dlq_total{queue="orders",reason="max_attempts"}`, 2)
		s.metrics.Stuck(worker.StuckEvent{Member: "kitchen"})
		s.expect(`mailbox_stuck_handlers_total{loop="kitchen"}`, 1)
		s.faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable})
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		s.must(worker.New(orders, func(context.Context, *mailbox.Message[string]) error { return nil },
			&worker.Options[string]{Name: "kitchen", Hooks: s.metrics.WorkerHooks()}).Run(ctx))
		if n := s.value(`mailbox_worker_backend_failures_total{loop="kitchen",op="receive"}`); n < 5 {
			s.Errorf("%v failures of the backend were counted", n)
		}
	})
}

func TestDeadLetterConsumersAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		orders := s.open("orders")
		box := deadletter.NewQueue(orders, nil)
		for _, body := range []string{"redrive", "done", "drop", "fail"} {
			_, err := orders.Send(s.Context(), body)
			s.must(err)
			got, err := orders.Receive(s.Context())
			s.must(err)
			_, err = box.DeadLetter(s.Context(), got[0], mailbox.ReasonFatal, errMilk)
			s.must(err)
		}
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		s.must(deadletter.NewConsumer(box, func(_ context.Context, l deadletter.Message[string]) (deadletter.Action, error) {
			time.Sleep(time.Second)
			switch l.Body {
			case "redrive":
				return deadletter.Redrive, nil
			case "drop":
				return deadletter.Drop, nil
			case "fail":
				return deadletter.Done, errMilk
			}
			return deadletter.Done, nil
		}, &deadletter.ConsumerOptions{Name: "dead letters", Hooks: s.metrics.DeadLetterHooks()}).Run(ctx))
		for _, result := range []string{"redrive", "done", "drop", "failed"} {
			s.expect(fmt.Sprintf(`mailbox_dlq_handled_total{consumer="dead letters",result=%q}`, result), 1)
		}
		s.expect(`mailbox_dlq_redriven_total{queue="orders"}`, 1)
		s.expect(`mailbox_dlq_consumer_depth{consumer="dead letters"}`, 1)
		s.expect(`mailbox_dlq_handler_seconds_sum{consumer="dead letters"}`, 4)
		if age := s.value(`mailbox_dlq_letter_age_seconds_sum{consumer="dead letters"}`); age < 4*3600 || age > 4*3600+20 {
			s.Errorf("the sum of the ages is %v", age)
		}
		s.metrics.DeadLetterHooks().Duplicate("dead letters", "7")
		s.expect(`mailbox_dlq_duplicates_total{consumer="dead letters"}`, 1)
	})
}

func TestRegistriesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		queues := registry.New(&registry.Options{Fallback: s.faults, Hooks: s.metrics.RegistryHooks()})
		for _, id := range []string{"a", "a", "b"} {
			queue, err := queues.Resolve(s.Context(), id)
			s.must(err)
			s.must(queue.Close())
		}
		s.faults.Add(mailboxtest.Fault{Op: "open", Err: mailbox.ErrUnavailable})
		if _, err := queues.Resolve(s.Context(), "c"); err == nil {
			t.Fatal("the fault did not hit")
		}
		queues.Close()
		s.expect(`mailbox_resolved_total{source="opened"}`, 2)
		s.expect(`mailbox_resolved_total{source="cached"}`, 1)
		s.expect(`mailbox_resolved_total{source="failed"}`, 1)
		s.expect(`mailbox_resolve_latency_seconds_count`, 4)
		s.expect(`mailbox_resolver_opened_total{result="ok"}`, 2)
		s.expect(`mailbox_resolver_opened_total{result="failed"}`, 1)
		s.expect(`mailbox_resolver_evicted_total{reason="close"}`, 2)
	})
}

func TestQueuesBeyondLimitAreOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, &mailboxprom.Options{MaxQueues: 2, Namespace: "shop", Labels: map[string]string{"zone": "a"}})
		for i := range 5 {
			m := s.open(fmt.Sprint("orders-", i))
			s.metrics.Watch(s.Context(), m, nil)
			_, err := m.Send(s.Context(), "tea")
			s.must(err)
		}
		s.expectLines(`
# HELP shop_enqueued_total Messages that were sent.
# TYPE shop_enqueued_total counter
shop_enqueued_total{queue="orders-0",zone="a"} 1
shop_enqueued_total{queue="orders-1",zone="a"} 1
shop_enqueued_total{queue="other",zone="a"} 3
# HELP shop_inflight Messages that are delivered and not settled.
# TYPE shop_inflight gauge
shop_inflight{queue="orders-0",zone="a"} 0
shop_inflight{queue="orders-1",zone="a"} 0
`, "shop_enqueued_total", "shop_inflight")
	})
}

func TestNextHooksAreCalledToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		var sent, resolved int
		hooks := s.metrics.MailboxHooks(mailbox.Hooks{Sent: func(context.Context, mailbox.SentEvent) { sent++ }}, mailbox.Hooks{})
		if hooks.Sending != nil {
			t.Error("a hook that is not set is not nil")
		}
		m, err := mailbox.Open(s.Context(), s.faults, "orders", &mailbox.Options[string]{Hooks: hooks})
		s.must(err)
		_, err = m.Send(s.Context(), "tea")
		s.must(err)
		s.metrics.RegistryHooks(registry.Hooks{Resolved: func(context.Context, registry.ResolvedEvent) { resolved++ }}).Resolved(s.Context(), registry.ResolvedEvent{})
		if sent != 1 || resolved != 1 {
			t.Errorf("%d sends and %d resolutions were told", sent, resolved)
		}
		s.expect(`mailbox_enqueued_total{queue="orders"}`, 1)
	})
}

func TestMetricsAreRegisteredAllOrNone(t *testing.T) {
	registry := prometheus.NewRegistry()
	// A registry remembers what a name stands for, so this is the same but for who made it.
	taken := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mailbox_dlq_total", Help: "Messages that this process dead-lettered, by reason.",
	}, []string{"queue", "reason"})
	registry.MustRegister(taken)
	if _, err := mailboxprom.New(registry, nil); err == nil {
		t.Fatal("a name that is taken was registered")
	}
	registry.Unregister(taken)
	if _, err := mailboxprom.New(registry, nil); err != nil {
		t.Errorf("something was left behind: %v", err)
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEnv(t, nil)
		m := s.open("orders")
		s.metrics.Watch(s.Context(), m, &mailboxprom.WatchOptions{Capacity: 1})
		_, err := m.Send(s.Context(), "tea")
		s.must(err)
		problems, err := testutil.GatherAndLint(s.registry)
		s.must(err)
		for _, p := range problems {
			s.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

func BenchmarkTracedCycle(b *testing.B) {
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprint("traced=", traced), func(b *testing.B) {
			options := &mailbox.Options[string]{}
			if traced {
				metrics, err := mailboxprom.New(prometheus.NewRegistry(), nil)
				if err != nil {
					b.Fatal(err)
				}
				options.Hooks = metrics.MailboxHooks()
			}
			m, err := mailbox.Open(b.Context(), membox.New(nil), "orders", options)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := m.Send(b.Context(), "tea"); err != nil {
					b.Fatal(err)
				}
				got, err := m.Receive(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := got[0].Ack(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
