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
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// TestG4WhatIsTooMuchIsRefusedWithAHint: payloads that are too large, topics that are
// full, and a backend that is gone, by each protocol.
func TestG4WhatIsTooMuchIsRefusedWithAHint(t *testing.T) {
	t.Parallel() // it mostly waits
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
			t.Errorf("%s does not say when to come back: %v", code, refused)
		default:
			t.Logf("%v", refused)
		}
	}
	onEach(t, d, func(t *testing.T, s surface) {
		topic := t.Name()
		_, _, err := s.send(t.Context(), topic, "large", make([]byte, 2049))
		expect(t, err, "E_FRAME_TOO_LARGE", 413, false)
		for i := range capacity {
			if _, _, err := s.send(t.Context(), topic, fmt.Sprint(i), make([]byte, 2048)); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err = s.send(t.Context(), topic, "one more", nil)
		if _, ok := s.(*httpSurface); ok {
			_, _, err = s.send(t.Context(), topic, "one more", []byte("tea")) // JSON has no nil
		}
		expect(t, err, "E_SATURATED", 429, true)
	})
	redis.Kill()
	var asking sync.WaitGroup
	for _, s := range surfaces { // together, because the daemon has patience with Redis
		asking.Go(func() {
			_, _, err := s.open(t, d, d.token).send(t.Context(), t.Name()+"/"+s.name, "gone", []byte("tea"))
			expect(t, err, "E_UNAVAILABLE", 503, true)
		})
	}
	asking.Wait()
}

// TestG4UnknownInputIsRefused: a field that nobody knows, by each protocol.
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
		t.Errorf("what was refused has changed something: %+v", left)
	}
}

// twoMiB is twice of what any request may have.
const twoMiB = 2 << 20

// TestG4OversizedRequestsAreAnsweredBeforeTheyAreSent: a request that says that it is
// too large is answered although nothing of it comes.
func TestG4OversizedRequestsAreAnsweredBeforeTheyAreSent(t *testing.T) {
	d := start(t, append(inMemory, "--read-timeout=20s")...)
	announce := func(path, kind, token string) (int, string) {
		t.Helper()
		c := dial(t, d.http)
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: mailboxd\r\nContent-Type: %s\r\nContent-Length: %d\r\nAuthorization: Bearer %s\r\n\r\n", path, kind, twoMiB, token)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: no answer: %v", path, err)
			return 0, ""
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	if status, text := announce("/v1/send", "application/json", d.token); status != 413 || !strings.Contains(text, "E_FRAME_TOO_LARGE") {
		t.Errorf("HTTP: %d %s", status, text)
	}
	if status, text := announce("/v1/send", "application/json", "nonsense"); status != 401 {
		t.Errorf("HTTP without a token: %d %s", status, text)
	}
	if status, text := announce("/mailbox.v1.Mailbox/Send", "application/json", d.token); status != 429 && status != 413 || !strings.Contains(text, "E_FRAME_TOO_LARGE") && !strings.Contains(text, "resource_exhausted") {
		t.Errorf("Connect: %d %s", status, text)
	}
	if status := announcedByGRPC(t, d); status != "8" {
		t.Errorf("gRPC: status %q, want 8", status)
	}
	f, err := beginFrames(dial(t, d.oap), d.token)
	if err != nil {
		t.Fatal(err)
	}
	header := oap.AppendHeader(nil, &oap.Header{Length: twoMiB, Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 7})
	if _, err := f.Write(header); err != nil {
		t.Fatal(err)
	}
	if answer, err := f.read(); err != nil || answer.Code != oap.StatusTooLarge || answer.Correlation != 7 {
		t.Errorf("OAP: status %d, %v", answer.Code, err)
	}
}

// announcedByGRPC says by gRPC that much will come, and returns the status.
func announcedByGRPC(t *testing.T, d *daemon) string {
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
	go func() { _, _ = writer.Write(binary.BigEndian.AppendUint32([]byte{0}, twoMiB)) }()
	defer writer.Close()
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		t.Error(err)
		return ""
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.Header.Get("Grpc-Status") + response.Trailer.Get("Grpc-Status")
}

// TestG4EndlessRequestsAreCutOff: of a body that does not say how long it is, no more
// is taken than fits, and what is in buffers of the system on the way.
func TestG4EndlessRequestsAreCutOff(t *testing.T) {
	d := start(t, append(inMemory, "--read-timeout=20s")...)
	const buffers = 8 << 20
	chunk := bytes.Repeat([]byte(" "), 32<<10)
	for _, path := range []string{"/v1/send", "/v1/recv", "/mailbox.v1.Mailbox/Send"} {
		c := dial(t, d.http)
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: mailboxd\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %s\r\n\r\n", path, d.token)
		written := pour(c, func() error {
			_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(chunk), chunk)
			return err
		}, len(chunk))
		if written > 1<<20+buffers {
			t.Errorf("%s: %d MiB were taken", path, written>>20)
		}
		t.Logf("%s: the connection was closed after %d KiB had been written to it", path, written>>10)
	}
	f, err := beginFrames(dial(t, d.oap), d.token)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write(oap.AppendHeader(nil, &oap.Header{Length: 1 << 31, Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 7}))
	written := pour(f, func() error { _, err := f.Write(chunk); return err }, len(chunk))
	if written > 1<<20+buffers {
		t.Errorf("OAP: %d MiB were taken", written>>20)
	}
	t.Logf("a frame of OAP with 2 GiB: the connection was closed after %d KiB had been written to it", written>>10)
}

// pour writes until the other side has had enough, and returns how much it took.
func pour(c net.Conn, write func() error, size int) int {
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	for written := 0; ; written += size {
		if write() != nil || written > 256<<20 {
			return written
		}
	}
}
