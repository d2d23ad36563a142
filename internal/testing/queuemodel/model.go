package queuemodel

import (
	"cmp"
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
	Traits driver.Traits
	Config driver.Config
	Now    time.Duration
	Paused bool

	Waiting []*Message // ready, delayed and in flight, first sent or redriven first
	Dead    []*Message // oldest death first
	Keys    []modelKey // live dedup keys, oldest first
	Sends   int        // ids given out
	Place   uint64     // last place given out
	Nonce   uint64     // last receipt given out

	Schedules []driver.Schedule // by name
	Revision  uint64            // of a schedule, last given out

	priorities  bool // if there are no groups
	groupLimits bool // if there are strict or fair groups

	buckets map[string]modelBucket
	turns   map[string]modelTurn // turns of fair and strict groups
	served  int                  // how often a group was served
}

// Message is one message. Which of the states ready, delayed and in
// flight it is in follows from Leased, due and the time.
type Message struct {
	driver.DeadLetter // its record, dead or not

	Place    uint64
	due      time.Duration // delayed until then
	Delayed  bool          // the delay has not ended
	born     time.Duration // when it became ready after it was sent or redriven
	since    time.Duration // when its age for FLOW-1 began
	diedAt   time.Duration
	ttl      time.Duration // 0: it has no time to live
	ends     time.Duration // when its time to live is over (TIME-2)
	unique   string        // its unique key (FLOW-5)
	holds    bool          // it holds the key
	replaced bool          // it was replaced since it was sent or redriven

	Leased    bool
	Again     bool // leased again under the receipt of a delivery that was over (VIS-7)
	First     bool // FirstReceivedAt is that of the latest delivery
	Releases  int  // how often it was given back since its last delivery that counted (FLOW-4)
	Nonce     uint64
	Given     []uint64      // nonces of all deliveries at this place
	Deadline  time.Duration // of the lease
	HoldUntil time.Duration // the bound of extensions; 0 means none
}

// modelKey is a dedup key in use.
type modelKey struct {
	key, body, ID string
	End           time.Duration
}

// New returns an empty queue called name. Traits gives the limits of arguments, and start
// is the wall time at 0.
func New(name string, traits driver.Traits, config driver.Config, start time.Time) *Model {
	m := &Model{name: name, start: start, Traits: traits, priorities: traits.Priorities, groupLimits: traits.GroupLimits, turns: make(map[string]modelTurn), buckets: make(map[string]modelBucket)}
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
	m.Config = config
	m.Traits.StrictGroups, m.Traits.FairGroups = config.StrictGroups, config.FairGroups
	m.Traits.Priorities = m.priorities && !config.StrictGroups && !config.FairGroups   // FLOW-1
	m.Traits.GroupLimits = m.groupLimits && (config.StrictGroups || config.FairGroups) // FLOW-6
	m.relimit()
	if config.DedupWindow > 0 {
		m.Traits.DedupWindow = config.DedupWindow
	}
}

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
	msg, err := m.delayed(msg)
	if err == nil {
		err = msg.Check(&m.Traits)
	}
	if err != nil {
		return driver.Sent{}, err // SND-2, SND-6
	}
	if msg.DedupKey != "" {
		for _, known := range m.Keys {
			switch {
			case known.key != msg.DedupKey:
			case known.body != string(msg.Body):
				return driver.Sent{}, m.fail("send", driver.ErrConflict, 0) // DUP-2
			default:
				return driver.Sent{ID: known.ID, Duplicate: true}, nil // DUP-1
			}
		}
	}
	if msg.DedupKey != "" && m.Config.DedupMax > 0 && len(m.Keys) >= m.Config.DedupMax {
		return driver.Sent{}, m.fail("send", driver.ErrFull, m.Keys[0].End-m.Now) // DUP-3
	}
	if holder := m.holder(msg.UniqueKey); holder != nil {
		return m.sendHeld(msg, holder) // FLOW-5
	}
	if !m.fits(1, len(msg.Body)) || (msg.UniqueKey != "" && m.keysFull()) {
		return driver.Sent{}, m.fail("send", driver.ErrFull, SomeTime) // SND-5, FLOW-5
	}
	m.Sends++
	id := "m" + strconv.Itoa(m.Sends)
	if msg.DedupKey != "" {
		m.Keys = append(m.Keys, modelKey{
			key: msg.DedupKey, body: string(msg.Body), ID: id, End: m.Now + m.Traits.DedupWindow,
		})
	}
	m.enqueue(&Message{
		DeadLetter: driver.DeadLetter{Message: driver.Message{
			ID: id, Body: msg.Body, Attributes: msg.Attributes, Group: msg.Group,
			ReplyTo: msg.ReplyTo, CorrelationID: msg.CorrelationID, Seal: slices.Clone(msg.Seal), EnqueuedAt: m.wall(),
			Priority: msg.Priority,
		}},
		unique: msg.UniqueKey,
		due:    m.Now + msg.Delay, ttl: cmp.Or(msg.TTL, m.Config.TTL), ends: m.Now + msg.Delay + cmp.Or(msg.TTL, m.Config.TTL),
	})
	return driver.Sent{ID: id}, nil
}

