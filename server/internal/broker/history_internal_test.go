package broker

import (
	"runtime"
	"strconv"
	"testing"
	"time"
)

// historyBytes is the budget of docs/console.md.
const historyBytes = 4_300_000

// TestFullHistoriesTakeTheirBytes fills every history with an hour, and measures the memory of them.
func TestFullHistoriesTakeTheirBytes(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	queues := make([]*queue, maxHistories)
	for i := range queues {
		queues[i] = &queue{queueKey: queueKey{strconv.Itoa(i), "orders"}} // one tenant alone may use less
	}
	before := heap()
	var h histories
	h.init()
	for i := range historyPoints + 1 {
		for _, q := range queues {
			h.add(q, time.Unix(1_000_000, 0).Add(time.Duration(i)*HistoryEvery), historyPoint{})
		}
	}
	took, points := heap()-before, 0
	for _, known := range h.byQueue {
		points += len(known.points)
	}
	t.Logf("%d histories of %d points take %d bytes", len(h.byQueue), points, took)
	if points != maxHistories*historyPoints || took > historyBytes {
		t.Errorf("%d points take %d bytes, want %d points in %d bytes", points, took, maxHistories*historyPoints, historyBytes)
	}
	runtime.KeepAlive(queues)
}

// TestHistoriesStayWithinBudget: an hour of each queue, of as many queues as there is room for, divided by tenant.
func TestHistoriesStayWithinBudget(t *testing.T) {
	var h histories
	h.init()
	now := time.Unix(1_000_000, 0)
	queues := make([]*queue, 2*maxHistories)
	for i := range queues {
		queues[i] = &queue{queueKey: queueKey{"a", string(rune('A' + i))}}
	}
	for i := range 2 * historyPoints {
		queues[0].flow.sent.Add(3)
		h.add(queues[0], now.Add(time.Duration(i)*HistoryEvery), historyPoint{ready: uint32(i)})
	}
	kept := h.byQueue[queues[0].queueKey]
	if len(kept.points) != historyPoints || cap(kept.points) > 2*historyPoints || kept.points[kept.next].ready != historyPoints || kept.points[kept.next].sent != 3 {
		t.Errorf("%d points, the oldest is %+v", len(kept.points), kept.points[kept.next])
	}
	now = now.Add(2 * historyPoints * HistoryEvery)
	for _, q := range queues {
		h.add(q, now, historyPoint{})
	}
	if n := len(h.byQueue); n < maxHistories/2 || n > maxHistories {
		t.Errorf("%d histories", n)
	}
	other := &queue{queueKey: queueKey{"b", "orders"}}
	h.add(other, now.Add(HistoryEvery), historyPoint{ready: 1})
	if h.byQueue[other.queueKey] == nil {
		t.Error("another tenant got no room")
	}
	newcomer := &queue{queueKey: queueKey{"a", "newcomer"}}
	h.add(newcomer, now.Add(2*HistoryEvery), historyPoint{ready: 1})
	if h.byQueue[newcomer.queueKey] == nil || len(h.byQueue) > maxHistories {
		t.Errorf("a new queue did not replace an older one of its tenant: %d histories", len(h.byQueue))
	}
}
