package server_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// TestHTTP2FrameSentByteByByteEndsConnection has an HTTP/2 client that sends the
// header of a request slowly, and an idle one that answers pings.
func TestHTTP2FrameSentByteByByteEndsConnection(t *testing.T) {
	r := start(t, server.Config{DataDir: t.TempDir(), Backend: "memory:", ReadTimeout: 100 * time.Millisecond, IdleTimeout: time.Hour})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	honest := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer honest.CloseIdleConnections()
	ask := func() (reused bool) {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "http://"+r.Address(server.HTTP)+"/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := honest.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.ProtoMajor != 2 {
			t.Fatalf("setup: it speaks %s", answer.Proto)
		}
		return reused
	}
	ask()

	slow, err := net.Dial("tcp", r.Address(server.HTTP))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	began := time.Now()
	cut := make(chan error, 1)
	go func() {
		_ = slow.SetReadDeadline(began.Add(time.Minute)) // of an hour
		_, err := io.Copy(io.Discard, slow)
		cut <- err
	}()
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	const headers = "\x00\x20\x00\x01\x04\x00\x00\x00\x01" // 8,192 bytes follow
	rest := preface + settings + settings[:4] + "\x01" + settings[5:] + headers
	if _, err := io.WriteString(slow, rest[:len(preface+settings)]); err != nil {
		t.Fatal(err)
	}
	drip := strings.NewReader(rest[len(preface+settings):] + strings.Repeat("\x00", 8192))
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = io.CopyN(slow, drip, 1) // the check below detects a failure
			continue
		case err := <-cut:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("after %v the connection is still there", time.Since(began))
			}
		}
		break
	}
	t.Logf("it took %v", time.Since(began).Round(100*time.Millisecond))
	if !ask() {
		t.Error("the idle connection was cut off too")
	}
}
