package oap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/oap"
)

func request(payload string) []byte {
	return oap.AppendFrame(nil, &oap.Header{
		Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 42,
	}, nil, []byte(payload))
}

// TestHeaderIsLaidOutAsAgreed reads a header by hand (OAP-1).
func TestHeaderIsLaidOutAsAgreed(t *testing.T) {
	b := oap.AppendFrame(nil, &oap.Header{
		Flags: oap.Request | oap.Start, Code: 0x0102, Protocol: 0x0201,
		Tenant: [16]byte{1, 15: 2}, Correlation: 0x0a0b0c0d0e0f1011,
	}, []byte("cap"), []byte("payload"))
	if oap.HeaderBytes != 38 || len(b) != 38+3+7 {
		t.Fatalf("a header has %d bytes, and the frame %d", oap.HeaderBytes, len(b))
	}
	for what, ok := range map[string]bool{
		"len":          binary.BigEndian.Uint32(b[0:]) == uint32(len(b)),
		"ver":          binary.BigEndian.Uint16(b[4:]) == 1,
		"flags":        binary.BigEndian.Uint16(b[6:]) == 1|8,
		"code":         binary.BigEndian.Uint16(b[8:]) == 0x0102,
		"app_proto_id": binary.BigEndian.Uint16(b[10:]) == 0x0201,
		"tenant_id":    b[12] == 1 && b[27] == 2,
		"cap_len":      binary.BigEndian.Uint16(b[28:]) == 3,
		"corr_id":      binary.BigEndian.Uint64(b[30:]) == 0x0a0b0c0d0e0f1011,
		"capability":   string(b[38:41]) == "cap",
		"payload":      string(b[41:]) == "payload",
	} {
		if !ok {
			t.Errorf("%s is not where it belongs: %x", what, b)
		}
	}
}

func TestFlagsHaveTheirBits(t *testing.T) {
	for i, flag := range []oap.Flags{
		oap.Request, oap.Response, oap.Event, oap.Start, oap.End, oap.AckRequested, oap.Compressed, oap.EndToEnd,
	} {
		if flag != 1<<i {
			t.Errorf("flag %d is %#x", i, uint16(flag))
		}
	}
}

// TestBadHeadersAreRefused has the largest frame as a number: to change the limit is
// to change the protocol.
func TestBadHeadersAreRefused(t *testing.T) {
	const announced, largest = 1_048_576, 1_183_782 // bytes, header and capability included
	if oap.MaxFrameBytes != announced || oap.EarlierFrameBytes != largest {
		t.Errorf("a frame has at most %d bytes, of earlier versions %d; want %d and %d", oap.MaxFrameBytes, oap.EarlierFrameBytes, announced, largest)
	}
	b := request("payload")
	binary.BigEndian.PutUint32(b, largest)
	if _, _, need, err := oap.Next(b); err != nil || need != largest {
		t.Errorf("a frame of %d bytes: needs %d, %v", largest, need, err)
	}
	for _, test := range []struct {
		why    string
		change func(b []byte)
	}{
		{"version", func(b []byte) { b[5] = 2 }},
		{"too short", func(b []byte) { binary.BigEndian.PutUint32(b, oap.HeaderBytes-1) }},
		{"too short for its capability", func(b []byte) { b[7] |= byte(oap.Start); binary.BigEndian.PutUint16(b[28:], 100) }},
		{"over the", func(b []byte) { binary.BigEndian.PutUint32(b, largest+1) }},
		{"over the", func(b []byte) { binary.BigEndian.PutUint32(b, 1<<32-1) }},
		{"unknown", func(b []byte) { b[6] = 1 }},
		{"unknown", func(b []byte) { b[6] = 0x80 }},
		{"START only", func(b []byte) { b[29] = 1 }},
		{"capability of", func(b []byte) {
			b[7] |= byte(oap.Start)
			binary.BigEndian.PutUint16(b[28:], oap.MaxCapabilityBytes+1)
			binary.BigEndian.PutUint32(b, 10000)
		}},
		{"one of REQ", func(b []byte) { b[7] = 0 }},
		{"one of REQ", func(b []byte) { b[7] = 3 }},
		{"one of REQ", func(b []byte) { b[7] = 7 }},
	} {
		b := request("payload")
		test.change(b)
		_, _, _, err := oap.Next(b)
		var frame oap.FrameError
		if !errors.As(err, &frame) || !strings.Contains(err.Error(), strings.TrimSuffix(test.why, " for its capability")) {
			t.Errorf("%s: got %v", test.why, err)
		}
	}
}

func TestFramesAreParsedFromPartialStream(t *testing.T) {
	stream := append(request("first"), request("")...)
	for end := range len(stream) + 1 {
		rest := stream[:end]
		var got []string
		for {
			f, left, need, err := oap.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if need > 0 {
				if need <= len(left) || need > oap.EarlierFrameBytes {
					t.Fatalf("with %d bytes left it needs %d", len(left), need)
				}
				break
			}
			got = append(got, string(f.Payload))
			rest = left
		}
		want := 0
		if end >= len(request("first")) {
			want++
		}
		if end == len(stream) {
			want++
		}
		if len(got) != want || (want > 0 && got[0] != "first") {
			t.Errorf("%d bytes: got %q", end, got)
		}
	}
}

func TestHelloIsJSON(t *testing.T) {
	hello := oap.Hello{
		Server: "mailboxd", MaxFrame: oap.MaxFrameBytes, MaxInFlight: 1024, Versions: []int{1},
		Protocols: []oap.HelloProtocol{{ID: 0x0201, Name: "mailbox", Versions: []int{1}}},
	}
	text := oap.AppendHello(nil, &hello)
	for _, field := range []string{`"max_frame":`, `"max_inflight":1024`, `"versions":[1]`} {
		if !bytes.Contains(text, []byte(field)) {
			t.Errorf("%s is not in %s", field, text)
		}
	}
	again, err := oap.ParseHello(text)
	if err != nil || again.MaxFrame != hello.MaxFrame || len(again.Protocols) != 1 {
		t.Errorf("got %+v, %v", again, err)
	}
	for _, bad := range []string{"", "{", "{} x", "[]"} {
		if _, err := oap.ParseHello([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(request("payload"))
	f.Add(append(request("a"), request("b")...))
	f.Add([]byte{0, 0, 0, 38, 0, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		for {
			frame, rest, need, err := oap.Next(stream)
			if err != nil || need > 0 {
				if need > oap.EarlierFrameBytes {
					t.Errorf("needs %d bytes", need)
				}
				return
			}
			again := oap.AppendFrame(nil, &frame.Header, frame.Capability, frame.Payload)
			if !bytes.Equal(again, stream[:len(stream)-len(rest)]) {
				t.Errorf("%x is written %x", stream[:len(stream)-len(rest)], again)
			}
			stream = rest
		}
	})
}
