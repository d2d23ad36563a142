package rpcapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func newTestCall(t testing.TB) *call {
	t.Helper()
	ring := keyring.New(keyring.NewKey())
	b, err := broker.New(broker.Options{Opener: membox.New(nil), Ring: ring, Verifier: verify.New(ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return &call{handler: New(Options{Broker: b})}
}

// FuzzFramedBody checks that frames pass unchanged, however they come in, and
// that none that is too long is begun.
func FuzzFramedBody(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 'h', 'i', 1, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0x10, 0, 1, 'x'})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	c := newTestCall(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		passes, tooLong := 0, false // how many bytes must pass
		for rest := data; ; {
			if len(rest) < frameHead {
				passes += len(rest)
				break
			}
			length := binary.BigEndian.Uint32(rest[1:])
			if tooLong = length > MaxRequestBytes-frameHead; tooLong {
				passes += frameHead - 1
				break
			}
			whole := min(len(rest), frameHead+int(length))
			passes, rest = passes+whole, rest[whole:]
		}
		for name, reader := range map[string]io.Reader{
			"at once": bytes.NewReader(data), "by bytes": iotest.OneByteReader(bytes.NewReader(data)), "by halves": iotest.HalfReader(bytes.NewReader(data)),
		} {
			body := &framedBody{body: io.NopCloser(reader), call: c}
			got, err := io.ReadAll(body)
			if !bytes.Equal(got, data[:passes]) {
				t.Errorf("%s: %d bytes passed, want %d", name, len(got), passes)
			}
			if tooLong != (connect.CodeOf(err) == connect.CodeResourceExhausted) {
				t.Errorf("%s: too long is %v, and the error %v", name, tooLong, err)
			}
			if n, again := body.Read(make([]byte, 9)); n != 0 || tooLong && !errors.Is(again, err) {
				t.Errorf("%s: reading on gave %d bytes, %v", name, n, again)
			}
		}
	})
}

// FuzzCodecs checks that what a codec lets pass has nothing in it that the surface
// does not know, and that what it does not is empty.
func FuzzCodecs(f *testing.F) {
	good, err := proto.Marshal(&mailboxv1.SendRequest{Topic: "a", Messages: []*mailboxv1.Outgoing{{Payload: []byte("b")}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"topic":"a","messages":[{"payload":"Yg=="}]}`))
	f.Add([]byte("\x12\x03\x98\x06\x01")) // an unknown field inside
	f.Add([]byte("\xfa\xff\xff\xff\x0f\x03abc"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, codec := range []connect.Codec{binaryCodec{}, jsonCodec{name: codecJSON}} {
			r := &mailboxv1.SendRequest{}
			if err := codec.Unmarshal(data, r); err != nil {
				t.Fatalf("%s: %v", codec.Name(), err)
			}
			flaw := flawOf(r)
			if _, found := unknownField(r.ProtoReflect()); found != (flaw != nil) {
				t.Errorf("%s: has unknown fields is %v, and the flaw %v", codec.Name(), found, flaw)
			}
			if flaw == nil {
				continue
			}
			if !errors.Is(flaw, driver.ErrInvalid) || r.GetTopic() != "" || len(r.GetMessages()) > 0 {
				t.Errorf("%s: %v left %v", codec.Name(), flaw, r)
			}
		}
	})
}

func TestDurationsSurviveTheWire(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 999, time.Microsecond, 4979767926, 12 * time.Hour, 14*24*time.Hour + 1, -1, -time.Hour} {
		if got := duration(milliseconds(d)); got != d {
			t.Errorf("%v became %v", d, got)
		}
	}
	for ms, want := range map[float64]time.Duration{math.Inf(1): math.MaxInt64, 1e300: math.MaxInt64, math.Inf(-1): math.MinInt64, -1e300: math.MinInt64} {
		if got := duration(ms); got != want {
			t.Errorf("%v became %v", ms, got)
		}
	}
	if got := duration(math.NaN()); got != math.MinInt64 {
		t.Errorf("NaN became %v", got)
	}
}
