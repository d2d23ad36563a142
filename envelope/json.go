package envelope

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the JSON form of the envelope to b. It allocates only
// to grow b. The error is ErrInvalid: a field is outside its limits, or is
// text that JSON cannot carry; then b is returned unchanged.
func (e *Envelope) AppendJSON(b []byte) ([]byte, error) {
	if err := e.checkAll(); err != nil {
		return b, err
	}
	return append(e.appendFields(b), '}'), nil
}

// MarshalJSON is AppendJSON for package encoding/json.
func (e Envelope) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil) }

// UnmarshalJSON is Parse for package encoding/json.
func (e *Envelope) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err != nil {
		return err
	}
	*e = parsed
	return nil
}

// Parse reads the JSON form of one envelope, strictly; see the package
// documentation. It keeps no reference to data. It does not check integrity:
// call [Envelope.Verify].
//
// The error is ErrEncoding. It names the field and the limit, and never repeats
// the input.
func Parse(data []byte) (Envelope, error) {
	var e Envelope
	if err := parse(data, fieldNames[:envelopeFields], e.readField); err != nil {
		return Envelope{}, err
	}
	if err := e.checkAll(); err != nil {
		return Envelope{}, recode(err)
	}
	return e, nil
}

// checkAll is check, also for the fields that the queue sets.
func (e *Envelope) checkAll() error {
	switch {
	case e.ID == "" || len(e.ID) > maxIDBytes:
		return sealError("msg_id", "must have 1…"+strconv.Itoa(maxIDBytes)+" bytes")
	case !utf8.ValidString(e.ID):
		return sealError("msg_id", "is not valid UTF-8")
	case e.Shard < 0:
		return sealError("shard", "is negative")
	case e.Attempt < 0:
		return sealError("attempt", "is negative")
	}
	return e.check(e.SentAt.UTC())
}

// recode turns an exceeded limit in parsed input into ErrEncoding: the
// caller did not choose the value.
func recode(err error) error {
	return decodeError(fieldOf(err), detailOf(err))
}

// appendFields appends the object without its closing brace.
func (e *Envelope) appendFields(b []byte) []byte {
	b = appendString(append(b, `{"msg_id":`...), e.ID)
	b = appendString(append(b, `,"topic":`...), e.Queue)
	b = append(b, `,"ts":"`...)
	b = e.SentAt.UTC().AppendFormat(b, timeLayout)
	b = appendString(append(b, `","idem_key":`...), e.DedupKey)
	b = e.BodyHash.append(append(b, `,"payload_hash":"`...))
	b = e.appendAttributes(append(b, `","attrs":`...))
	b = appendString(append(b, `,"corr_id":`...), e.CorrelationID)
	b = strconv.AppendInt(append(b, `,"shard":`...), int64(e.Shard), 10)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(e.Attempt), 10)
	b = append(e.HashChain.append(append(b, `,"hash_chain":"`...)), '"')
	if !e.Signature.IsZero() {
		b = append(e.Signature.append(append(b, `,"sig":"`...)), '"')
	}
	return b
}

func (e *Envelope) appendAttributes(b []byte) []byte {
	b = append(b, '{')
	var keys [maxAttributes]string
	for i, key := range sortedKeys(keys[:0], e.Attributes) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, key)
		b = appendString(append(b, ':'), e.Attributes[key])
	}
	return append(b, '}')
}

// appendString appends a JSON string. It escapes only what must be escaped.
func appendString(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	b = append(b, '"')
	plain := 0 // start of the part that is not appended yet
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[plain:i]...)
		plain = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	b = append(b, s[plain:]...)
	return append(b, '"')
}

// fieldNames are the fields of an envelope; those of a delivery follow. The one
// that may be missing is sig.
var fieldNames = [...]string{
	"msg_id", "topic", "ts", "idem_key", "payload_hash", "attrs", "corr_id", "shard", "attempt", "hash_chain", "sig",
	"payload_b64", "receipt",
}

const (
	envelopeFields = 11
	optionalField  = "sig"
)

// readField reads the value of one field of an envelope.
func (e *Envelope) readField(s *scanner, name string) (err error) {
	switch name {
	case "msg_id":
		e.ID, err = s.text()
	case "topic":
		e.Queue, err = s.text()
	case "ts":
		e.SentAt, err = readParsed(s, parseTime)
	case "idem_key":
		e.DedupKey, err = s.text()
	case "payload_hash":
		e.BodyHash, err = readParsed(s, parseHash)
	case "attrs":
		e.Attributes, err = readAttributes(s)
	case "corr_id":
		e.CorrelationID, err = s.text()
	case "shard":
		e.Shard, err = s.count()
	case "attempt":
		e.Attempt, err = s.count()
	case "hash_chain":
		e.HashChain, err = readParsed(s, parseHash)
	case "sig":
		e.Signature, err = readParsed(s, ParseSignature)
	}
	return err
}

// readParsed reads a string and parses it.
func readParsed[V any](s *scanner, parse func(string) (V, error)) (V, error) {
	text, err := s.text()
	if err != nil {
		var none V
		return none, err
	}
	return parse(text)
}

func parseTime(text string) (time.Time, error) {
	// Package time parses more forms than it formats, such as a comma before the
	// fraction. Only the form that it would write is accepted.
	at, err := time.Parse(timeLayout, text)
	var again [len(timeLayout)]byte
	if err != nil || string(at.AppendFormat(again[:0], timeLayout)) != text {
		return time.Time{}, decodeError("ts", `want UTC with milliseconds, "2026-01-02T03:04:05.678Z"`)
	}
	return at, nil
}

func parseBase64(text string) ([]byte, error) {
	// Package base64 skips line breaks, which would give a body a second
	// encoding. The comparison of lengths rejects them.
	payload, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodedLen(len(payload)) != len(text) {
		return nil, decodeError("payload_b64", "want base64 with padding")
	}
	return payload, nil
}

func readAttributes(s *scanner) (map[string]string, error) {
	attributes := make(map[string]string)
	err := s.object(func(key string) error {
		if _, twice := attributes[key]; twice {
			return s.wrong("duplicate key")
		}
		if len(attributes) == maxAttributes {
			return s.wrong("more than " + strconv.Itoa(maxAttributes) + " attributes")
		}
		value, err := s.text()
		attributes[key] = value
		return err
	})
	return attributes, err
}
