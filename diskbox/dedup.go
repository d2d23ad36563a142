package diskbox

import "github.com/mailboxmq/mailbox/internal/engine"

// Dedup keys on disk. The rules of the dedup window are in internal/engine/dedup.go;
// recovery.readKeys reads the keys when a store is opened.

// Remembered records a dedup key until the end of its window.
func (j *journal) Remembered(queue uint32, key, content engine.Digest, id [16]byte, ends engine.Instant) {
	if !j.knows(queue) {
		return
	}
	j.key = appendDedupKey(j.key[:0], queue, ends, key)
	w := j.begin()
	w.buf = append(append(w.buf, content[:]...), id[:]...)
	j.end()
	j.sweepKeys(queue)
}

// DedupForgotten removes all dedup keys of a queue.
func (j *journal) DedupForgotten(queue uint32) {
	if j.knows(queue) {
		j.removeAll(appendQueueKey(nil, dedupKind, queue))
	}
}

// sweepKeys evicts the dedup keys of a queue whose window is over, once for every
// sweepEvery new keys. Keys sort by the end of their window, so it deletes one range.
func (j *journal) sweepKeys(queue uint32) {
	q := j.queues[queue]
	if q.keys++; q.keys < sweepEvery {
		return
	}
	q.keys = 0
	first := appendQueueKey(nil, dedupKind, queue)
	j.batch.DeleteRange(first, appendInstant(append([]byte(nil), first...), q.now.Add(-sweepMargin)))
}
