package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

func encoded(t testing.TB) string {
	t.Helper()
	e := sealed(t)
	if err := e.Sign(key('a')); err != nil {
		t.Fatal(err)
	}
	text, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEnvelopeSurvivesJSON(t *testing.T) {
	want := sealed(t)
	for name, encode := range map[string]func() ([]byte, error){
		"AppendJSON":           func() ([]byte, error) { return want.AppendJSON(nil) },
		"json.Marshal":         func() ([]byte, error) { return json.Marshal(want) },
		"json.Marshal of &":    func() ([]byte, error) { return json.Marshal(&want) },
		"json.MarshalIndent":   func() ([]byte, error) { return json.MarshalIndent(want, " ", "\t") },
		"appended to a prefix": func() ([]byte, error) { b, err := want.AppendJSON([]byte("xx")); return b[2:], err },
	} {
		text, err := encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nfrom %s", name, got, err, text)
		}
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s, json.Unmarshal: %+v, %v", name, got, err)
		}
	}
}

// TestAnyEnvelopeSurvivesJSON: every sealed envelope can be encoded, parsed
// by this package and by encoding/json, and verified.
func TestAnyEnvelopeSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		d := Delivery{Body: body, Receipt: rapid.StringN(0, 20, -1).Draw(t, "receipt"), Envelope: Envelope{
			ID:            rapid.StringN(1, 20, maxIDBytes).Draw(t, "id"),
			Queue:         rapid.StringMatching(`[^{}\pC]{1,20}`).Draw(t, "topic"),
			SentAt:        time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "ts")).UTC(),
			DedupKey:      rapid.StringN(0, 20, -1).Draw(t, "key"),
			Attributes:    rapid.MapOfN(rapid.StringN(1, 10, -1), rapid.String(), 0, 5).Draw(t, "attrs"),
			CorrelationID: rapid.StringN(0, 20, -1).Draw(t, "corr"),
			Shard:         rapid.IntRange(0, 1<<31-1).Draw(t, "shard"),
			Attempt:       rapid.IntRange(0, 1<<31-1).Draw(t, "attempt"),
		}}
		if err := d.Seal(body); err != nil {
			t.Fatal(err)
		}
		text, err := d.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseDelivery(text)
		if err != nil {
			t.Fatalf("%v, reading %s", err, text)
		}
		if err := got.Verify(); err != nil {
			t.Fatal(err)
		}
		again, err := got.AppendJSON(nil)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s\nbecame %s, %v", text, again, err)
		}
		agreesWithStandardJSON(t, text, got)
	})
}

