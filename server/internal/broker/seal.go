package broker

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
)

// AttributeSeal is the attribute that holds a message's seal in backends that keep no
// seals (driver.Traits). Earlier daemons used it with all backends. Clients can neither
// see nor send it.
const AttributeSeal = "mailbox.env"

// MaxAttributes and MaxAttributeBytes bound the attributes of a message: the limits of a
// backend, less the longest seal and the mark of a source that a sender claims.
const (
	MaxAttributes     = driver.MaxAttributes - 1
	MaxAttributeBytes = driver.MaxAttributeBytes - sealRoom

	sealRoom = 2 << 10
	// It does not compile if the longest seal does not fit.
	_ = uint(sealRoom - len(AttributeSeal) - (maxSealBytes*4+2)/3 - len(claimMark))
	_ = uint(driver.MaxSealBytes - maxSealBytes)
)

// sealMark begins a correlation id that carries a seal. Earlier daemons took one
// attribute more, and put the seal there if the correlation id had room for it.
const sealMark = "mailbox.env:"

// A Seal is added to a message when it is sent, and proves at a receive that the
// message was not changed.
type Seal struct {
	SentAt    time.Time
	IdemKey   string
	HashChain envelope.Hash
	Signature envelope.Signature
	// Timely: the message was sent through a daemon and without a delay, and was not
	// released.
	Timely bool
	// Absent: the message had no seal, because another program put it into the backend, and this one was made when it
	// was read. Renewed: the message was moved or forwarded, and its seal, which fitted, was made again for its present form.
	Absent, Renewed bool

	bodyHash  envelope.Hash // zero if the message was not hashed at the receive
	ofRequest string        // the correlation id of the request that sent the message
}

// PayloadHash returns the hash of the message's body. It hashes the body of a message that
// did not have to be verified.
func (s *Seal) PayloadHash(body []byte) envelope.Hash {
	if s.bodyHash.IsZero() {
		s.bodyHash = envelope.HashBody(body)
	}
	return s.bodyHash
}

// Fits reports whether a message fits its seal. It compares them although they may not have left the memory of the daemon.
func (p *Peeked) Fits() bool {
	attributes := p.Attributes
	if !p.Seal.Absent && !p.Seal.Renewed {
		attributes = lasting(attributes)
	}
	e := envelope.Envelope{Queue: p.Queue, SentAt: p.Seal.SentAt, DedupKey: p.Seal.IdemKey, Attributes: attributes}
	return !p.Damaged && e.Seal(p.Body) == nil && e.HashChain == p.Seal.HashChain
}

