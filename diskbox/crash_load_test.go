package diskbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The clients of a machine whose power is about to be cut.

// crashQueues are the kinds of queues. An env has some of them.
var crashQueues = []struct {
	name   string
	config driver.Config
	moves  bool // messages move to another queue and back
}{
	{name: "plain", config: driver.Config{DedupWindow: time.Hour}},
	{name: "strict", config: driver.Config{DedupWindow: time.Hour, StrictGroups: true}},
	{name: "sharded", config: driver.Config{DedupWindow: time.Hour, Shards: 3}},
	{name: "strict shards", config: driver.Config{DedupWindow: time.Hour, Shards: 3, StrictGroups: true}},
	{name: "limited", config: driver.Config{DedupWindow: time.Hour, MaxDeliveries: 2}},
	{name: "retaining", config: driver.Config{
		DedupWindow: time.Hour,
		RetainReady: driver.Retention{Age: 40 * time.Second, Count: 8},
		RetainDead:  driver.Retention{Age: 90 * time.Second, Count: 5},
	}},
	{name: "forwarding", config: driver.Config{DedupWindow: time.Hour, MaxDeliveries: 2, DeadLetterTo: crashDeadLetters}},
	{name: "dropping", config: driver.Config{
		DedupWindow: time.Hour, DropExpired: true,
		RetainReady: driver.Retention{Age: 40 * time.Second, Count: 8},
	}},
	{name: "moving", config: driver.Config{DedupWindow: time.Hour}, moves: true},
	{name: "moving groups", config: driver.Config{DedupWindow: time.Hour, Shards: 2, StrictGroups: true}, moves: true},
	{name: "fair", config: driver.Config{DedupWindow: time.Hour, FairGroups: true}},
	{name: "moving fair groups", config: driver.Config{DedupWindow: time.Hour, FairGroups: true, MaxDeliveries: 3}, moves: true},
	{name: "mortal", config: driver.Config{DedupWindow: time.Hour, TTL: 40 * time.Second}},
	{name: "mortal groups", config: driver.Config{DedupWindow: time.Hour, TTL: 40 * time.Second, StrictGroups: true, DropExpired: true}},
	{name: "priorities", config: driver.Config{DedupWindow: time.Hour, PriorityAging: driver.Off}},
	{name: "moving priorities", config: driver.Config{DedupWindow: time.Hour, PriorityAging: driver.Off, MaxDeliveries: 3}, moves: true},
	{name: "unique", config: driver.Config{DedupWindow: time.Hour, DedupMax: crashUniqueMax}},
	{name: "unique in strict groups", config: driver.Config{DedupWindow: time.Hour, DedupMax: crashUniqueMax, StrictGroups: true, MaxDeliveries: 3}},
	{name: "throttled", config: driver.Config{DedupWindow: time.Hour, FairGroups: true, GroupLimits: crashLimits}},
	{name: "throttled in strict groups", config: driver.Config{DedupWindow: time.Hour, Shards: 2, StrictGroups: true, GroupLimits: crashLimits}},
	{name: "capped", config: driver.Config{DedupWindow: time.Hour, FairGroups: true, GroupLimits: crashCaps, MaxDeliveries: 3}},
	{name: "capped in strict groups", config: driver.Config{DedupWindow: time.Hour, Shards: 2, StrictGroups: true, GroupLimits: crashCaps}},
}

// crashDeadLetters is the target of the dead letters of forwarding queues.
const crashDeadLetters = "dead-letters"

// crashGroups is the number of groups, where groups matter.
const crashGroups = 4

// A crashClient is one goroutine that sends, receives and settles.
type crashClient struct {
	env   *crashEnv
	ctx   context.Context
	rng   *rand.Rand
	held  map[*crashModel][]heldDelivery
	steps int
}

type heldDelivery struct {
	token int
	driver.Delivery
}

// A crashQueue is a queue with its model.
type crashQueue struct {
	model  *crashModel
	queue  driver.Queue
	beside driver.Queue // see crashModel.beside; nil if there is none
}

