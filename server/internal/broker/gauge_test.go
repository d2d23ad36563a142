package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// figure returns a metric with these labels, as Prometheus would have it.
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

// TestDeathsAreCountedHoweverManyThereAre goes beyond what is looked through one by
// one.
func TestDeathsAreCountedHoweverManyThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		before := newBench(t, backend, broker.Limits{}, driver.Config{})
		admin := before.as("")
		if err := admin.Configure(t.Context(), "orders", driver.Config{MaxDeliveries: 1}); err != nil {
			t.Fatal(err)
		}
		die := func(b *bench, n int, buried bool) {
			t.Helper()
			c := b.as("")
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
					if buried {
						err = c.Bury(t.Context(), "orders", []broker.Burial{{Receipt: got[i].Receipt, Reason: driver.ReasonFatal}})
					} else {
						err = c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[i].Receipt, Cause: "broken"}})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		die(before, 3, false)
		time.Sleep(time.Minute)
		b := newBench(t, backend, broker.Limits{}, driver.Config{}) // as after a restart
		b.send(b.as(""), "orders", "x")
		b.receive(b.as(""), "orders", 1)
		if n := b.figure("dlq_total", "reason=max_attempts", "topic=orders"); n != 0 {
			t.Errorf("%v deaths are counted that were before the daemon", n)
		}
		die(b, 4, false)
		time.Sleep(2 * time.Second)
		if n := b.figure("dlq_total", "reason=max_attempts", "topic=orders"); n != 4 {
			t.Errorf("%v deaths, want 4", n)
		}
		die(b, 12_000, false)
		time.Sleep(2 * time.Second)
		counted := func() (sum float64) {
			for _, reason := range []driver.Reason{driver.ReasonMaxDeliveries, driver.ReasonExpired, driver.ReasonFatal, "other"} {
				sum += b.figure("dlq_total", fmt.Sprintf("reason=%s", reason), "topic=orders")
			}
			return sum
		}
		if n := counted(); n != 12_004 {
			t.Errorf("%v deaths, want 12004", n)
		}
		die(b, 100, false)
		die(b, 50, true)
		if removed, err := b.as("").Redrive(t.Context(), "orders", nil, 70); err != nil || removed != 70 {
			t.Fatal(removed, err)
		}
		time.Sleep(2 * time.Second)
		if n := counted(); n != 12_154 {
			t.Errorf("%v deaths, want 12154", n)
		}
		if n := b.figure("dlq_total", "reason=fatal", "topic=orders"); n != 50 {
			t.Errorf("%v were buried, want 50", n)
		}
		if _, err := b.as("").PurgeDead(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := counted(); n != 12_154 {
			t.Errorf("%v deaths after the letters are gone, want 12154", n)
		}
	})
}

// shuffler is a backend that hands out messages in another order than it has them.
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

func TestTheDepthOfReorderingIsMeasured(t *testing.T) {
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
				b := newBench(t, backend, broker.Limits{}, driver.Config{})
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
				if depth := b.figure("reorder_depth_max", "shard=0"); depth != test.want {
					t.Errorf("the depth is %v, want %v", depth, test.want)
				}
			})
		})
	}
}