// CorrelationID returns the correlation id of a message: its own, that of the request that
// sent it, or else one derived from its id. A ULID and a UUIDv7 both have 48 bits of time
// and then random bits, so the derived id need not be stored. It is empty for the zero Seal.
func (s *Seal) CorrelationID(m *driver.Message) string {
	switch {
	case s.SentAt.IsZero():
		return ""
	case m.CorrelationID != "":
		return m.CorrelationID
	case s.ofRequest != "":
		return s.ofRequest
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

// storedSeal is a seal as the backend keeps it, which is
//
//	1        version
//	flags    1 byte
//	ts       6 bytes: Unix milliseconds
//	chain    32 bytes
//	sig      64 bytes, if flagged
//	corr     16 bytes of a UUID or a text, if flagged
//	key      a text
//	queue    a text; empty if the correlation id carries the seal
//	check    4 bytes: FNV-1a of all that
//
// where a text is its length as a varint and its bytes. In an attribute it is in base64,
// without padding. The chain is that of
// package envelope over all attributes but those that a backend sets when it
// forwards a dead letter: they record what happened to the message, and are not part
// of what was sent.
type storedSeal struct {
	sentAt    int64
	chain     envelope.Hash
	signature envelope.Signature
	corr      string
	key       string
	queue     string
	delayed   bool // it was sent with a delay or a due time
}

const (
	sealVersion = 1

	sealSigned   = 1 << 0
	sealCorrUUID = 1 << 1
	sealCorrText = 1 << 2
	sealDelayed  = 1 << 3
	sealFlags    = sealSigned | sealCorrUUID | sealCorrText | sealDelayed

	sealHead = 2 + 6 + len(envelope.Hash{})
	sealTail = 4
	// maxSealBytes bounds the length of a seal: all its texts are bounded.
	maxSealBytes = sealHead + sealTail + len(envelope.Signature{}) + 3*2 + driver.MaxCorrelationIDBytes + driver.MaxDedupKeyBytes + driver.MaxNameBytes
)

// append appends the seal to b.
func (s *storedSeal) append(b []byte) []byte {
	start := len(b)
	flags := start + 1
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(s.sentAt))
	b = append(b, sealVersion, 0)
	b = append(b, ms[2:]...)
	b = append(b, s.chain[:]...)
	if s.delayed {
		b[flags] |= sealDelayed
	}
	if !s.signature.IsZero() {
		b[flags] |= sealSigned
		b = append(b, s.signature[:]...)
	}
	if s.corr != "" {
		if id, err := uuid.Parse(s.corr); err == nil && len(s.corr) == 36 && id.String() == s.corr {
			b[flags] |= sealCorrUUID
			b = append(b, id[:]...)
		} else {
			b[flags] |= sealCorrText
			b = appendText(b, s.corr)
		}
	}
	b = appendText(b, s.key)
	b = appendText(b, s.queue)
	return binary.BigEndian.AppendUint32(b, sealCheck(b[start:]))
}

// text returns the seal in base64, for an attribute.
func (s *storedSeal) text() string {
	var buffer [maxSealBytes]byte
	var text [(maxSealBytes*4 + 2) / 3]byte
	return string(base64.RawURLEncoding.AppendEncode(text[:0], s.append(buffer[:0])))
}

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// sealCheck is FNV-1a in 32 bits. It protects what the chain does not cover, the
// correlation id and the signature: it detects any change of one byte. Unlike the
// checksums of the standard library it leaves its argument on the stack.
func sealCheck(b []byte) uint32 {
	sum := uint32(2166136261)
	for _, c := range b {
		sum = (sum ^ uint32(c)) * 16777619
	}
	return sum
}

// sealEncoding has one way to write each seal.
var sealEncoding = base64.RawURLEncoding.Strict()

var errSeal = errors.New("malformed seal")

// decodeSealText reverses text; see decodeSeal.
func decodeSealText(text, here string) (s storedSeal, err error) {
	var buffer [maxSealBytes]byte
	if len(text) > base64.RawURLEncoding.EncodedLen(len(buffer)) {
		return s, errSeal
	}
	var source [(maxSealBytes*4 + 2) / 3]byte
	n, err := sealEncoding.Decode(buffer[:], source[:copy(source[:], text)])
	if err != nil {
		return s, errSeal
	}
	return decodeSeal(buffer[:n], here)
}

// decodeSeal reverses append. The name of the queue is usually that of here, which then
// saves an allocation.
func decodeSeal(sealed []byte, here string) (s storedSeal, err error) {
	n := len(sealed) - sealTail
	if n < sealHead || sealed[0] != sealVersion || sealed[1]&^sealFlags != 0 {
		return s, errSeal
	}
	if sealCheck(sealed[:n]) != binary.BigEndian.Uint32(sealed[n:]) {
		return s, errSeal
	}
	flags, b := sealed[1], sealed[2:n]
	s.delayed = flags&sealDelayed != 0
	var ms [8]byte
	copy(ms[2:], b)
	s.sentAt = int64(binary.BigEndian.Uint64(ms[:]))
	s.chain = envelope.Hash(b[6:38])
	b = b[38:]
	if flags&sealSigned != 0 {
		if len(b) < len(s.signature) {
			return s, errSeal
		}
		s.signature = envelope.Signature(b[:len(s.signature)])
		b = b[len(s.signature):]
	}
	ok := true
	var raw []byte
	switch {
	case flags&sealCorrUUID != 0 && len(b) >= 16:
		s.corr, b = uuid.UUID(b[:16]).String(), b[16:]
	case flags&sealCorrUUID != 0:
		return s, errSeal
	case flags&sealCorrText != 0:
		raw, b, ok = cutText(b)
		s.corr = string(raw)
	}
	if ok {
		raw, b, ok = cutText(b)
		s.key = string(raw)
	}
	if ok {
		raw, b, ok = cutText(b)
		if s.queue = here; string(raw) != here {
			s.queue = string(raw)
		}
	}
	if !ok || len(b) > 0 {
		return s, errSeal
	}
	return s, nil
}

func cutText(b []byte) (text, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(length)
	return b[n:end], b[end:], true
}

// forwarded are the attributes that a backend sets when it forwards a message.
var forwarded = [...]string{
	driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
}

// lasting returns the attributes without those that forwarding changes.
func lasting(attributes map[string]string) map[string]string {
	if len(attributes) == 0 {
		return nil
	}
	var rest map[string]string
	for _, key := range forwarded {
		if _, ok := attributes[key]; ok {
			if rest == nil {
				rest = maps.Clone(attributes)
			}
			delete(rest, key)
		}
	}
	if rest == nil {
		return attributes
	}
	return rest
}

// sealBytes is the length of the usual seal in a backend that keeps seals.
func (q *queue) sealBytes() int {
	if !q.seals {
		return 0
	}
	return sealHead + len(uuid.UUID{}) + 2 + len(q.name) + sealTail
}

// stamp returns the sealed message for the backend. It does not change m. It appends the
// seal to buffer if the backend keeps seals, and returns the longer buffer.
func (c *Caller) stamp(q *queue, m *Outgoing, now time.Time, buffer []byte) (driver.Outgoing, []byte, error) {
	if _, taken := m.Attributes[AttributeSeal]; taken {
		return driver.Outgoing{}, buffer, sendError(q, "Attributes", AttributeSeal+" is reserved for the daemon")
	}
	sentAt := now
	if !m.SentAt.IsZero() {
		sentAt = m.SentAt
	}
	e := envelope.Envelope{Queue: q.name, SentAt: sentAt, DedupKey: m.DedupKey, Attributes: lasting(m.Attributes)}
	if err := e.Seal(m.Body); err != nil {
		return driver.Outgoing{}, buffer, err
	}
	s := storedSeal{sentAt: e.SentAt.UnixMilli(), chain: e.HashChain, signature: m.Signature, key: m.DedupKey, queue: q.name, delayed: m.Delay > 0 || !m.DeliverAt.IsZero()}
	if m.CorrelationID == "" {
		s.corr = c.origin.CorrelationID
	}
	out := m.Outgoing
	out.Attributes = claimed(out.Attributes)
	if !q.seals {
		s.attach(&out)
		return out, buffer, nil
	}
	start := len(buffer)
	buffer = s.append(buffer)
	out.Seal = buffer[start:len(buffer):len(buffer)]
	return out, buffer, nil
}

// claimMark begins the source of a dead letter that a sender has set itself. It is not
// part of any queue's name: a message is redriven to the queue in which a backend
// dead-lettered it, and not to a queue that the sender names, which may be another
// tenant's.
const claimMark = "{sent}"

// claimed returns the attributes of a sender as they go to the backend.
func claimed(attributes map[string]string) map[string]string {
	source, ok := attributes[driver.AttributeDeadSource]
	if !ok {
		return attributes
	}
	attributes = maps.Clone(attributes)
	attributes[driver.AttributeDeadSource] = claimMark + source
	return attributes
}

// attach adds the seal to the attributes. MaxAttributes and MaxAttributeBytes keep room
// for it.
func (s *storedSeal) attach(out *driver.Outgoing) {
	attributes := make(map[string]string, len(out.Attributes)+1)
	maps.Copy(attributes, out.Attributes)
	attributes[AttributeSeal] = s.text()
	out.Attributes = attributes
}

func sendError(q *queue, field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "send", Queue: q.name, Field: field, Detail: detail}
}