// work makes the given number of steps.
func (c *crashClient) work(queues []crashQueue) error {
	c.held = make(map[*crashModel][]heldDelivery)
	for range c.steps {
		q := queues[c.rng.IntN(len(queues))]
		if err := c.step(q); err != nil {
			return fmt.Errorf("queue %s: %w", q.model.name, err)
		}
		if c.env.halted() {
			return nil
		}
		c.env.cutAfterAnswer()
	}
	return nil
}

func (c *crashClient) step(q crashQueue) error {
	if q.beside != nil && c.chance(8) {
		return c.move(q)
	}
	if q.model.throttles() && c.chance(8) {
		return c.throttle(q)
	}
	if c.chance(40) {
		return c.pause(q)
	}
	switch n := c.rng.IntN(100); {
	case n < 32:
		return c.send(q)
	case n < 34:
		return c.contradict(q)
	case n < 55:
		return c.receive(q)
	case n < 84:
		return c.settle(q)
	case n < 91:
		return c.useDeadLetters(q)
	case n < 92:
		return c.purge(q)
	case n < 95:
		return c.edit(q)
	default:
		c.env.elapse(c.pick(time.Millisecond, 20*time.Millisecond, time.Second, 10*time.Second))
		return nil
	}
}

func (c *crashClient) chance(n int) bool { return c.rng.IntN(n) == 0 }

func (c *crashClient) pick(durations ...time.Duration) time.Duration {
	return durations[c.rng.IntN(len(durations))]
}

// send sends a batch of new messages, and now and then repeats a send.
func (c *crashClient) send(q crashQueue) error {
	models := &c.env.models
	var tokens []int
	var batch []driver.Outgoing
	models.mu.Lock()
	for range 1 + c.rng.IntN(5) {
		token := len(q.model.messages)
		if token > 0 && c.chance(8) && q.model.messages[token-1].repeatable() {
			token-- // again, perhaps while the first send is pending
		} else {
			out := c.outgoing(token)
			if q.model.config.TTL > 0 && c.chance(3) {
				out.TTL = c.pick(5*time.Second, time.Minute)
			}
			if q.model.prioritizes() && c.chance(2) {
				out.Priority = c.rng.IntN(driver.MaxPriority + 1)
			}
			if q.model.hasKeys() {
				out.UniqueKey = crashKey(token)
			}
			q.model.addLocked(out)
		}
		tokens = append(tokens, token)
		batch = append(batch, q.model.messages[token].out)
	}
	op := models.beginLocked(q.model, opSend, tokens)
	models.mu.Unlock()
	sent, err := q.queue.Send(c.ctx, batch)
	if wrong := models.sent(op, sent, err); wrong != "" {
		return errors.New(wrong)
	}
	return err
}

// repeatable reports whether sending a message again changes nothing. If a crash prevented the
// first send, the repetition is a new message.
func (i *crashMessage) repeatable() bool { return i.out.DedupKey != "" && !(i.unsent && i.changed > 0) }

// contradict sends another body under a used dedup key.
func (c *crashClient) contradict(q crashQueue) error {
	models := &c.env.models
	key := ""
	models.mu.Lock()
	if n := len(q.model.messages); n > 0 {
		if i := &q.model.messages[c.rng.IntN(n)]; !i.unsent && i.pending[opSend] == 0 {
			key = i.out.DedupKey
		}
	}
	models.mu.Unlock()
	if key == "" {
		return nil
	}
	_, err := q.queue.Send(c.ctx, []driver.Outgoing{{Body: []byte("another body"), DedupKey: key}})
	if !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("a used key with another body: %w", err)
	}
	return nil
}

