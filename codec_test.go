package mailbox_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
)

func roundTrip[T comparable](t *testing.T, codec mailbox.Codec[T], body T, want string) {
	t.Helper()
	data, err := codec.Encode(body)
	wantError(t, err, nil)
	wantEqual(t, "encoded body", string(data), want)
	got, err := codec.Decode(data)
	wantError(t, err, nil)
	wantEqual(t, "decoded body", got, body)
	if codec.ContentType() == "" {
		t.Error("the content type is empty")
	}
}

func TestCodecsRoundTrip(t *testing.T) {
	type order struct {
		Item string `json:"item"`
	}
	roundTrip(t, mailbox.JSON[order](), order{"tea"}, `{"item":"tea"}`)
	roundTrip(t, mailbox.String(), "te\xffa", "te\xffa")
	roundTrip(t, mailbox.Text[netip.Addr](), netip.MustParseAddr("::1"), "::1")
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	encoded, err := now.MarshalBinary()
	wantError(t, err, nil)
	roundTrip(t, mailbox.Binary[time.Time](), now, string(encoded))
}

func TestCodecsRefuseForeignData(t *testing.T) {
	for _, data := range []string{"", "{", `{"a":1} {"a":2}`, `{"a":1}]`, `"text"`} {
		if _, err := mailbox.JSON[map[string]int]().Decode([]byte(data)); err == nil {
			t.Errorf("JSON accepts %q", data)
		}
	}
	if got, err := mailbox.JSON[struct{ A int }]().Decode([]byte(`{"A":1,"B":2}`)); err != nil || got.A != 1 {
		t.Errorf("JSON does not bear an unknown field: %v, %v", got, err)
	}
	if _, err := mailbox.Text[netip.Addr]().Decode([]byte("nowhere")); err == nil {
		t.Error("Text accepts what UnmarshalText does not")
	}
	if _, err := mailbox.Binary[time.Time]().Decode([]byte{99}); err == nil {
		t.Error("Binary accepts what UnmarshalBinary does not")
	}
}

func TestDecodedBytesAreCopies(t *testing.T) {
	data := []byte("tea")
	got, err := mailbox.Bytes().Decode(data)
	wantError(t, err, nil)
	got[0] = 'X'
	wantEqual(t, "data", string(data), "tea")
}

func TestCodecFuncWithoutFunctionFails(t *testing.T) {
	codec := mailbox.CodecFunc[string]("text/plain", nil, nil)
	if _, err := codec.Encode("tea"); err == nil {
		t.Error("it encodes")
	}
	if _, err := codec.Decode([]byte("tea")); err == nil {
		t.Error("it decodes")
	}
	wantEqual(t, "content type", codec.ContentType(), "text/plain")
}

// selfish encodes itself, with the escape that encoding/json writes for bytes
// that are not UTF-8.
type selfish struct{}

func (*selfish) MarshalJSON() ([]byte, error) { return []byte(`"\ufffd"`), nil }

func TestJSONRefusesInvalidUTF8(t *testing.T) {
	const bad = "te\xffa"
	type inner struct{ Text string }
	type body struct {
		Any     any               `json:"any,omitempty"`
		Texts   []string          `json:"texts,omitempty"`
		ByName  map[string]string `json:"by_name,omitempty"`
		Inner   *inner            `json:"inner,omitempty"`
		Bytes   []byte            `json:"bytes,omitempty"`
		Own     []selfish         `json:"own,omitempty"`
		Raw     json.RawMessage   `json:"raw,omitempty"`
		Skipped string            `json:"-"`
	}
	codec := mailbox.JSON[body]()
	for name, b := range map[string]body{
		"in an interface": {Any: bad}, "in a slice": {Texts: []string{"tea", bad}}, "in a value": {ByName: map[string]string{"a": bad}},
		"in a key": {ByName: map[string]string{bad: "a"}}, "behind a pointer": {Inner: &inner{bad}},
	} {
		if data, err := codec.Encode(b); err == nil {
			t.Errorf("%s: it is encoded as %s", name, data)
		}
	}
	for name, b := range map[string]body{
		"a replacement character": {Any: "\ufffd"}, "the escape as text": {Any: `\ufffd`}, "bytes": {Bytes: []byte(bad)},
		"an own encoding": {Own: []selfish{{}}}, "raw JSON": {Raw: json.RawMessage(`"\ufffd"`)}, "what is left out": {Any: `\ufffd`, Skipped: bad},
	} {
		if _, err := codec.Encode(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	requests, err := mailbox.Open[string](t.Context(), membox.New(nil), "requests", nil)
	wantError(t, err, nil)
	defer requests.Close()
	_, err = requests.Send(t.Context(), bad, mailbox.WithDedupKey("k"))
	wantError(t, err, mailbox.ErrEncoding)
	_, err = requests.Send(t.Context(), "te\ufffda", mailbox.WithDedupKey("k"))
	wantError(t, err, nil)
}

func BenchmarkJSONEncode(b *testing.B) {
	type order struct {
		Item  string            `json:"item"`
		Notes string            `json:"notes"`
		Count int               `json:"count"`
		Tags  map[string]string `json:"tags"`
	}
	body := order{"tea", strings.Repeat("with milk and sugar, ", 20), 7, map[string]string{"size": "large"}}
	codec := mailbox.JSON[order]()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := codec.Encode(body); err != nil {
			b.Fatal(err)
		}
	}
}
