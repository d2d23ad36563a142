package oap

import (
	"time"
	"unsafe"

	"github.com/mailboxmq/mailbox/driver"
)

// AppendReceive writes the payload of OpReceive.
func AppendReceive(dst []byte, handle uint32, q driver.ReceiveRequest) []byte {
	dst = AppendTarget(dst, Target{Handle: handle})
	dst = appendSigned(dst, int64(q.Max))
	dst = appendSigned(dst, int64(q.MaxBytes))
	dst = appendDuration(dst, q.Visibility)
	return appendDuration(dst, q.Wait)
}

// ParseReceive reads the payload of OpReceive.
func ParseReceive(payload []byte) (Target, driver.ReceiveRequest, error) {
	r := reader{rest: payload}
	t := r.target()
	if t.Sequence != 0 {
		r.fail("a receive has no sequence number")
	}
	q := driver.ReceiveRequest{Max: r.int(), MaxBytes: r.int(), Visibility: r.duration(), Wait: r.duration()}
	return t, q, r.end()
}

// SubscribeRequest asks for messages to be sent as they come.
type SubscribeRequest struct {
	Target
	Visibility time.Duration
	// Credit is how many messages may be sent before more credit comes.
	Credit int
}

// AppendSubscribe writes the payload of OpSubscribe.
func AppendSubscribe(dst []byte, s *SubscribeRequest) []byte {
	dst = AppendTarget(dst, s.Target)
	dst = appendDuration(dst, s.Visibility)
	return AppendCount(dst, s.Credit)
}

// ParseSubscribe reads the payload of OpSubscribe.
func ParseSubscribe(payload []byte) (s SubscribeRequest, err error) {
	r := reader{rest: payload}
	s = SubscribeRequest{Target: r.target(), Visibility: r.duration(), Credit: r.limit()}
	return s, r.end()
}

// Bits that say which fields of a message follow.
const (
	msgAttributes = 1 << iota
	msgGroup
	msgReplyTo
	msgCorrelation
	msgLastError
	msgFirstReceived
	msgPriority

	msgKnown = msgPriority<<1 - 1
	// deliveryMore: after the receipt of a delivery a byte follows, with further bits.
	deliveryMore = msgKnown + 1
)

// deliverySlotPending is the only bit of a delivery beside those of its message; see driver.Delivery.
const deliverySlotPending = 1

func appendMessage(dst []byte, m *driver.Message) []byte {
	start := len(dst)
	dst = append(dst, 0)
	dst = appendText(dst, m.ID)
	dst = appendText(dst, m.Body)
	dst = appendSigned(dst, int64(m.Deliveries))
	dst = appendTime(dst, m.EnqueuedAt)
	bits := byte(0)
	if len(m.Attributes) > 0 {
		bits |= msgAttributes
		dst = appendAttributes(dst, m.Attributes)
	}
	for i, text := range [...]string{m.Group, m.ReplyTo, m.CorrelationID, m.LastError} {
		if text != "" {
			bits |= msgGroup << i
			dst = appendText(dst, text)
		}
	}
	if !m.FirstReceivedAt.IsZero() {
		bits |= msgFirstReceived
		dst = appendTime(dst, m.FirstReceivedAt)
	}
	if m.Priority != 0 {
		bits |= msgPriority
		dst = appendSigned(dst, int64(m.Priority))
	}
	dst[start] = bits
	return dst
}

func (r *reader) message(m *driver.Message) { r.messageFields(m, r.byte()) }

// messageFields reads a message after the bits of its fields.
func (r *reader) messageFields(m *driver.Message, bits byte) {
	if bits > msgKnown {
		r.fail("a message has unknown fields")
		return
	}
	m.ID = r.kept()
	m.Body = r.bytes()
	m.Deliveries = r.int()
	m.EnqueuedAt = r.time()
	if bits&msgAttributes != 0 {
		if m.Attributes = r.attributes(); len(m.Attributes) == 0 {
			r.fail("a field is there and empty")
		}
	}
	for i, text := range [...]*string{&m.Group, &m.ReplyTo, &m.CorrelationID, &m.LastError} {
		if bits&(msgGroup<<i) != 0 {
			if *text = r.kept(); *text == "" {
				r.fail("a field is there and empty")
			}
		}
	}
	if bits&msgFirstReceived != 0 {
		if m.FirstReceivedAt = r.time(); m.FirstReceivedAt.IsZero() {
			r.fail("a field is there and empty")
		}
	}
	if bits&msgPriority != 0 {
		if m.Priority = r.int(); m.Priority == 0 {
			r.fail("a field is there and empty")
		}
	}
}

// kept reads a text of a payload that is handed out with it: a body that its
// holder changes against the rules is another part of the payload, with no
// capacity beyond its end, so the text cannot change with it.
func (r *reader) kept() string {
	b := r.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // G103: see above
}

// appendReceipt writes a receipt, which is a text here. One with a place and a
// nonce did not come from a server of this protocol; it is passed on as it is, to
// be refused.
func appendReceipt(dst []byte, receipt *driver.Receipt) []byte {
	if receipt.Place != 0 || receipt.Nonce != 0 {
		return appendText(dst, receipt.String())
	}
	return appendText(dst, receipt.Handle)
}

// AppendDelivery writes one delivery. Deliveries follow each other to the end
// of a payload, which is an answer to OpReceive or the payload of EventDeliver.
func AppendDelivery(dst []byte, d *driver.Delivery) []byte {
	start := len(dst)
	dst = appendMessage(dst, &d.Message)
	dst = appendReceipt(dst, &d.Receipt)
	if d.SlotPending {
		dst[start] |= deliveryMore
		dst = append(dst, deliverySlotPending)
	}
	return dst
}

// TellDelivery removes from a delivery what a client does not know.
func TellDelivery(d *driver.Delivery, known uint64) {
	TellMessage(&d.Message, known)
	d.SlotPending = d.SlotPending && known&traitReplies != 0
}

// ParseDeliveries reads deliveries and adds them to got. They keep the payload,
// which must not be changed or used again.
func ParseDeliveries(payload []byte, got []driver.Delivery) ([]driver.Delivery, error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 {
		got = append(got, driver.Delivery{})
		d := &got[len(got)-1]
		bits := r.byte()
		r.messageFields(&d.Message, bits&^deliveryMore)
		d.Receipt.Handle = r.kept()
		if bits&deliveryMore != 0 {
			if d.SlotPending = r.byte() == deliverySlotPending; !d.SlotPending {
				r.fail("a delivery has unknown fields")
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return got, r.end()
}
