package host

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// sendable returns why no send of n messages is possible, or nil.
func (h *handle) sendable(n int) error {
	if err := h.usable("send"); err != nil || n == 0 || h.journal == nil {
		return err
	}
	return h.named(h.journal.Admit(), "send")
}

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := cmp.Or(h.sendable(len(msgs)), ctx.Err()); err != nil || len(msgs) == 0 {
		return nil, err
	}
	batch := sendBatch{run: run{queue: h.queue}, sent: make([]driver.Sent, len(msgs))}
	batch.all(msgs)
	if err := batch.finish(); err != nil {
		return nil, h.named(err, "send")
	}
	if h.journal == nil || batch.replaced { // otherwise publishing serves receives
		h.serve(nil)
	}
	return batch.sent, driver.NewBatchError(batch.failures)
}

// sendBatch is the state of one call of Send.
type sendBatch struct {
	run
	sent     []driver.Sent
	failures []error
	ready    int  // messages that can be received at once
	delayed  bool // some messages are delayed
	repeated bool // an answer depends on an earlier send, perhaps not durable yet
	replaced bool // a waiting message was replaced
	failure  error
}

// all stages the messages, in order.
func (s *sendBatch) all(msgs []driver.Outgoing) {
	settings := s.queue.settings.Load()
	traits := settings.traits
	keyed, unique := false, false
	for i := range msgs {
		keyed, unique = keyed || msgs[i].DedupKey != "", unique || msgs[i].UniqueKey != ""
	}
	oneByOne := s.queue.journal != nil && (retentionMakesRoom(&settings.config) || unique && retentionFreesKeys(&settings.config))
	if keyed { // keys and their messages are stored together
		s.queue.dedup.mu.Lock()
		defer s.queue.dedup.mu.Unlock()
	}
	for i := range msgs {
		msg := &msgs[i]
		err := msg.Check(traits)
		if err == nil {
			packed := packMessage(msg, cmp.Or(msg.TTL, settings.config.TTL))
			if msg.UniqueKey != "" {
				packed.setKey(s.queue.backend.digest(msg.UniqueKey))
			}
			if s.queue.backend.options.Wipe {
				packed.wipe()
			}
			s.use(s.queue.shardFor(msg))
			if msg.DedupKey == "" {
				s.sent[i], err = s.one(msg, packed)
			} else {
				s.sent[i], err = s.once(msg, packed)
			}
		}
		switch {
		case err != nil:
			s.failures = driver.FailAt(s.failures, len(msgs), i, s.queue.named(err, "send"))
		case s.sent[i].Duplicate:
		case msg.Delay > 0 || !msg.DeliverAt.IsZero():
			s.delayed = true
		default:
			s.ready++
		}
		if oneByOne {
			s.failure = s.run.finish(false)
		}
		if s.failure != nil {
			return
		}
	}
}

// retentionMakesRoom reports whether publishing a message can expire an older one and so
// make room for the next of its batch. Then one message has to be published before the
// next is staged.
func retentionMakesRoom(config *driver.Config) bool {
	return config.RetainReady.Count > 0 && (config.MaxMessages > 0 || config.MaxBytes > 0)
}

// retentionFreesKeys reports whether publishing a message can expire an older one and so free its
// unique key for the next of its batch.
func retentionFreesKeys(config *driver.Config) bool { return config.RetainReady.Count > 0 }

// one sends a valid message to the shard in use, unless its unique key is held.
func (s *sendBatch) one(msg *driver.Outgoing, packed packed) (driver.Sent, error) {
	if msg.UniqueKey != "" {
		if sent, err := s.onHolder(msg, packed); sent.Duplicate || err != nil {
			return sent, err
		}
	}
	e, err := s.shard.stageLocked(s.now, packed)
	if err != nil {
		return driver.Sent{}, s.queue.noRoomLocked(s.shard, 1)
	}
	sent := driver.Sent{ID: e.ID}
	s.publish(e)
	return sent, nil
}

// once sends a message unless its dedup key was used before. The dedup table is
// locked.
func (s *sendBatch) once(msg *driver.Outgoing, packed packed) (driver.Sent, error) {
	q := s.queue
	key, content := q.backend.digests(msg.DedupKey, msg.Body)
	table := q.dedup.tableLocked(q.settings.Load())
	verdict, first, wait := table.Lookup(s.now.At, key, content)
	switch verdict {
	case engine.Repeated:
		s.repeated = true
		return driver.Sent{ID: idText(first), Duplicate: true}, nil
	case engine.Conflicting:
		return driver.Sent{}, &driver.Error{
			Code: driver.ErrConflict, MessageID: idText(first), Field: "DedupKey",
			Detail: "was used for another body",
		}
	case engine.Crowded:
		return driver.Sent{}, q.full("the dedup table is full", wait)
	case engine.Fresh:
	}
	if msg.UniqueKey != "" {
		sent, err := s.onHolder(msg, packed)
		if sent.Duplicate && err == nil {
			s.remember(table, key, content, sent.ID)
		}
		if sent.Duplicate || err != nil {
			return sent, err
		}
	}
	e, err := s.shard.stageLocked(s.now, packed)
	if err != nil {
		return driver.Sent{}, q.noRoomLocked(s.shard, 1)
	}
	sent := driver.Sent{ID: e.ID}
	id, _ := ident.Parse(e.ID) // cannot fail: stageLocked has just made it
	ends := table.Remember(s.now.At, key, content, id)
	if q.journal == nil {
		s.publish(e)
		return sent, nil
	}
	q.journal.Lock()
	q.journal.Sent(s.shard.id, e)
	q.journal.Remembered(q.id, key, content, id, ends)
	q.journal.Unlock()
	s.hold(e)
	return sent, nil
}

