package mailbox_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
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

func TestCodecsDecodeWhatTheyEncoded(t *testing.T) {
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

func TestCodecsRefuseWhatTheyDidNotEncode(t *testing.T) {
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

func TestBytesAreCopiedWhenDecoded(t *testing.T) {
	data := []byte("tea")
	got, err := mailbox.Bytes().Decode(data)
	wantError(t, err, nil)
	got[0] = 'X'
	wantEqual(t, "data", string(data), "tea")
}

func TestCodecFuncWithoutAFunctionFails(t *testing.T) {
	codec := mailbox.CodecFunc[string]("text/plain", nil, nil)
	if _, err := codec.Encode("tea"); err == nil {
		t.Error("it encodes")
	}
	if _, err := codec.Decode([]byte("tea")); err == nil {
		t.Error("it decodes")
	}
	wantEqual(t, "content type", codec.ContentType(), "text/plain")
}