// outgoing returns a message whose token can be read from its correlation id, or from its body
// if it has none.
func (c *crashClient) outgoing(token int) driver.Outgoing {
	size := c.rng.IntN(300)
	switch c.rng.IntN(40) {
	case 0:
		size = 3000 + c.rng.IntN(6000)
	case 1, 2, 3:
		size = 0
	}
	body := make([]byte, size)
	for i := 0; i < len(body); i += 1 + i%7 {
		body[i] = byte(c.rng.Uint32())
	}
	out := driver.Outgoing{Body: body}
	if c.chance(2) {
		out.Body = append(fmt.Appendf(nil, "%d ", token), body...)
	} else {
		out.CorrelationID = strconv.Itoa(token)
	}
	if c.chance(3) {
		out.DedupKey = fmt.Sprintf("key of %d", token)
	}
	if c.chance(3) {
		out.Delay = c.pick(50*time.Millisecond, time.Second, 10*time.Second, 30*time.Second)
	}
	if c.chance(8) {
		out.Attributes = map[string]string{"colour": "red", "token": strconv.Itoa(token)}
		out.ReplyTo = "replies"
	}
	out.Group = crashGroup(c.rng.IntN(crashGroups))
	if c.chance(2) && out.CorrelationID == "" {
		out.Group = "" // so that some messages have nothing but a body
	}
	return out
}

// tokenOf returns the token of a message; ok is false if no client can have sent it.
func tokenOf(m *driver.Message, b *crashModel) (int, bool) {
	text := m.CorrelationID
	if text == "" {
		text, _, _ = strings.Cut(string(m.Body), " ")
	}
	token, err := strconv.Atoi(text)
	return token, err == nil && token >= 0 && token < len(b.messages)
}

func (c *crashClient) tokenOf(m *driver.Message, b *crashModel) (int, bool) {
	c.env.models.mu.Lock()
	defer c.env.models.mu.Unlock()
	return tokenOf(m, b)
}

// crashCause and crashError are the causes of nacks and dead letters.
func crashCause(token int) string { return fmt.Sprintf("cause %d", token) }
func crashError(token int) string { return fmt.Sprintf("error %d", token) }

const crashErrorType = "crash"

func crashReason(token int) driver.Reason {
	return []driver.Reason{driver.ReasonFatal, driver.ReasonParse, driver.ReasonOperator}[token%3]
}

func (c *crashClient) receive(q crashQueue) error {
	models := &c.env.models
	op := models.begin(q.model, opReceive, nil)
	got, err := q.queue.Receive(c.ctx, driver.ReceiveRequest{
		Max: 1 + c.rng.IntN(6), Visibility: c.pick(0, time.Second, 15*time.Second, time.Minute), Wait: c.pick(0, 0, time.Second),
	})
	var tokens []int
	for n := range got {
		token, ok := c.tokenOf(&got[n].Message, q.model)
		if !ok {
			return fmt.Errorf("message %s was never sent", got[n].ID)
		}
		tokens = append(tokens, token)
		c.held[q.model] = append(c.held[q.model], heldDelivery{token, got[n]})
	}
	if wrong := models.delivered(op, tokens, got); wrong != "" {
		return errors.New(wrong)
	}
	return err
}

