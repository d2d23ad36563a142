package envelope

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"unicode/utf8"
)

// A Delivery is an envelope with its body, and with the receipt that
// settles this delivery. It is what the daemon sends to a receiver.
//
// Deliveries do not print their body, attributes or receipt, whatever the
// verb: bodies do not belong in logs.
type Delivery struct {
	Envelope
	Body    []byte
	Receipt string
}

// maxReceiptBytes has room for the receipt of any backend; those of SQS are the
// longest, about 1,000 bytes.
const maxReceiptBytes = 4 << 10

// Verify is [Envelope.Verify] for the body of the delivery.
func (d *Delivery) Verify(trusted ...ed25519.PublicKey) error {
	return d.Envelope.Verify(d.Body, trusted...)
}

// AppendJSON appends the JSON form of the delivery to b: the fields of its
// envelope, then payload_b64 and receipt. The error is ErrInvalid, as for an
// envelope.
func (d *Delivery) AppendJSON(b []byte) ([]byte, error) {
	if err := d.checkAll(); err != nil {
		return b, err
	}
	b = append(d.appendFields(b), `,"payload_b64":"`...)
	b = base64.StdEncoding.AppendEncode(b, d.Body)
	b = appendString(append(b, `","receipt":`...), d.Receipt)
	return append(b, '}'), nil
}

// MarshalJSON is AppendJSON for package encoding/json.
func (d Delivery) MarshalJSON() ([]byte, error) { return d.AppendJSON(nil) }

// UnmarshalJSON is parseDelivery for package encoding/json.
func (d *Delivery) UnmarshalJSON(data []byte) error {
	parsed, err := parseDelivery(data)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// parseDelivery reads the JSON form of one delivery as strictly as Parse reads
// an envelope, with the same errors. It does not check integrity: call
// [Delivery.Verify].
func parseDelivery(data []byte) (Delivery, error) {
	var d Delivery
	if err := parse(data, fieldNames[:], d.readField); err != nil {
		return Delivery{}, err
	}
	if err := d.checkAll(); err != nil {
		return Delivery{}, recode(err)
	}
	return d, nil
}

// readField reads the value of one field of a delivery.
func (d *Delivery) readField(s *scanner, name string) (err error) {
	switch name {
	case "payload_b64":
		d.Body, err = readParsed(s, parseBase64)
	case "receipt":
		d.Receipt, err = s.text()
	default:
		err = d.Envelope.readField(s, name)
	}
	return err
}

func (d *Delivery) checkAll() error {
	if len(d.Receipt) > maxReceiptBytes || !utf8.ValidString(d.Receipt) {
		return sealError("receipt", fmt.Sprintf("must be valid UTF-8 of at most %d bytes", maxReceiptBytes))
	}
	return d.Envelope.checkAll()
}

// String returns the queue and id of the message and the size of its body.
func (d Delivery) String() string {
	return fmt.Sprintf("delivery %s/%s (attempt %d, %d bytes)", d.Queue, d.ID, d.Attempt, len(d.Body))
}

// Format prints what String returns, for every verb.
func (d Delivery) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, d.String()) }

// LogValue returns the id, the queue, the attempt and the size of the message.
func (d Delivery) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("msg_id", d.ID),
		slog.String("queue", d.Queue),
		slog.String("corr_id", d.CorrelationID),
		slog.Int("attempt", d.Attempt),
		slog.Int("bytes", len(d.Body)),
	)
}
