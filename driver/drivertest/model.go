package drivertest

import (
	"slices"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Model is a queue with one shard, written to be checked by reading: two slices, linear
// searches, no index, no lock and no clock. It is the executable form of the semantics, and
// random programs compare backends with it. Comments name the rule that a line implements.
//
// Every method takes the time since the model's start, which must not go
// back, and otherwise takes and returns what the driver method of the same
// name does. Nothing blocks: Receive leaves ReceiveRequest.Wait to the caller.
// A Model is not safe for concurrent use.
type Model struct {
	name   string
	start  time.Time
	traits driver.Traits
	config driver.Config
	now    time.Duration
	paused bool

	waiting []*modelMessage // ready, delayed and in flight, first sent or redriven first
	dead    []*modelMessage // oldest death first
	keys    []modelKey      // live dedup keys, oldest first
	sends   int             // ids given out
	place   uint64          // last place given out
	nonce   uint64          // last receipt given out

	turns  map[string]modelTurn // turns of fair and strict groups
	served int                  // how often a group was served
}

// modelMessage is one message. Which of the states ready, delayed and in
// flight it is in follows from leased, due and the time.
type modelMessage struct {
	driver.DeadLetter // its record, dead or not

	place   uint64
	due     time.Duration // delayed until then
	delayed bool          // the delay has not ended
	born    time.Duration // when it became ready after it was sent or redriven
	diedAt  time.Duration

	leased    bool
	nonce     uint64
	given     []uint64      // nonces of all deliveries at this place
	deadline  time.Duration // of the lease
	holdUntil time.Duration // the bound of extensions; 0 means none
}

// modelKey is a dedup key in use.
type modelKey struct {
	key, body, id string
	end           time.Duration
}

// NewModel returns an empty queue called name. Traits gives the limits of arguments, and start
// is the wall time at 0.
func NewModel(name string, traits driver.Traits, config driver.Config, start time.Time) *Model {
	m := &Model{name: name, start: start, traits: traits, turns: make(map[string]modelTurn)}
	m.setConfig(config)
	return m
}

// Configure changes the configuration. It keeps the messages, and applies the new bounds at
// once.
func (m *Model) Configure(now time.Duration, config driver.Config) {
	m.advance(now)
	m.setConfig(config)
	m.settle()
}

func (m *Model) setConfig(config driver.Config) {
	m.config = config
	m.traits.StrictGroups, m.traits.FairGroups = config.StrictGroups, config.FairGroups
	if config.DedupWindow > 0 {
		m.traits.DedupWindow = config.DedupWindow
	}
}

// Traits returns the traits of the modelled queue.
func (m *Model) Traits() driver.Traits { return m.traits }

// Send enqueues msgs in order (SND-1, SND-4).
func (m *Model) Send(now time.Duration, msgs []driver.Outgoing) ([]driver.Sent, error) {
	m.advance(now)
	sent := make([]driver.Sent, len(msgs))
	errs := make([]error, len(msgs))
	for i := range msgs {
		sent[i], errs[i] = m.send(&msgs[i])
		m.settle()
	}
	return sent, driver.NewBatchError(errs)
}

func (m *Model) send(msg *driver.Outgoing) (driver.Sent, error) {
	if err := msg.Check(&m.traits); err != nil {
		return driver.Sent{}, err // SND-2, SND-6
	}
	if msg.DedupKey != "" {
		for _, known := range m.keys {
			switch {
			case known.key != msg.DedupKey:
			case known.body != string(msg.Body):
				return driver.Sent{}, m.fail("send", driver.ErrConflict, 0) // DUP-2
			default:
				return driver.Sent{ID: known.id, Duplicate: true}, nil // DUP-1
			}
		}
	}
	if !m.fits(len(msg.Body)) {
		return driver.Sent{}, m.fail("send", driver.ErrFull, someTime) // SND-5
	}
	if msg.DedupKey != "" && m.config.DedupMax > 0 && len(m.keys) >= m.config.DedupMax {
		return driver.Sent{}, m.fail("send", driver.ErrFull, m.keys[0].end-m.now) // DUP-3
	}
	m.sends++
	id := "m" + strconv.Itoa(m.sends)
	if msg.DedupKey != "" {
		m.keys = append(m.keys, modelKey{
			key: msg.DedupKey, body: string(msg.Body), id: id, end: m.now + m.traits.DedupWindow,
		})
	}
	m.enqueue(&modelMessage{
		DeadLetter: driver.DeadLetter{Message: driver.Message{
			ID: id, Body: msg.Body, Attributes: msg.Attributes, Group: msg.Group,
			ReplyTo: msg.ReplyTo, CorrelationID: msg.CorrelationID, Seal: slices.Clone(msg.Seal), EnqueuedAt: m.wall(),
		}},
		due: m.now + msg.Delay,
	})
	return driver.Sent{ID: id}, nil
}

// enqueue adds a message at the tail (ORD-1); its age counts from when it is due (RET-1).
func (m *Model) enqueue(msg *modelMessage) {
	m.place++
	msg.place, msg.given, msg.born = m.place, nil, max(m.now, msg.due)
	msg.delayed = msg.due > m.now
	m.waiting = append(m.waiting, msg)
}

// Receive leases ready messages in order of place (RCV-1, ORD-1).
func (m *Model) Receive(now time.Duration, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	req, err := req.Check(&m.traits)
	if err != nil {
		return nil, err
	}
	m.advance(now)
	batch, atCeiling := m.choose(req)
	if len(batch) == 0 && atCeiling {
		return nil, m.fail("receive", driver.ErrFull, someTime)
	}
	deliveries := make([]driver.Delivery, len(batch))
	for i, msg := range batch {
		m.nonce++
		msg.leased, msg.nonce = true, m.nonce // VIS-2: a fresh receipt each time
		msg.given = append(msg.given, m.nonce)
		msg.deadline = m.now + req.Visibility
		msg.holdUntil = 0
		if bound := driver.HoldBound(m.config.MaxHold, req.Visibility); bound > 0 { // VIS-5
			msg.holdUntil = m.now + bound
		}
		msg.Deliveries++
		if msg.FirstReceivedAt.IsZero() {
			msg.FirstReceivedAt = m.wall()
		}
		deliveries[i] = driver.Delivery{Message: msg.Message, Receipt: driver.Receipt{Handle: msg.ID, Nonce: m.nonce}}
	}
	m.settle() // with visibility 0 they are ready again (VIS-1)
	return deliveries, nil
}

// choose picks the messages that Receive will lease. atCeiling reports that only MaxInFlight
// holds back another.
func (m *Model) choose(req driver.ReceiveRequest) (batch []*modelMessage, atCeiling bool) {
	if m.paused { // FLOW-2
		return nil, false
	}
	if m.config.FairGroups {
		return m.chooseFairly(req)
	}
	if m.config.StrictGroups {
		return m.chooseStrictly(req)
	}
	inFlight, size := m.out(nil), 0
	for _, msg := range m.byPlace() {
		switch {
		case len(batch) == req.Max:
			return batch, false
		case msg.leased, msg.due > m.now:
			continue
		case m.exhausted(msg): // DLQ-1: moved instead of delivered
			m.dieOrWait(msg)
			continue
		case m.config.MaxInFlight > 0 && inFlight+len(batch) >= m.config.MaxInFlight:
			return batch, true
		case len(batch) > 0 && req.MaxBytes > 0 && size+len(msg.Body) > req.MaxBytes:
			return batch, false
		}
		batch = append(batch, msg)
		size += len(msg.Body)
	}
	return batch, false
}

// Ack removes messages permanently (ACK-1).
func (m *Model) Ack(now time.Duration, receipts []driver.Receipt) error {
	m.advance(now)
	return eachOf(receipts, func(receipt driver.Receipt) error {
		msg := m.held(receipt)
		if msg == nil {
			return m.fail("ack", driver.ErrReceiptExpired, 0)
		}
		m.remove(msg)
		return nil
	})
}

// AckLate removes a message with any receipt of a delivery at its current place (VIS-7).
func (m *Model) AckLate(now time.Duration, receipts []driver.Receipt) error {
	m.advance(now)
	return eachOf(receipts, func(receipt driver.Receipt) error {
		msg := m.delivered(receipt)
		if msg == nil {
			return m.fail("ack", driver.ErrReceiptExpired, 0)
		}
		m.remove(msg)
		return nil
	})
}

// Nack makes messages ready at the tail (ACK-1, ORD-2), in a strict group at their own place
// (ORD-4).
func (m *Model) Nack(now time.Duration, nacks []driver.Nack) error {
	m.advance(now)
	return eachOf(nacks, func(nack driver.Nack) error {
		if err := driver.CheckVisibility("nack", "Delay", nack.Delay, &m.traits); err != nil {
			return err
		}
		msg := m.held(nack.Receipt)
		if msg == nil {
			return m.fail("nack", driver.ErrReceiptExpired, 0)
		}
		msg.leased = false
		msg.due = m.now + nack.Delay
		msg.delayed = nack.Delay > 0
		if nack.Cause != "" {
			msg.LastError = driver.TrimCause(nack.Cause)
		}
		if !m.exhausted(msg) && !m.config.StrictGroups {
			m.place++
			msg.place, msg.given = m.place, nil
		}
		m.comeBack(msg)
		m.settle()
		return nil
	})
}

// Extend moves deadlines, relative to now (VIS-3), within MaxHold (VIS-5).
func (m *Model) Extend(now time.Duration, extensions []driver.Extension) ([]time.Duration, error) {
	m.advance(now)
	granted := make([]time.Duration, 0, len(extensions))
	err := eachOf(extensions, func(extension driver.Extension) error {
		granted = append(granted, 0)
		if err := driver.CheckVisibility("extend", "Visibility", extension.Visibility, &m.traits); err != nil {
			return err
		}
		msg := m.held(extension.Receipt)
		if msg == nil {
			return m.fail("extend", driver.ErrReceiptExpired, 0)
		}
		granted[len(granted)-1] = m.extend(msg, extension.Visibility)
		return nil
	})
	return granted, err
}

func (m *Model) extend(msg *modelMessage, visibility time.Duration) (granted time.Duration) {
	msg.deadline = m.now + visibility
	if msg.holdUntil > 0 {
		msg.deadline = min(msg.deadline, msg.holdUntil)
	}
	granted = msg.deadline - m.now
	m.settle()
	return granted
}

// ExtendLate is Extend that also leases a message again that is ready at the place of its last
// delivery (VIS-7).
func (m *Model) ExtendLate(now time.Duration, extensions []driver.Extension) error {
	m.advance(now)
	return eachOf(extensions, func(extension driver.Extension) error {
		if err := driver.CheckVisibility("extend", "Visibility", extension.Visibility, &m.traits); err != nil {
			return err
		}
		if msg := m.held(extension.Receipt); msg != nil {
			m.extend(msg, extension.Visibility)
			return nil
		}
		msg := m.delivered(extension.Receipt)
		full := m.config.MaxInFlight > 0 && m.Stats(now).InFlight >= m.config.MaxInFlight
		if msg == nil || msg.nonce != extension.Receipt.Nonce || m.state(msg) != driver.StateReady || m.config.StrictGroups || full {
			return m.fail("extend", driver.ErrReceiptExpired, 0)
		}
		if extension.Visibility > 0 {
			msg.leased, msg.deadline, msg.holdUntil = true, m.now+extension.Visibility, 0
			if bound := driver.HoldBound(m.config.MaxHold, extension.Visibility); bound > 0 {
				msg.holdUntil = m.now + bound
			}
		}
		return nil
	})
}

// DeadLetter moves leased messages to the dead letters (DLQ-1, DLQ-4).
func (m *Model) DeadLetter(now time.Duration, requests []driver.DeadLetterRequest) error {
	m.advance(now)
	return eachOf(requests, func(request driver.DeadLetterRequest) error {
		if !request.Reason.Valid() {
			return m.fail("dead letter", driver.ErrInvalid, 0)
		}
		msg := m.held(request.Receipt)
		switch {
		case msg == nil:
			return m.fail("dead letter", driver.ErrReceiptExpired, 0)
		case m.deadFull():
			return m.fail("dead letter", driver.ErrFull, 0)
		}
		if request.Error != "" {
			msg.LastError = driver.TrimCause(request.Error)
		}
		msg.ErrorType = request.ErrorType
		m.die(msg, request.Reason)
		m.settle()
		return nil
	})
}

// DeadLetters lists the dead letters, oldest death first (DLQ-5).
func (m *Model) DeadLetters(now time.Duration) []driver.DeadLetter {
	m.advance(now)
	letters := make([]driver.DeadLetter, len(m.dead))
	for i, msg := range m.dead {
		letters[i] = msg.DeadLetter
	}
	return letters
}

// Redrive moves dead letters to the tail (DLQ-5).
func (m *Model) Redrive(now time.Duration, ids []string, limit int) (moved int, err error) {
	m.advance(now)
	for _, msg := range slices.Clone(m.dead) {
		switch {
		case !slices.Contains(m.dead, msg):
			continue // retention has just removed it
		case ids != nil && !slices.Contains(ids, msg.ID):
			continue
		case limit > 0 && moved == limit:
			return moved, nil
		case !m.fits(len(msg.Body)):
			return moved, m.fail("redrive", driver.ErrFull, 0) // SND-5
		}
		m.removeDead(msg)
		msg.Source, msg.Reason, msg.ErrorType, msg.DeadAt = "", "", "", time.Time{}
		msg.Deliveries = 0
		msg.Redrives++
		msg.due = m.now
		m.enqueue(msg)
		moved++
		m.settle()
	}
	return moved, nil
}

// Discard removes dead letters permanently, one after the other (DLQ-5).
func (m *Model) Discard(now time.Duration, ids []string) (removed int) {
	m.advance(now)
	for _, id := range ids {
		for _, letter := range slices.Clone(m.dead) {
			if letter.ID == id {
				m.removeDead(letter)
				removed++
			}
		}
		m.settle()
	}
	return removed
}

// PurgeDead removes all dead letters (DLQ-5).
func (m *Model) PurgeDead(now time.Duration) (removed int) {
	m.advance(now)
	removed = len(m.dead)
	m.dead = nil
	m.settle()
	return removed
}

// Purge removes all messages that are not dead (CNT-3). The dedup table stays (DUP-3).
func (m *Model) Purge(now time.Duration) (removed int) {
	m.advance(now)
	removed = len(m.waiting)
	m.waiting = nil
	return removed
}

// SetPaused pauses or resumes the queue (FLOW-2).
func (m *Model) SetPaused(now time.Duration, paused bool) {
	m.advance(now)
	m.paused = paused
}

// Stats counts by state (CNT-1).
func (m *Model) Stats(now time.Duration) driver.Stats {
	m.advance(now)
	stats := driver.Stats{Dead: len(m.dead), Paused: m.paused}
	for _, msg := range m.waiting {
		switch m.state(msg) {
		case driver.StateReady:
			stats.Ready++
		case driver.StateDelayed:
			stats.Delayed++
		case driver.StateInFlight:
			stats.InFlight++
		}
	}
	return stats
}

// eachOf applies do to every element of a batch and keeps positions (ACK-2).
func eachOf[E any](batch []E, do func(E) error) error {
	errs := make([]error, len(batch))
	for i, element := range batch {
		errs[i] = do(element)
	}
	return driver.NewBatchError(errs)
}

// someTime stands for any retry hint; one must be present.
const someTime = time.Nanosecond

func (m *Model) fail(op string, code driver.Code, retryAfter time.Duration) error {
	return &driver.Error{Code: code, Op: op, Queue: m.name, RetryAfter: retryAfter}
}

func (m *Model) wall() time.Time { return m.start.Add(m.now).UTC() }