// unseal removes the seal from a message of the backend, verifies and returns it. The
// error is ErrIntegrity if the message was changed; the seal is removed in any case.
//
// A message that has been in the memory of this process since it was sealed is not
// verified: no byte of it has passed through anything that could change it.
//
// A message without a seal was put into the backend by another program; there is
// nothing to compare it with, and unseal seals it now.
func (q *queue) unseal(m *driver.Message) (Seal, error) {
	resident := m.Resident && len(m.Seal) > 0
	s, own, sealed, err := q.detach(m)
	q.localise(m)
	switch {
	case err != nil:
		return Seal{}, q.damaged(m, "seal", "cannot be read")
	case !sealed:
		made, err := q.sealNow(m, m.EnqueuedAt, "", "")
		made.Absent = true
		return made, err
	case own:
		m.CorrelationID = s.corr
	}
	seal := Seal{
		SentAt: time.UnixMilli(s.sentAt).UTC(), IdemKey: s.key, HashChain: s.chain, Signature: s.signature,
		Timely: !s.delayed, ofRequest: s.corr,
	}
	if !resident {
		var ok bool
		if seal.bodyHash, ok = q.verify(m, &s); !ok {
			return Seal{}, q.damaged(m, "hash_chain", "does not match the message: the body or a sealed field was changed")
		}
	}
	if _, isForwarded := m.Attributes[driver.AttributeDeadSource]; s.queue == q.name && !isForwarded {
		return seal, nil
	}
	// The message is genuine, but was moved, or forwarded as a dead letter with more
	// attributes than it had. It is sealed again in its current form.
	moved := s.queue != q.name
	seal, err = q.sealNow(m, seal.SentAt, s.key, s.corr)
	if seal.Renewed = true; !moved {
		seal.Signature = s.signature
	}
	return seal, err
}