// settle acks, nacks, dead-letters or extends some of this client's deliveries in one call.
// Expired leases fail, as expected.
func (c *crashClient) settle(q crashQueue) error {
	held := c.held[q.model]
	if len(held) == 0 {
		return c.receive(q)
	}
	count := 1 + c.rng.IntN(min(len(held), 4))
	var tokens []int
	var deliveries []driver.Delivery
	for _, h := range held[:count] {
		tokens, deliveries = append(tokens, h.token), append(deliveries, h.Delivery)
	}
	choice := c.rng.IntN(10)
	if choice == 0 {
		extensions := make([]driver.Extension, count)
		for n := range extensions {
			extensions[n] = driver.Extension{Receipt: deliveries[n].Receipt, Visibility: c.pick(0, 5*time.Second, time.Minute)}
		}
		_, err := q.queue.Extend(c.ctx, extensions)
		return unexpired(err)
	}
	c.held[q.model] = held[count:]
	models := &c.env.models
	var op *crashOp
	var err error
	delay := time.Duration(0)
	switch {
	case choice < 6:
		receipts := make([]driver.Receipt, count)
		for n := range receipts {
			receipts[n] = deliveries[n].Receipt
		}
		op = models.begin(q.model, opAck, tokens)
		if c.chance(2) {
			err = q.queue.Ack(c.ctx, receipts)
		} else {
			err = q.queue.AckLate(c.ctx, receipts)
		}
	case choice < 8:
		delay = c.pick(0, 0, time.Second, 20*time.Second)
		mode := []driver.NackMode{driver.NackFailed, driver.NackFailed, driver.NackRelease, driver.NackPutBack}[c.rng.IntN(4)]
		nacks := make([]driver.Nack, count)
		for n := range nacks {
			nacks[n] = driver.Nack{Receipt: deliveries[n].Receipt, Delay: delay, Cause: crashCause(tokens[n]), Mode: mode}
		}
		op = models.begin(q.model, opNack, tokens)
		op.mode = mode
		err = q.queue.Nack(c.ctx, nacks)
	default:
		requests := make([]driver.DeadLetterRequest, count)
		for n := range requests {
			requests[n] = driver.DeadLetterRequest{
				Receipt: deliveries[n].Receipt, Reason: crashReason(tokens[n]), Error: crashError(tokens[n]), ErrorType: crashErrorType,
			}
		}
		op = models.begin(q.model, opDeadLetter, tokens)
		err = q.queue.DeadLetter(c.ctx, requests)
	}
	models.settled(op, deliveries, delay, err)
	return unexpired(err)
}

// unexpired removes the expected errors.
func unexpired(err error) error {
	batch, ok := errors.AsType[*driver.BatchError](err)
	if !ok {
		return err
	}
	for _, err := range batch.Errs {
		if err != nil && !errors.Is(err, driver.ErrReceiptExpired) {
			return err
		}
	}
	return nil
}

// useDeadLetters redrives or discards dead letters, all or by id.
func (c *crashClient) useDeadLetters(q crashQueue) error {
	if q.model.config.DeadLetterTo != "" {
		return nil // they were forwarded
	}
	models := &c.env.models
	choice := c.rng.IntN(8)
	switch choice {
	case 0:
		op := models.begin(q.model, opPurgeDead, nil)
		_, err := q.queue.PurgeDead(c.ctx)
		if err == nil {
			models.swept(op, isDead, isAbsent)
		}
		return err
	case 1, 2:
		op := models.begin(q.model, opRedrive, nil)
		_, err := q.queue.Redrive(c.ctx, nil, 0)
		if err == nil {
			models.swept(op, isDead, isWaiting)
		}
		if errors.Is(err, driver.ErrConflict) && q.model.hasKeys() {
			models.sweptSome(op)
			return nil
		}
		return err
	}
	var ids []string
	var tokens []int
	for letter, err := range q.queue.DeadLetters(c.ctx) {
		if err != nil {
			return err
		}
		token, ok := c.tokenOf(&letter.Message, q.model)
		if !ok {
			return fmt.Errorf("dead letter %s was never sent", letter.ID)
		}
		if c.chance(2) {
			ids, tokens = append(ids, letter.ID), append(tokens, token)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	kind, do := opRedrive, func() (int, error) { return q.queue.Redrive(c.ctx, ids, 0) }
	if choice == 3 {
		kind, do = opDiscard, func() (int, error) { return q.queue.Discard(c.ctx, ids) }
	}
	op := models.begin(q.model, kind, tokens)
	count, err := do()
	if errors.Is(err, driver.ErrConflict) && q.model.hasKeys() {
		err = nil // another message holds the unique key of one of them
	}
	if err == nil {
		models.moved(op, count)
	}
	return err
}

func (c *crashClient) purge(q crashQueue) error {
	if c.chance(2) || q.model.moves {
		return nil // it would leave messages that have moved
	}
	op := c.env.models.begin(q.model, opPurge, nil)
	_, err := q.queue.Purge(c.ctx)
	if err == nil {
		c.env.models.swept(op, isWaiting, isAbsent)
	}
	return err
}