// enqueue adds a message at the tail (ORD-1); its age counts from when it is due (RET-1).
func (m *Model) enqueue(msg *Message) {
	m.Place++
	msg.Place, msg.Given, msg.born, msg.Releases = m.Place, nil, max(m.Now, msg.due), 0
	msg.since, msg.replaced = msg.born, false
	if !m.Traits.Priorities {
		msg.Priority = 0 // it was moved here
	}
	msg.Delayed = msg.due > m.Now
	msg.holds = msg.unique != "" && m.holder(msg.unique) == nil // FLOW-5
	m.Waiting = append(m.Waiting, msg)
}

// Receive leases ready messages in order of level (FLOW-1) and place (RCV-1, ORD-1).
func (m *Model) Receive(now time.Duration, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	req, err := req.Check(&m.Traits)
	if err != nil {
		return nil, err
	}
	m.advance(now)
	batch, atCeiling := m.choose(req)
	if len(batch) == 0 && atCeiling {
		return nil, m.fail("receive", driver.ErrFull, SomeTime)
	}
	deliveries := make([]driver.Delivery, len(batch))
	for i, msg := range batch {
		m.Nonce++
		msg.Leased, msg.Again, msg.Nonce = true, false, m.Nonce // VIS-2: a fresh receipt each time
		msg.Given = append(msg.Given, m.Nonce)
		msg.Deadline = m.Now + req.Visibility
		msg.HoldUntil = 0
		if bound := driver.HoldBound(m.Config.MaxHold, req.Visibility); bound > 0 { // VIS-5
			msg.HoldUntil = m.Now + bound
		}
		msg.Deliveries++
		if msg.First = msg.FirstReceivedAt.IsZero(); msg.First {
			msg.FirstReceivedAt = m.wall()
		}
		deliveries[i] = driver.Delivery{Message: msg.Message, Receipt: driver.Receipt{Handle: msg.ID, Nonce: m.Nonce}}
	}
	m.settle() // with visibility 0 they are ready again (VIS-1)
	return deliveries, nil
}

// choose picks the messages that Receive will lease. atCeiling reports that only MaxInFlight
// holds back another.
func (m *Model) choose(req driver.ReceiveRequest) (batch []*Message, atCeiling bool) {
	if m.Paused { // FLOW-2
		return nil, false
	}
	if m.Config.FairGroups {
		return m.chooseFairly(req)
	}
	if m.Config.StrictGroups {
		return m.chooseStrictly(req)
	}
	inFlight, size := m.out(nil), 0
	for _, msg := range m.byLevel() {
		switch {
		case len(batch) == req.Max:
			return batch, false
		case m.exhausted(msg): // DLQ-1: moved instead of delivered
			m.dieOrWait(msg)
			continue
		case m.outlived(msg): // TIME-2: the dead letters have no room for it
			m.lapseOrWait(msg)
			continue
		case m.Config.MaxInFlight > 0 && inFlight+len(batch) >= m.Config.MaxInFlight:
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
		msg := m.Held(receipt)
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
		msg := m.Delivered(receipt)
		if msg == nil {
			return m.fail("ack", driver.ErrReceiptExpired, 0)
		}
		m.remove(msg)
		return nil
	})
}

// Nack makes messages ready at the tail (ACK-1, ORD-2), in a strict group (ORD-4) and if they
// are released (FLOW-4) at their own place.
func (m *Model) Nack(now time.Duration, nacks []driver.Nack) error {
	m.advance(now)
	return eachOf(nacks, func(nack driver.Nack) error {
		if err := nack.Check(&m.Traits); err != nil {
			return err
		}
		msg := m.Held(nack.Receipt)
		if msg == nil {
			return m.fail("nack", driver.ErrReceiptExpired, 0)
		}
		msg.Leased = false
		m.count(msg, nack.Mode)
		if nack.Mode != driver.NackFailed && msg.Releases > 0 {
			m.refund(msg.Group)
		}
		msg.due = m.Now + nack.Delay
		msg.Delayed = nack.Delay > 0
		if nack.Cause != "" {
			msg.LastError = driver.TrimCause(nack.Cause)
		}
		if !m.exhausted(msg) && !m.Config.StrictGroups && nack.Mode != driver.NackRelease {
			m.Place++
			msg.Place, msg.Given = m.Place, nil
			msg.since = msg.born + (msg.due - msg.born).Truncate(time.Microsecond) // FLOW-1; backends keep no more
		}
		m.comeBack(msg)
		m.settle()
		return nil
	})
}