// remember remembers the dedup key of a message that was not added because another one holds
// its unique key: a repeat has the same answer, and does not replace again.
func (s *sendBatch) remember(table *engine.Dedup, key, content engine.Digest, held string) {
	q := s.queue
	id, err := ident.Parse(held)
	if err != nil { // it is not of this backend
		return
	}
	ends := table.Remember(s.now.At, key, content, id)
	if q.journal != nil {
		q.journal.Lock()
		q.journal.Remembered(q.id, key, content, id, ends)
		q.journal.Unlock()
	}
}

// finish waits until all operations that the answer depends on are durable.
func (s *sendBatch) finish() error { return cmp.Or(s.failure, s.run.finish(s.repeated)) }

// StartSend implements completion.Queue.
func (h *handle) StartSend(r *completion.Round, msgs []driver.Outgoing, done completion.Sent) {
	err := h.sendable(len(msgs))
	if err != nil || len(msgs) == 0 {
		done(r, nil, err)
		return
	}
	if h.journal != nil && h.sendBlocks(msgs) {
		h.sendInTurn(completion.CloneOutgoing(msgs), done)
		return
	}
	s := newStartedSend(h, len(msgs), done)
	s.all(msgs)
	if s.end(s.repeated, s.then) != nil {
		h.journal.Start(r.Alone)
		return
	}
	if h.journal == nil {
		h.serve(r)
	}
	s.complete(r, s.failure)
}

// sendBlocks reports whether sending a batch may wait for the disk before all of it is staged.
func (h *handle) sendBlocks(msgs []driver.Outgoing) bool {
	config := &h.settings.Load().config
	for i := range msgs {
		if msgs[i].Replace || msgs[i].UniqueKey != "" && retentionFreesKeys(config) {
			return true
		}
	}
	return retentionMakesRoom(config)
}

// sendTurn is a started send that blocks a goroutine.
type sendTurn struct{ ended chan struct{} }

// sendInTurn sends on another goroutine, after the sends for which it was called before.
func (h *handle) sendInTurn(msgs []driver.Outgoing, done completion.Sent) {
	turn := &sendTurn{ended: make(chan struct{})}
	before := h.lastSend.Swap(turn)
	completion.Begin(func() func(*completion.Round) {
		defer close(turn.ended)
		if before != nil {
			<-before.ended
		}
		sent, err := h.Send(context.Background(), msgs) // what was started is completed
		return func(r *completion.Round) { done(r, sent, err) }
	})
}

// startedSend is a send that is not waited for.
type startedSend struct {
	sendBatch
	handle *handle
	done   completion.Sent
	then   func(*completion.Round, error) // complete, made once
}

var spareSends sync.Pool

func newStartedSend(h *handle, messages int, done completion.Sent) *startedSend {
	s, ok := spareSends.Get().(*startedSend)
	if !ok {
		s = new(startedSend)
		s.then = s.complete
	}
	s.queue, s.handle, s.done = h.queue, h, done
	s.sent = append(s.sent, make([]driver.Sent, messages)...)
	return s
}

// complete ends the send. err is why it is not durable.
func (s *startedSend) complete(r *completion.Round, err error) {
	if err != nil {
		s.done(r, nil, s.handle.named(err, "send"))
	} else {
		s.done(r, s.sent, driver.NewBatchError(s.failures))
	}
	clear(s.sent)
	*s = startedSend{sendBatch: sendBatch{sent: s.sent[:0]}, then: s.then}
	if cap(s.sent) <= maxKeptDeliveries {
		spareSends.Put(s)
	}
}

// retryAfter is the RetryAfter of a full queue. It is a pace, not a prediction: the time of the
// next ack is unknown.
const retryAfter = time.Second

// noRoomLocked returns the error for n messages that do not fit in the shard, and names the
// limit that they meet.
func (q *queue) noRoomLocked(sh *shard, n int) error {
	config := &q.settings.Load().config
	field, limit := "MaxBytes", config.MaxBytes
	if !sh.engine.FitAll(n, 0) {
		field, limit = "MaxMessages", config.MaxMessages
	}
	return &driver.Error{
		Code: driver.ErrFull, Queue: q.name, Field: field, Detail: fmt.Sprintf("queue is full (%s %d)", field, limit), RetryAfter: retryAfter,
	}
}

func (q *queue) full(detail string, wait time.Duration) error {
	return &driver.Error{Code: driver.ErrFull, Queue: q.name, Detail: detail, RetryAfter: wait}
}
