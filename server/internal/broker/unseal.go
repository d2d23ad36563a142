package broker

import (
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
)

// unseal takes the daemon's part out of a message from the backend, and returns
// it. The error is ErrIntegrity if the message is not the one that was sent; m
// is without the seal in any case.
//
// A message without a seal was put into the backend by somebody else; there is
// nothing to compare it with, and it is sealed now.
func (q *queue) unseal(m *driver.Message) (Seal, error) {
	text, own, sealed := detach(m)
	q.localise(m)
	if !sealed {
		return q.sealNow(m, m.EnqueuedAt, "", "")
	}
	s, err := decodeSeal(text, q.name)
	if err != nil {
		return Seal{}, q.damaged(m, "seal", "cannot be read")
	}
	if own {
		m.CorrelationID = s.corr
	}
	source, isForwarded := m.Attributes[driver.AttributeDeadSource]
	queue := s.queue
	switch {
	case queue == "" && isForwarded:
		queue = source
	case queue == "":
		queue = q.name
	}
	e := envelope.Envelope{Topic: queue, SentAt: time.UnixMilli(s.sentAt), IdemKey: s.key, Attributes: lasting(m.Attributes)}
	if err := e.Seal(m.Body); err == nil && e.HashChain != s.chain && s.queue == "" && isForwarded {
		// The sender may have set the attribute itself.
		queue, e.Topic = q.name, q.name
	}
	if err := e.Seal(m.Body); err != nil || e.HashChain != s.chain {
		return Seal{}, q.damaged(m, "hash_chain", "does not match the message: the body or a sealed field was changed")
	}
	if queue != q.name || isForwarded {
		// It is what was sent, and has come here as a dead letter, with more attributes
		// than it had, or was moved. What is handed out is sealed as it is now.
		seal, err := q.sealNow(m, e.SentAt, s.key, s.corr)
		if queue == q.name {
			seal.Signature = s.signature
		}
		return seal, err
	}
	return Seal{
		SentAt: e.SentAt, IdemKey: s.key, PayloadHash: e.PayloadHash, HashChain: e.HashChain,
		Signature: s.signature, CorrelationID: correlation(m, s.corr), Timely: !s.delayed,
	}, nil
}

// sealNow seals a message as it is.
func (q *queue) sealNow(m *driver.Message, sentAt time.Time, key, corr string) (Seal, error) {
	e := envelope.Envelope{Topic: q.name, SentAt: sentAt, IdemKey: key, Attributes: m.Attributes}
	if err := e.Seal(m.Body); err != nil {
		return Seal{}, q.damaged(m, "message", "has attributes that no message can have")
	}
	return Seal{
		SentAt: e.SentAt, IdemKey: key, PayloadHash: e.PayloadHash, HashChain: e.HashChain,
		CorrelationID: correlation(m, corr),
	}, nil
}

// detach removes the seal from a message. own says that the message's own
// correlation id is in it. A seal in the correlation id has a letter before it: "m" if
// the correlation id inside is that of the message, "r" if it is that of the request.
func detach(m *driver.Message) (text string, own, sealed bool) {
	if text, sealed = m.Attributes[AttributeSeal]; sealed {
		m.Attributes = without(m.Attributes, AttributeSeal)
		return text, false, true
	}
	carried, sealed := strings.CutPrefix(m.CorrelationID, sealMark)
	if !sealed || carried == "" {
		return "", false, false
	}
	m.CorrelationID = ""
	return carried[1:], carried[0] == 'm', true
}

// without returns the attributes but one. What the backend hands out is shared
// and must not be changed.
func without(attributes map[string]string, key string) map[string]string {
	if len(attributes) == 1 {
		return nil
	}
	rest := maps.Clone(attributes)
	delete(rest, key)
	return rest
}

// localise gives queues that a message names the names that its tenant knows.
func (q *queue) localise(m *driver.Message) {
	source, ok := m.Attributes[driver.AttributeDeadSource]
	if !ok {
		return
	}
	name, isClaim := strings.CutPrefix(source, claimMark)
	ours := isClaim
	if !isClaim {
		name, ours = queueName(q.tenant, source)
	}
	if ours && name != source {
		m.Attributes = maps.Clone(m.Attributes)
		m.Attributes[driver.AttributeDeadSource] = name
	}
}

// correlation is the id that follows a message: its own, that of the request
// that sent it, or else one made of its id. A ULID and a UUIDv7 are both the time
// in 48 bits with random bits behind, so this costs nothing to keep.
func correlation(m *driver.Message, ofRequest string) string {
	switch {
	case m.CorrelationID != "":
		return m.CorrelationID
	case ofRequest != "":
		return ofRequest
	}
	id, ok := parseMessageID(m.ID)
	if !ok {
		return m.ID
	}
	made := uuid.UUID(id)
	made[6] = made[6]&0x0f | 0x70
	made[8] = made[8]&0x3f | 0x80
	return made.String()
}

func (q *queue) damaged(m *driver.Message, field, detail string) error {
	return &driver.Error{Code: driver.ErrIntegrity, Op: "verify", Queue: q.name, MessageID: m.ID, Field: field, Detail: detail}
}