// count counts a delivery that is over, or takes it back (FLOW-4).
func (m *Model) count(msg *Message, mode driver.NackMode) {
	if mode != driver.NackFailed {
		msg.Nonce = 0 // it cannot be leased again under its receipt
	}
	if mode == driver.NackFailed || msg.Releases == driver.MaxReleases || msg.Again {
		msg.Releases = 0
		return
	}
	msg.Releases++
	msg.Deliveries--
	if msg.First {
		msg.FirstReceivedAt = time.Time{}
	}
}

// Extend moves deadlines, relative to now (VIS-3), within MaxHold (VIS-5).
func (m *Model) Extend(now time.Duration, extensions []driver.Extension) ([]time.Duration, error) {
	m.advance(now)
	granted := make([]time.Duration, 0, len(extensions))
	err := eachOf(extensions, func(extension driver.Extension) error {
		granted = append(granted, 0)
		if err := extension.Check(&m.Traits); err != nil {
			return err
		}
		msg := m.Held(extension.Receipt)
		if msg == nil {
			return m.fail("extend", driver.ErrReceiptExpired, 0)
		}
		granted[len(granted)-1] = m.extend(msg, extension.Visibility)
		return nil
	})
	return granted, err
}

func (m *Model) extend(msg *Message, visibility time.Duration) (granted time.Duration) {
	msg.Deadline = m.Now + visibility
	if msg.HoldUntil > 0 {
		msg.Deadline = min(msg.Deadline, msg.HoldUntil)
	}
	granted = msg.Deadline - m.Now
	m.settle()
	return granted
}

// ExtendLate is Extend that also leases a message again that is ready at the place of its last
// delivery (VIS-7).
func (m *Model) ExtendLate(now time.Duration, extensions []driver.Extension) error {
	m.advance(now)
	return eachOf(extensions, func(extension driver.Extension) error {
		if err := extension.Check(&m.Traits); err != nil {
			return err
		}
		if msg := m.Held(extension.Receipt); msg != nil {
			m.extend(msg, extension.Visibility)
			return nil
		}
		msg := m.Delivered(extension.Receipt)
		full := m.Config.MaxInFlight > 0 && m.Stats(now).InFlight >= m.Config.MaxInFlight
		if msg == nil || msg.Nonce != extension.Receipt.Nonce || m.state(msg) != driver.StateReady || m.outlived(msg) || m.Config.StrictGroups || full || m.groupFull(msg.Group) {
			return m.fail("extend", driver.ErrReceiptExpired, 0)
		}
		if extension.Visibility > 0 {
			msg.Leased, msg.Again, msg.Deadline, msg.HoldUntil = true, true, m.Now+extension.Visibility, 0
			if bound := driver.HoldBound(m.Config.MaxHold, extension.Visibility); bound > 0 {
				msg.HoldUntil = m.Now + bound
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
		msg := m.Held(request.Receipt)
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

// Purge removes all messages that are not dead (CNT-3). The dedup table stays (DUP-3).
func (m *Model) Purge(now time.Duration) (removed int) {
	m.advance(now)
	removed = len(m.Waiting)
	m.Waiting = nil
	return removed
}

// SetPaused pauses or resumes the queue (FLOW-2).
func (m *Model) SetPaused(now time.Duration, paused bool) {
	m.advance(now)
	m.Paused = paused
}

// Stats counts by state (CNT-1).
func (m *Model) Stats(now time.Duration) driver.Stats {
	m.advance(now)
	stats := driver.Stats{Dead: len(m.Dead), Paused: m.Paused}
	for _, msg := range m.Waiting {
		switch m.state(msg) {
		case driver.StateReady:
			stats.Ready++
		case driver.StateDelayed:
			stats.Delayed++
		case driver.StateInFlight:
			stats.InFlight++
		}
	}
	stats.Throttled = m.throttled()
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

// SomeTime stands for any retry hint; one must be present.
const SomeTime = time.Nanosecond

func (m *Model) fail(op string, code driver.Code, retryAfter time.Duration) error {
	return &driver.Error{Code: code, Op: op, Queue: m.name, RetryAfter: retryAfter}
}

func (m *Model) wall() time.Time { return m.start.Add(m.Now).UTC() }

// Start is the start time of models, like that of a synctest bubble.
var Start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
