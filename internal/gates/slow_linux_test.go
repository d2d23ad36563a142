package gates_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A slowClient sends a request byte by byte.
type slowClient struct {
	name string
	// begin writes the fast part of the request, and returns the part to write byte by byte.
	begin func(t *testing.T, d *daemon, c net.Conn) (rest []byte)
	oap   bool
	// within is how soon it must be cut off.
	within time.Duration
	long   bool // too slow for everyday runs
}

// Timeouts of the daemon for slow clients, and how they write. HTTP/2 frames that
// are not part of a call count as idleness.
const (
	readTimeout = time.Second
	idleTimeout = 4 * time.Second
	pace        = 400 * time.Millisecond
)

var slow = []slowClient{
	{name: "headers of HTTP", within: time.Minute, begin: func(*testing.T, *daemon, net.Conn) []byte {
		return []byte("POST /v1/send HTTP/1.1\r\nHost: mailboxd\r\nX-Slow: " + strings.Repeat("x", 1000))
	}},
	{name: "body of HTTP", within: time.Minute, begin: func(t *testing.T, d *daemon, c net.Conn) []byte {
		write(t, c, "POST /v1/send HTTP/1.1\r\nHost: mailboxd\r\nContent-Length: 1000\r\nAuthorization: Bearer "+d.token+"\r\n\r\n")
		return []byte(strings.Repeat(" ", 1000))
	}},
	{name: "chunks of HTTP", within: time.Minute, begin: func(t *testing.T, d *daemon, c net.Conn) []byte {
		write(t, c, "POST /v1/send HTTP/1.1\r\nHost: mailboxd\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer "+d.token+"\r\n\r\n")
		return []byte(strings.Repeat("1\r\n \r\n", 200))
	}},
	{name: "preface of HTTP/2", within: time.Minute, begin: func(*testing.T, *daemon, net.Conn) []byte {
		return []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", 1000))
	}},
	{name: "frames of HTTP/2", within: time.Minute, begin: func(t *testing.T, _ *daemon, c net.Conn) []byte {
		write(t, c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")  // SETTINGS
		return append([]byte("\x00\x04\x00\x01\x04\x00\x00\x00\x01"), make([]byte, 1024)...) // HEADERS
	}},
	{name: "frames of OAP before START", oap: true, within: 30 * time.Second, begin: func(t *testing.T, d *daemon, _ net.Conn) []byte {
		frame, err := startFrame(d.token)
		if err != nil {
			t.Error(err)
		}
		return frame
	}},
	{name: "frames of OAP after START", oap: true, within: 35 * time.Second, long: true, begin: func(t *testing.T, d *daemon, c net.Conn) []byte {
		if _, err := beginFrames(c, d.token); err != nil {
			t.Error(err)
		}
		return oap.AppendFrame(nil, &oap.Header{Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 1}, nil, make([]byte, 4000))
	}},
}

func write(t *testing.T, c net.Conn, text string) {
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
}

// cutOff returns after what time a slow client was cut off.
func (l *slowClient) cutOff(t *testing.T, d *daemon) time.Duration {
	address := d.http
	if l.oap {
		address = d.oap
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer c.Close()
	rest := l.begin(t, d, c)
	began := time.Now()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, b := range rest {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			pause(pace)
		}
	}()
	if took, cut := ended(t, c, l.within); !cut {
		t.Errorf("%s: not cut off after %v", l.name, took)
	}
	took := time.Since(began)
	_ = c.Close()
	<-over
	return took
}

// TestSlowClientsAreCutOffAndSlowNoOther runs twenty slow clients of each kind against a
// daemon while others work.
func TestSlowClientsAreCutOffAndSlowNoOther(t *testing.T) {
	t.Parallel() // mostly waits
	d := start(t, append(inMemory, "--read-timeout="+readTimeout.String(), "--idle-timeout="+idleTimeout.String(), "--log-level=info")...)
	const each, samples = 20, 100
	alone := make([][]time.Duration, len(surfaces))
	workers := make([]surface, len(surfaces))
	for i, s := range surfaces {
		workers[i] = s.open(t, d, d.token)
		alone[i] = work(t, workers[i], s.name, samples)
	}
	var clients sync.WaitGroup
	longest := make([]time.Duration, len(slow)+1)
	var mu sync.Mutex
	for kind, l := range slow {
		if l.long && !volume.AtLength() {
			continue
		}
		for range each {
			clients.Go(func() {
				took := l.cutOff(t, d)
				mu.Lock()
				defer mu.Unlock()
				longest[kind] = max(longest[kind], took)
			})
		}
	}
	for range each {
		clients.Go(func() {
			took := slowStream(t, d)
			mu.Lock()
			defer mu.Unlock()
			longest[len(slow)] = max(longest[len(slow)], took)
		})
	}
	for i, s := range surfaces {
		t.Logf("send, receive and ack by %s: alone %s; beside %d slow clients: %s", s.name, figures(alone[i]), each*(len(slow)+1), figures(work(t, workers[i], s.name, samples)))
	}
	clients.Wait()
	for kind, l := range slow {
		if longest[kind] == 0 {
			continue
		}
		t.Logf("%s, byte by byte: cut off after %v", l.name, longest[kind].Round(time.Millisecond))
	}
	t.Logf("body of gRPC, byte by byte: cut off after %v", longest[len(slow)].Round(time.Millisecond))
	if left := openHTTP(t, d.http, d.token); left.stats(t, "HTTP") != (counts{}) {
		t.Error("a message was left behind")
	}
}

// slowStream sends a gRPC call whose message comes byte by byte, and returns after
// what time it was cut off.
func slowStream(t *testing.T, d *daemon) time.Duration {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	body, writer := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.http+"/mailbox.v1.Mailbox/Send", body)
	if err != nil {
		t.Error(err)
		return 0
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	began := time.Now()
	go func() {
		for _, b := range append([]byte{0, 0, 0, 1, 0}, make([]byte, 256)...) {
			if _, err := writer.Write([]byte{b}); err != nil {
				return
			}
			pause(pace)
		}
	}()
	response, err := (&http.Client{Transport: transport, Timeout: 90 * time.Second}).Do(request)
	took := time.Since(began)
	defer body.CloseWithError(io.ErrClosedPipe)
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if status := response.Trailer.Get("Grpc-Status") + response.Header.Get("Grpc-Status"); status == "0" || status == "" {
			t.Errorf("a call with an incomplete message was answered with status %q", status)
		}
	}
	if took > time.Minute { // after its read timeout, with time for a busy machine; it would take 104 s
		t.Errorf("a slow gRPC call was cut off only after %v: %v", took, err)
	}
	return took
}