// verify compares a message with its seal, and returns the hash of the body. A seal in a
// correlation id does not name its queue: verify sets that.
func (q *queue) verify(m *driver.Message, s *storedSeal) (body envelope.Hash, ok bool) {
	names := []string{s.queue}
	if s.queue == "" {
		names = []string{q.name}
		if source, isForwarded := m.Attributes[driver.AttributeDeadSource]; isForwarded {
			names = []string{source, q.name} // the sender may have set the attribute itself
		}
	}
	for _, name := range names {
		e := envelope.Envelope{Queue: name, SentAt: time.UnixMilli(s.sentAt), DedupKey: s.key, Attributes: lasting(m.Attributes)}
		if err := e.Seal(m.Body); err == nil && e.HashChain == s.chain {
			s.queue = name
			return e.BodyHash, true
		}
	}
	return body, false
}

// sealNow seals a message in its current form.
func (q *queue) sealNow(m *driver.Message, sentAt time.Time, key, corr string) (Seal, error) {
	e := envelope.Envelope{Queue: q.name, SentAt: sentAt, DedupKey: key, Attributes: m.Attributes}
	if err := e.Seal(m.Body); err != nil {
		return Seal{}, q.damaged(m, "message", "has attributes that no message can have")
	}
	return Seal{SentAt: e.SentAt, IdemKey: key, HashChain: e.HashChain, bodyHash: e.BodyHash, ofRequest: corr}, nil
}

// detach removes the seal from a message and returns it. own says that the message's own
// correlation id is in it. A seal in the correlation id has a letter before it: "m" if
// the correlation id inside is that of the message, "r" if it is that of the request.
func (q *queue) detach(m *driver.Message) (s storedSeal, own, sealed bool, err error) {
	if len(m.Seal) > 0 {
		s, err = decodeSeal(m.Seal, q.name)
		m.Seal, m.Resident = nil, false
		return s, false, true, err
	}
	if text, ok := m.Attributes[AttributeSeal]; ok {
		m.Attributes = without(m.Attributes, AttributeSeal)
		s, err = decodeSealText(text, q.name)
		return s, false, true, err
	}
	carried, ok := strings.CutPrefix(m.CorrelationID, sealMark)
	if !ok || carried == "" {
		return s, false, false, nil
	}
	m.CorrelationID = ""
	s, err = decodeSealText(carried[1:], q.name)
	return s, carried[0] == 'm', true, err
}

// without returns the attributes without one. It copies them, because those of the
// backend are shared and must not be changed.
func without(attributes map[string]string, key string) map[string]string {
	if len(attributes) == 1 {
		return nil
	}
	rest := maps.Clone(attributes)
	delete(rest, key)
	return rest
}

// localise replaces names of the backend in a message by those of its tenant.
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

func (q *queue) damaged(m *driver.Message, field, detail string) error {
	return &driver.Error{Code: driver.ErrIntegrity, Op: "verify", Queue: q.name, MessageID: m.ID, Field: field, Detail: detail}
}
