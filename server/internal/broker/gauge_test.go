package broker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// figure returns a metric with these labels, as Prometheus would scrape it.
func (b *bench) figure(name string, labels ...string) float64 {
	b.t.Helper()
	b.Measure(b.t.Context())
	families, err := b.Metrics().Registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var has []string
			for _, label := range metric.GetLabel() {
				has = append(has, label.GetName()+"="+label.GetValue())
			}
			if strings.Join(has, " ") == strings.Join(labels, " ") {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// TestAllDeadLettersAreCounted compares the counts of each reason with the dead letters
// that were made, while others are redriven and discarded.
func TestAllDeadLettersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1, MaxDead: driver.Off})
		want := map[driver.Reason]float64{}
		die := func(n int, reason driver.Reason) {
			t.Helper()
			want[reason] += float64(n)
			for n > 0 {
				some := min(n, driver.DefaultMaxBatch)
				n -= some
				if _, err := c.Send(t.Context(), "orders", make([]broker.Outgoing, some)); err != nil {
					t.Fatal(err)
				}
				got := b.receive(c, "orders", some)
				if len(got) != some {
					t.Fatalf("got %d of %d", len(got), some)
				}
				for i := range got {
					err := error(nil)
					if reason == driver.ReasonMaxDeliveries {
						err = c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[i].Receipt, Cause: "broken"}})
					} else {
						err = c.DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: got[i].Receipt, Reason: reason}})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		expect := func(when string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			for reason, n := range want {
				if got := b.figure("mailbox_dlq_total", "queue=orders", "reason="+string(reason)); got != n {
					t.Errorf("%s: %v deaths with reason %s, want %v", when, got, reason, n)
				}
			}
		}
		die(4, driver.ReasonMaxDeliveries)
		expect("a few")
		die(12_000, driver.ReasonMaxDeliveries)
		expect("very many")
		die(100, driver.ReasonMaxDeliveries)
		die(50, driver.ReasonFatal)
		die(3, driver.ReasonParse)
		if moved, err := c.Redrive(t.Context(), "orders", nil, 70); err != nil || moved != 70 {
			t.Fatal(moved, err)
		}
		expect("after a redrive")
		if _, err := c.PurgeDead(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		expect("after a purge")
		got := b.receive(c, "orders", 70) // their leases expire without a request
		want[driver.ReasonMaxDeliveries] += float64(len(got))
		time.Sleep(time.Hour)
		expect("after leases ended")
	})
}

// shuffler is a backend that delivers messages in a different order.
type shuffler struct {
	*membox.Backend
	order []int
}

type shuffledQueue struct {
	driver.Queue
	held  []driver.Delivery
	order []int
}

func (s *shuffler) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := s.Backend.OpenQueue(ctx, name)
	return &shuffledQueue{Queue: q, order: s.order}, err
}

func (q *shuffledQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if q.held == nil {
		req.Max = len(q.order)
		var err error
		if q.held, err = q.Queue.Receive(ctx, req); err != nil {
			return nil, err
		}
	}
	next := q.held[q.order[0]]
	q.order = q.order[1:]
	return []driver.Delivery{next}, nil
}

func TestReorderDepthIsMeasured(t *testing.T) {
	for name, test := range map[string]struct {
		order []int
		want  float64
	}{
		"in order":       {[]int{0, 1, 2, 3, 4}, 0},
		"one too early":  {[]int{4, 0, 1, 2, 3}, 4},
		"one too late":   {[]int{1, 2, 3, 4, 0}, 1},
		"backwards":      {[]int{4, 3, 2, 1, 0}, 4},
		"pairs swapped":  {[]int{1, 0, 3, 2, 4}, 1},
		"delayed is not": {[]int{0, 1, 2, 3, 5, 4}, 0}, // number 4 was sent with a delay
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := &shuffler{Backend: membox.New(nil), order: test.order}
				t.Cleanup(func() { _ = backend.Close() })
				b := newBench(t, backend, broker.Limits{})
				c := b.as("")
				for i := range test.order {
					message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("x")}}
					if i == 4 && len(test.order) > 5 {
						message.Delay = time.Second
					}
					if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Minute)
				for range test.order {
					b.receive(c, "orders", 1)
				}
				if depth := b.figure("mailbox_reorder_depth_max", "shard=0"); depth != test.want {
					t.Errorf("the depth is %v, want %v", depth, test.want)
				}
			})
		})
	}
}

func TestGivenBackMessagesAreNotOutOfOrder(t *testing.T) {
	for _, mode := range []driver.NackMode{driver.NackRelease, driver.NackPutBack} {
		synctest.Test(t, func(t *testing.T) {
			b := memory(t, broker.Limits{})
			c := b.as("")
			for range 3 {
				b.send(c, "orders", "x")
				time.Sleep(time.Millisecond)
			}
			for range 2 {
				first := b.receive(c, "orders", 1)[0]
				nack := broker.Nack{Receipt: first.Receipt, Mode: mode, Delay: time.Second}
				if err := c.Nack(t.Context(), "orders", []broker.Nack{nack}); err != nil {
					t.Fatal(err)
				}
			}
			b.receive(c, "orders", 1)
			time.Sleep(2 * time.Second)
			if got := b.receive(c, "orders", 2); len(got) != 2 || got[0].Deliveries != 1 {
				t.Fatalf("mode %d: got %+v, want the two messages that were given back, uncounted", mode, got)
			}
			if depth := b.figure("mailbox_reorder_depth_max", "shard=0"); depth != 0 {
				t.Errorf("mode %d: the depth is %v, want 0: the messages are late on purpose", mode, depth)
			}
		})
	}
}

func TestUnavailableBackendIsCountedForQueuesNotOpen(t *testing.T) {
	backend := membox.New(nil)
	b := newBench(t, backend, broker.Limits{})
	if err := backend.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.figure("mailbox_rejected_total", "reason=degraded"); got != 0 {
		t.Fatalf("%v refusals before there were any", got)
	}
	_, err := b.as("").Send(t.Context(), "orders", say("a"))
	expectCode(t, err, driver.ErrClosed, "a send")
	if got := b.figure("mailbox_rejected_total", "reason=degraded"); got != 1 {
		t.Errorf("%v refusals are counted, want 1", got)
	}
	families, err := b.Metrics().Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "mailbox_rejected_total" && len(family.GetMetric()) < 2 {
			t.Error("a reason that alerts ask for is missing before its first refusal")
		}
	}
}
