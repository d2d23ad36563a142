package gates_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// TestG4OverloadIsRefusedWithRetryHint: bodies that are too large, queues that are
// full, and an unavailable backend, over each protocol.
func TestG4OverloadIsRefusedWithRetryHint(t *testing.T) {
	t.Parallel() // mostly waits
	redis := redistest.Standalone(t)
	const capacity = 5
	d := start(t, "--backend=redis://"+redis.Addr(), "--max-payload-bytes=2048", fmt.Sprintf("--shard-cap=%d", capacity))
	expect := func(t *testing.T, err error, code string, status int, hint bool) {
		t.Helper()
		refused, ok := errors.AsType[*refusal](err)
		switch {
		case !ok || refused.code != code:
			t.Errorf("got %v, want %s", err, code)
		case refused.status != 0 && refused.status != status:
			t.Errorf("%s has status %d, want %d", code, refused.status, status)
		case hint && refused.after <= 0:
			t.Errorf("%s has no retry hint: %v", code, refused)
		default:
			t.Logf("%v", refused)
		}
	}
	onEach(t, d, func(t *testing.T, s surface) {
		queue := t.Name()
		_, _, err := s.send(t.Context(), queue, "large", make([]byte, 2049))
		expect(t, err, "E_FRAME_TOO_LARGE", 413, false)
		for i := range capacity {
			if _, _, err := s.send(t.Context(), queue, fmt.Sprint(i), make([]byte, 2048)); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err = s.send(t.Context(), queue, "one more", nil)
		if _, ok := s.(*httpSurface); ok {
			_, _, err = s.send(t.Context(), queue, "one more", []byte("tea")) // JSON has no nil
		}
		expect(t, err, "E_SATURATED", 429, true)
	})
	redis.Kill()
	var asking sync.WaitGroup
	for _, s := range surfaces { // concurrently, because the daemon waits for Redis
		asking.Go(func() {
			_, _, err := s.open(t, d, d.token).send(t.Context(), t.Name()+"/"+s.name, "gone", []byte("tea"))
			expect(t, err, "E_UNAVAILABLE", 503, true)
		})
	}
	asking.Wait()
}

// TestG4UnknownInputIsRefused sends unknown fields over each protocol.
func TestG4UnknownInputIsRefused(t *testing.T) {
	d := start(t, inMemory...)
	if _, _, err := overHTTP(t, d, d.token).send(t.Context(), "orders", "1", []byte("tea")); err != nil {
		t.Fatal(err)
	}
	t.Run("HTTP", func(t *testing.T) {
		for name, request := range map[string]object{
			"unknown field":   {"topic": "orders", "idem_key": "2", "payload_b64": "", "colour": "blue"},
			"another type":    {"topic": "orders", "idem_key": 2, "payload_b64": ""},
			"another case":    {"Topic": "orders", "idem_key": "2", "payload_b64": ""},
			"too short a":     {"topic": "orders", "visibility_ms": 1},
			"no known at all": {"colour": "blue"},
		} {
			path := "/v1/send"
			if request["visibility_ms"] != nil {
				path = "/v1/recv"
			}
			if err := post(t, d, d.token, path, request); err == nil || err.status != 400 || err.code != "E_SCHEMA" {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		s := overGRPC(t, d, d.token).(*rpcSurface)
		request := &mailboxv1.StatsRequest{Topic: "orders"}
		request.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) // field 99 is 1
		_, err := s.client.Stats(s.with(t.Context()), request)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || codeOf(refusedRPC(err)) != "E_SCHEMA" {
			t.Errorf("an unknown field: %v", err)
		}
	})
	t.Run("OAP", func(t *testing.T) {
		f, err := beginFrames(dial(t, d.oap), d.token)
		if err != nil {
			t.Fatal(err)
		}
		good := oap.AppendName(nil, "orders")
		answer, err := f.ask(oap.OpOpen, append(good, 0))
		if err != nil || answer.Code != oap.StatusInvalid {
			t.Errorf("a byte too many: status %d, %v", answer.Code, err)
		}
		answer, err = f.ask(0x7f, nil)
		if err != nil || answer.Code < 400 || answer.Code >= 600 {
			t.Errorf("an unknown operation: status %d, %v", answer.Code, err)
		}
	})
	if left := openHTTP(t, d.http, d.token).stats(t, "orders"); left != (counts{Ready: 1}) {
		t.Errorf("a refused request has changed something: %+v", left)
	}
}

// The sizes of the largest request of each protocol, as numbers: changing
// a limit changes the protocol.
const (
	largestBody  = 1_048_576 // of HTTP, Connect and gRPC, with the 5 bytes before a gRPC message
	largestFrame = 1_183_782 // of OAP/1, with header and capability: what earlier clients send
)

// TestG4OversizedRequestsAreRefusedBeforeBody: a request that announces
// one byte too many is answered before its body is sent, and one of exactly the
// largest size is awaited.
func TestG4OversizedRequestsAreRefusedBeforeBody(t *testing.T) {
	d := start(t, append(inMemory, "--read-timeout=20s")...)
	for _, test := range []struct {
		path    string
		largest int
		token   string
		status  int
		says    string
	}{
		{"/v1/send", largestBody, d.token, 413, "E_FRAME_TOO_LARGE"},
		{"/mailbox.v1.Mailbox/Send", largestBody, d.token, 429, "resource_exhausted"},
	} {
		if status, text := announce(t, d, test.path, test.token, test.largest+1, answered); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s with a byte too many: %d %s, want %d %s", test.path, status, text, test.status, test.says)
		}
		if status, text := announce(t, d, test.path, test.token, test.largest, unanswered); status != 0 {
			t.Errorf("%s of the largest size: %d %s, want no answer before it comes", test.path, status, text)
		}
	}
	if status, text := announce(t, d, "/v1/send", "nonsense", largestBody+1, answered); status != 401 {
		t.Errorf("HTTP without a token: %d %s", status, text)
	}
	if status := announcedByGRPC(t, d, largestBody-5+1, answered); status != "8" {
		t.Errorf("gRPC with a byte too many: status %q, want 8", status)
	}
	if status := announcedByGRPC(t, d, largestBody-5, unanswered); status != "" {
		t.Errorf("gRPC of the largest size: status %q, want no answer before it comes", status)
	}
	for length, tooLarge := range map[int]bool{largestFrame: false, largestFrame + 1: true} {
		f, err := beginFrames(dial(t, d.oap), d.token)
		if err != nil {
			t.Fatal(err)
		}
		header := oap.AppendHeader(nil, &oap.Header{Length: uint32(length), Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 7})
		if _, err := f.Write(header); err != nil {
			t.Fatal(err)
		}
		if !tooLarge {
			if took, over := ended(t, f, unanswered); over {
				t.Errorf("OAP of the largest size: ended after %v, want no answer before it comes", took)
			}
			continue
		}
		if answer, err := f.read(); err != nil || answer.Code != oap.StatusTooLarge || answer.Correlation != 7 {
			t.Errorf("OAP with a byte too many: status %d, %v", answer.Code, err)
		}
	}
}

// How long the test waits for an answer that must come, and for one that must not.
const answered, unanswered = 2 * time.Minute, time.Second

// announce sends the head of a request with a body of length bytes, and returns the
// answer, or 0 if there is none.
func announce(t *testing.T, d *daemon, path, token string, length int, patience time.Duration) (int, string) {
	t.Helper()
	c := dial(t, d.http)
	_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: mailboxd\r\nContent-Type: application/json\r\nContent-Length: %d\r\nAuthorization: Bearer %s\r\n\r\n", path, length, token)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// announcedByGRPC announces a gRPC message of length bytes, and returns the status,
// or nothing if there is no answer.
func announcedByGRPC(t *testing.T, d *daemon, length uint32, patience time.Duration) string {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	body, writer := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.http+"/mailbox.v1.Mailbox/Send", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	go func() { _, _ = writer.Write(binary.BigEndian.AppendUint32([]byte{0}, length)) }()
	defer writer.Close()
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		return ""
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.Header.Get("Grpc-Status") + response.Trailer.Get("Grpc-Status")
}

// TestG4EndlessRequestsAreCutOff: of a body without a length, no more
// is read than the limit and the buffers of the system.
func TestG4EndlessRequestsAreCutOff(t *testing.T) {
	d := start(t, append(inMemory, "--read-timeout=20s")...)
	const buffers = 64 << 20 // Linux takes up to 36 MiB for a reader that is slow
	chunk := bytes.Repeat([]byte(" "), 32<<10)
	for _, path := range []string{"/v1/send", "/v1/recv", "/mailbox.v1.Mailbox/Send"} {
		c := dial(t, d.http)
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: mailboxd\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %s\r\n\r\n", path, d.token)
		written := writeUntilClosed(c, func() error {
			_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(chunk), chunk)
			return err
		}, len(chunk))
		if written > 1<<20+buffers {
			t.Errorf("%s: %d MiB were read", path, written>>20)
		}
		t.Logf("%s: the connection was closed after %d KiB had been written to it", path, written>>10)
	}
	f, err := beginFrames(dial(t, d.oap), d.token)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write(oap.AppendHeader(nil, &oap.Header{Length: 1 << 31, Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 7}))
	written := writeUntilClosed(f, func() error { _, err := f.Write(chunk); return err }, len(chunk))
	if written > 1<<20+buffers {
		t.Errorf("OAP: %d MiB were read", written>>20)
	}
	t.Logf("a frame of OAP with 2 GiB: the connection was closed after %d KiB had been written to it", written>>10)
}

// writeUntilClosed writes until the connection is closed, and returns how much was written.
func writeUntilClosed(c net.Conn, write func() error, size int) int {
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	for written := 0; ; written += size {
		if write() != nil || written > 256<<20 {
			return written
		}
	}
}