// agreesWithStandardJSON compares the result of Parse with that of encoding/json.
func agreesWithStandardJSON(t interface{ Fatalf(string, ...any) }, text []byte, d Delivery) {
	var standard struct {
		ID          string            `json:"msg_id"`
		Queue       string            `json:"topic"`
		SentAt      time.Time         `json:"ts"`
		DedupKey    string            `json:"idem_key"`
		PayloadHash string            `json:"payload_hash"`
		Attributes  map[string]string `json:"attrs"`
		Correlation string            `json:"corr_id"`
		Shard       int               `json:"shard"`
		Attempt     int               `json:"attempt"`
		HashChain   string            `json:"hash_chain"`
		Signature   string            `json:"sig"`
		Payload     []byte            `json:"payload_b64"`
		Receipt     string            `json:"receipt"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&standard); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", text, err)
	}
	signature := ""
	if !d.Signature.IsZero() {
		signature = d.Signature.String()
	}
	same := d.ID == standard.ID && d.Queue == standard.Queue && d.SentAt.Equal(standard.SentAt) && d.DedupKey == standard.DedupKey &&
		d.BodyHash.String() == standard.PayloadHash && reflect.DeepEqual(d.Attributes, standard.Attributes) &&
		d.CorrelationID == standard.Correlation && d.Shard == standard.Shard && d.Attempt == standard.Attempt &&
		d.HashChain.String() == standard.HashChain && signature == standard.Signature &&
		bytes.Equal(d.Body, standard.Payload) && d.Receipt == standard.Receipt
	if !same {
		t.Fatalf("%q\nreads as %#v\nand as  %#v", text, d.Envelope, standard)
	}
}

func TestParsingIsStrict(t *testing.T) {
	good := encoded(t)
	replace := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the example has no %s", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	if _, err := Parse([]byte(" \t\r\n" + replace(`,"topic"`, "\n ,\t\"topic\"") + "\n ")); err != nil {
		t.Errorf("space between tokens is refused: %v", err)
	}
	for name, bad := range map[string]string{
		"nothing":                  "",
		"null":                     "null",
		"an array":                 "[" + good + "]",
		"trailing data":            good + "x",
		"a second object":          good + good,
		"an unknown field":         replace(`{`, `{"x":1,`),
		"a field of a delivery":    replace(`{`, `{"receipt":"",`),
		"a field twice":            replace(`{`, `{"topic":"a",`),
		"a field in other case":    replace(`"topic"`, `"Topic"`),
		"a missing field":          replace(`"shard":3,`, ``),
		"missing attrs":            replace(`"attrs":{"kind":"order","lang":"de","note":"ä\n\"quoted\""},`, ``),
		"a number for a string":    replace(`"user:42:inbox"`, `42`),
		"a string for a number":    replace(`"shard":3`, `"shard":"3"`),
		"null for a string":        replace(`"order-7"`, `null`),
		"null for the signature":   replace(`"sig":"`+sigText(t)+`"`, `"sig":null`),
		"an empty signature":       replace(`"sig":"`+sigText(t)+`"`, `"sig":""`),
		"a fraction":               replace(`"shard":3`, `"shard":3.0`),
		"an exponent":              replace(`"shard":3`, `"shard":3e0`),
		"a sign":                   replace(`"shard":3`, `"shard":-3`),
		"a leading zero":           replace(`"shard":3`, `"shard":03`),
		"a huge number":            replace(`"shard":3`, `"shard":2147483648`),
		"no number":                replace(`"shard":3`, `"shard":`),
		"an attribute twice":       replace(`"kind":"order"`, `"kind":"order","kind":"order"`),
		"a nested attribute":       replace(`"kind":"order"`, `"kind":{}`),
		"an empty attribute name":  replace(`"kind"`, `""`),
		"attributes in an array":   replace(`{"kind"`, `[{"kind"`),
		"an upper-case hash":       replace(`"b3:`, `"B3:`),
		"a time with a zone":       replace(`.678Z`, `.678+00:00`),
		"a time without fraction":  replace(`.678Z`, `Z`),
		"a time with microseconds": replace(`.678Z`, `.678000Z`),
		"a time with a comma":      replace(`.678Z`, `,678Z`),
		"a lower-case time":        replace(`T03`, `t03`),
		"an invalid day":           replace(`2026-01-02`, `2026-02-30`),
		"a time before 1970":       replace(`2026-01-02`, `1969-12-31`),
		"an empty queue":           replace(`"user:42:inbox"`, `""`),
		"an empty id":              replace(`"01KE0000000000000000000000"`, `""`),
		"a long id":                replace(`"01KE`, `"`+strings.Repeat("0", 200)),
		"a brace in the queue":     replace(`user:42`, `user:{42}`),
		"invalid UTF-8":            replace(`order-7`, "order-\xff"),
		"invalid UTF-8 and escape": replace(`order-7`, "\\n\xff"),
		"half a surrogate pair":    replace(`order-7`, `\ud83d`),
		"two first halves":         replace(`order-7`, `\ud83d\ud83d`),
		"a second half alone":      replace(`order-7`, `\ude00`),
		"an unknown escape":        replace(`order-7`, `\x41`),
		"a short escape":           replace(`order-7"`, `\u00"`),
		"a signed escape":          replace(`order-7`, `\u+123`),
		"a raw newline":            replace(`order-7`, "order\n7"),
		"a raw newline, escaped":   replace(`order-7`, "\\t\n7"),
		"a trailing comma":         strings.TrimSuffix(good, "}") + ",}",
		"a comment":                replace(`{`, `{/* */`),
		"a byte order mark":        "\ufeff" + good,
		"no colon":                 replace(`"topic":`, `"topic" `),
		"no comma":                 replace(`,"topic"`, ` "topic"`),
		"single quotes":            strings.ReplaceAll(good, `"`, `'`),
	} {
		got, err := Parse([]byte(bad))
		if !errors.Is(err, driver.ErrEncoding) || !reflect.DeepEqual(got, Envelope{}) {
			t.Errorf("%s: %v, want ErrEncoding and no envelope", name, err)
		}
	}
	_, err := Parse([]byte(replace(`order-7`, "order-\xff")))
	if err == nil || !strings.Contains(err.Error(), "idem_key: a string is not valid UTF-8 (at byte ") {
		t.Errorf("invalid UTF-8: %v, want the field and the place", err)
	}
	for cut := range good {
		if _, err := Parse([]byte(good[:cut])); !errors.Is(err, driver.ErrEncoding) {
			t.Errorf("cut after %d bytes: %v, want ErrEncoding", cut, err)
		}
	}
}

func sigText(t testing.TB) string {
	e := sealed(t)
	if err := e.Sign(key('a')); err != nil {
		t.Fatal(err)
	}
	return e.Signature.String()
}

func TestTooManyAttributesAreRefusedWhileReading(t *testing.T) {
	var attrs strings.Builder
	for i := range maxAttributes + 1 {
		attrs.WriteString(`"` + strings.Repeat("a", i+1) + `":"",`)
	}
	bad := strings.Replace(encoded(t), `"kind"`, attrs.String()+`"kind"`, 1)
	if _, err := Parse([]byte(bad)); !errors.Is(err, driver.ErrEncoding) || !strings.Contains(err.Error(), strconv.Itoa(maxAttributes)) {
		t.Errorf("%v, want ErrEncoding that names the limit", err)
	}
}

// TestErrorsDoNotRepeatTheInput: untrusted input must not end up in a log.
func TestErrorsDoNotRepeatTheInput(t *testing.T) {
	const canary = "c4n4ry"
	good := encoded(t)
	for _, bad := range []string{
		strings.Replace(good, `"topic"`, `"`+canary+`"`, 1),
		strings.Replace(good, `user:42:inbox`, canary+`{`, 1),
		strings.Replace(good, `"b3:`, `"`+canary, 1),
		strings.Replace(good, `2026-`, canary, 1),
		strings.Replace(good, `"ed25519:`, `"`+canary, 1),
		strings.Replace(good, `"shard":3`, `"shard":`+canary, 1),
		strings.Replace(good, `"kind":"order"`, `"`+canary+`":1`, 1),
		good + canary,
	} {
		if _, err := Parse([]byte(bad)); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%v, for %s", err, bad)
		}
	}
}

// TestEveryFlippedBitOfAnEnvelopeIsFound flips each bit of an envelope: it
// cannot be parsed, or does not verify, or the field is not covered.
func TestEveryFlippedBitOfAnEnvelopeIsFound(t *testing.T) {
	volume.InFull(t)
	good := encoded(t)
	original, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	unreadable, found, uncovered := 0, 0, 0
	for bit := range 8 * len(good) {
		damaged := []byte(good)
		damaged[bit/8] ^= 1 << (bit % 8)
		e, err := Parse(damaged)
		if err != nil {
			unreadable++
			continue
		}
		if e.Verify(payload, public(key('a'))) != nil {
			found++
			continue
		}
		uncovered++
		e.ID, e.CorrelationID, e.Shard, e.Attempt = original.ID, original.CorrelationID, original.Shard, original.Attempt
		if !reflect.DeepEqual(e, original) {
			t.Errorf("bit %d changed the message undetected:\n%s", bit, damaged)
		}
	}
	t.Logf("%d bits: %d unreadable, %d do not verify, %d in fields that are not covered", 8*len(good), unreadable, found, uncovered)
	if unreadable == 0 || found == 0 || uncovered == 0 {
		t.Error("one of the outcomes never occurred")
	}
}

func TestWritingRefusesWhatCannotBeRead(t *testing.T) {
	for field, change := range map[string]func(*Delivery){
		"msg_id":  func(d *Delivery) { d.ID = "" },
		"topic":   func(d *Delivery) { d.Queue = "{" },
		"shard":   func(d *Delivery) { d.Shard = -1 },
		"attempt": func(d *Delivery) { d.Attempt = -1 },
		"receipt": func(d *Delivery) { d.Receipt = "\xff" },
		"attrs":   func(d *Delivery) { d.Attributes = map[string]string{"": ""} },
	} {
		d := Delivery{Envelope: sealed(t), Body: payload, Receipt: "r"}
		change(&d)
		b, err := d.AppendJSON([]byte("x"))
		if fieldOf(err) != field || !errors.Is(err, driver.ErrInvalid) || string(b) != "x" {
			t.Errorf("%v with %q, want ErrInvalid about %s and nothing written", err, b, field)
		}
		if _, err := d.Envelope.AppendJSON(nil); (err == nil) != (field == "receipt") {
			t.Errorf("%s: envelope alone: %v", field, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(encoded(f)))
	for _, v := range vectorInputs() {
		e := v.envelope
		if err := e.Seal(v.payload); err != nil {
			f.Fatal(err)
		}
		text, err := e.AppendJSON(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Parse(data)
		if err != nil {
			if !errors.Is(err, driver.ErrEncoding) || !reflect.DeepEqual(e, Envelope{}) {
				t.Fatalf("%v and %+v", err, e)
			}
			return
		}
		agreesWithStandardJSON(t, data, Delivery{Envelope: e})
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatalf("a parsed envelope cannot be encoded: %v", err)
		}
		if again, err := Parse(text); err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}
