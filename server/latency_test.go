package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/server"
)

// percentile returns the duration that the given share did not exceed.
func percentile(took []time.Duration, share float64) time.Duration {
	slices.Sort(took)
	return took[min(len(took)-1, int(share*float64(len(took))))]
}

// TestEnqueuePlusDequeueStaysUnder50ms is half of gate G-5: it sends one message each to
// 10,000 queues through a daemon on loopback, and receives it. The bound is that of
// the specification; the figures are printed. The fan-out is measured by
// TestG5FanOutStaysWithinItsBounds.
func TestEnqueuePlusDequeueStaysUnder50ms(t *testing.T) {
	queues := 10_000
	if volume.RaceDetector {
		queues = 1_000
	}
	r := start(t, server.Config{Profile: server.Micronode})
	token := r.OperatorToken()
	began := time.Now()
	took := make([]time.Duration, queues)
	var workers sync.WaitGroup
	const pushers = 4
	for w := range pushers {
		workers.Go(func() {
			for i := w; i < queues; i += pushers {
				at := time.Now()
				status, fields, err := tryPost(r, token, "/v1/send", fmt.Sprintf(`{"topic":"user:%d:inbox","idem_key":"post","payload_b64":"SGk="}`, i))
				if err != nil || status != 200 {
					t.Errorf("send: %d %v %v", status, fields, err)
					return
				}
				status, fields, err = tryPost(r, token, "/v1/recv", fmt.Sprintf(`{"topic":"user:%d:inbox"}`, i))
				if err != nil || status != 200 || len(fields["messages"].([]any)) != 1 {
					t.Errorf("receive: %d %v %v", status, fields, err)
					return
				}
				took[i] = time.Since(at)
			}
		})
	}
	workers.Wait()
	p50, p95, p99 := percentile(took, 0.5), percentile(took, 0.95), percentile(took, 0.99)
	t.Logf("%d queues in %v; enqueue plus dequeue through HTTP: p50 %v, p95 %v, p99 %v", queues, time.Since(began), p50, p95, p99)
	if p95 > 50*time.Millisecond && !volume.RaceDetector {
		t.Errorf("p95 of enqueue plus dequeue is %v, want less than 50ms", p95)
	}
}
