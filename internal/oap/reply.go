package oap

import (
	"bytes"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The states of slots on the wire, by their number.
var slotStates = [...]driver.SlotState{driver.SlotPending, driver.SlotResolved, driver.SlotCancelled, driver.SlotExpired}

// AppendSlotID writes the payload of OpCancelSlot, OpConsumeSlot and OpDeleteSlot.
func AppendSlotID(dst []byte, t Ticket, id string) []byte {
	return appendText(appendTicket(dst, t), id)
}

// ParseSlotID reads the payload of OpCancelSlot, OpConsumeSlot and OpDeleteSlot.
func ParseSlotID(payload []byte) (t Ticket, id string, err error) {
	r := reader{rest: payload}
	t, id = r.ticket(), r.text()
	return t, id, r.end()
}

// AppendSlotTime writes the payload of OpCreateSlot, with the slot's time to live, and of OpWaitSlot,
// with the time to wait.
func AppendSlotTime(dst []byte, t Ticket, id string, d time.Duration) []byte {
	return appendDuration(AppendSlotID(dst, t, id), d)
}

// ParseSlotTime reads the payload of OpCreateSlot and OpWaitSlot.
func ParseSlotTime(payload []byte) (t Ticket, id string, d time.Duration, err error) {
	r := reader{rest: payload}
	t, id, d = r.ticket(), r.text(), r.duration()
	return t, id, d, r.end()
}

// AppendAsking writes the payload of OpSendAsking. The answer is that of OpSend.
func AppendAsking(dst []byte, t Target, id string, ttl time.Duration, m *driver.Outgoing) []byte {
	return AppendOutgoing(appendDuration(appendText(AppendTarget(dst, t), id), ttl), m)
}

// ParseAsking reads the payload of OpSendAsking. The message does not keep the payload.
func ParseAsking(payload []byte) (t Target, id string, ttl time.Duration, m driver.Outgoing, err error) {
	r := reader{rest: payload}
	t, id, ttl = r.target(), r.text(), r.duration()
	r.outgoing(&m)
	m.Body = bytes.Clone(m.Body)
	return t, id, ttl, m, r.end()
}

// AppendResolve writes the payload of OpResolveSlot.
func AppendResolve(dst []byte, t Ticket, id string, a *driver.Answer) []byte {
	return appendAnswer(AppendSlotID(dst, t, id), a)
}

// ParseResolve reads the payload of OpResolveSlot. The answer does not keep the payload.
func ParseResolve(payload []byte) (t Ticket, id string, a driver.Answer, err error) {
	r := reader{rest: payload}
	t, id, a = r.ticket(), r.text(), r.answer()
	return t, id, a, r.end()
}

// AppendAnswering writes the payload of OpAnswer. The answer has failures as OpAck of two elements has:
// that of the slot, and that of the delivery.
func AppendAnswering(dst []byte, t Target, receipt *driver.Receipt, id string, a *driver.Answer) []byte {
	return appendAnswer(appendText(appendReceipt(AppendTarget(dst, t), receipt), id), a)
}

// ParseAnswering reads the payload of OpAnswer. The answer does not keep the payload.
func ParseAnswering(payload []byte) (t Target, receipt driver.Receipt, id string, a driver.Answer, err error) {
	r := reader{rest: payload}
	t, receipt, id, a = r.target(), r.receipt(), r.text(), r.answer()
	return t, receipt, id, a, r.end()
}

func appendAnswer(dst []byte, a *driver.Answer) []byte {
	return appendText(appendText(appendText(dst, a.Body), a.Failure), a.FailureKind)
}

func (r *reader) answer() driver.Answer {
	return driver.Answer{Body: bytes.Clone(r.bytes()), Failure: r.text(), FailureKind: r.text()}
}

// AppendSlot writes the answer to OpWaitSlot and OpConsumeSlot, and an element of that to OpSlots.
func AppendSlot(dst []byte, s *driver.Slot) []byte {
	dst = appendText(dst, s.ID)
	state := byte(0)
	for number, known := range slotStates {
		if s.State == known {
			state = byte(number)
		}
	}
	dst = append(dst, state)
	dst = appendTime(appendTime(appendTime(dst, s.CreatedAt), s.ExpiresAt), s.ResolvedAt)
	if s.State == driver.SlotResolved {
		dst = appendAnswer(dst, &s.Answer)
	}
	return dst
}

// ParseSlot reads the answer to OpWaitSlot and OpConsumeSlot.
func ParseSlot(payload []byte) (s driver.Slot, err error) {
	r := reader{rest: payload}
	s = r.slot()
	return s, r.end()
}

// ParseSlots reads slots up to the end of the payload, as the chunks of the answer to OpSlots have them.
func ParseSlots(payload []byte) (all []driver.Slot, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 && r.err == nil {
		all = append(all, r.slot())
	}
	return all, r.end()
}

func (r *reader) slot() (s driver.Slot) {
	s.ID = r.text()
	state := r.byte()
	if int(state) >= len(slotStates) {
		r.fail("a slot has an unknown state")
		state = 0
	}
	s.State = slotStates[state]
	s.CreatedAt, s.ExpiresAt, s.ResolvedAt = r.time(), r.time(), r.time()
	if s.State == driver.SlotResolved {
		s.Answer = r.answer()
	}
	return s
}

// AppendSlotLimit writes the payload of OpExpiredSlots and OpSweepSlots.
func AppendSlotLimit(dst []byte, t Ticket, limit int) []byte {
	return appendSigned(appendTicket(dst, t), int64(limit))
}

// ParseSlotLimit reads the payload of OpExpiredSlots and OpSweepSlots.
func ParseSlotLimit(payload []byte) (t Ticket, limit int, err error) {
	r := reader{rest: payload}
	t, limit = r.ticket(), r.int()
	return t, limit, r.end()
}
