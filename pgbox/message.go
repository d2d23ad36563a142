package pgbox

import (
	"encoding/json"
	"maps"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// extra is what few messages have, in JSON, which can have any character.
type extra struct {
	Attributes    map[string]string `json:"a,omitempty"`
	ReplyTo       string            `json:"r,omitempty"`
	CorrelationID string            `json:"c,omitempty"`
}

// deadAttributes are the attributes that a message gets when it dies. They are columns of table
// message, because functions change them.
var deadAttributes = [...]string{
	driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
}

// past are the values of deadAttributes; nil means that the message has none.
type past [len(deadAttributes)][]byte

// packExtra packs what few messages have.
func packExtra(msg *driver.Outgoing) (packed []byte, before past, hasPast bool) {
	e := extra{Attributes: msg.Attributes, ReplyTo: msg.ReplyTo, CorrelationID: msg.CorrelationID}
	for i, name := range deadAttributes {
		value, ok := msg.Attributes[name]
		if !ok {
			continue
		}
		if !hasPast {
			hasPast, e.Attributes = true, maps.Clone(msg.Attributes)
		}
		before[i] = []byte(value)
		delete(e.Attributes, name)
	}
	if len(e.Attributes) == 0 && e.ReplyTo == "" && e.CorrelationID == "" {
		return nil, before, hasPast
	}
	packed, _ = json.Marshal(e) // texts cannot fail
	return packed, before, hasPast
}

// readMessage fills in what was packed.
func readMessage(m *driver.Message, packed []byte, before *past) error {
	var e extra
	if packed != nil {
		if err := json.Unmarshal(packed, &e); err != nil {
			return &driver.Error{Code: driver.ErrIntegrity, MessageID: m.ID, Err: err}
		}
	}
	m.Attributes, m.ReplyTo, m.CorrelationID = e.Attributes, e.ReplyTo, e.CorrelationID
	for i, name := range deadAttributes {
		if before[i] == nil {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = make(map[string]string, len(deadAttributes))
		}
		m.Attributes[name] = string(before[i])
	}
	return nil
}

// A receipt's Place is the number of the message, and above it that of its shard.
const seqBits = 48

// packedID returns an id as the database has it; ok is false if the database cannot have it.
func packedID(id string) (packed [16]byte, ok bool) {
	parsed, err := ulid.ParseStrict(id)
	return parsed, err == nil
}
