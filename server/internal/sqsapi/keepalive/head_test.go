package keepalive

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// usualHead is what the SDK for Go sends.
const usualHead = "POST / HTTP/1.1\r\nHost: 127.0.0.1:4566\r\nUser-Agent: aws-sdk-go-v2/1.47.5 lang/go#1.26\r\nContent-Length: 2\r\n" +
	"Amz-Sdk-Invocation-Id: 5f4a\r\nAmz-Sdk-Request: attempt=1; max=3\r\nAuthorization: AWS4-HMAC-SHA256 Credential=K/20150830/r/sqs/aws4_request\r\n" +
	"Content-Type: application/x-amz-json-1.0\r\nX-Amz-Date: 20150830T123600Z\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nAccept-Encoding: gzip\r\n\r\n"

// agree fails the test if the head is accepted and package http reads it differently.
func agree(t *testing.T, h *head, text string) {
	t.Helper()
	if headEnd([]byte(text)) != len(text) || !h.parse(text) {
		return
	}
	u, ok := h.url()
	if !ok || h.length > maxBody {
		return
	}
	body := strings.Repeat("b", h.length)
	reader := bufio.NewReader(strings.NewReader(text + body + "GET"))
	r, err := http.ReadRequest(reader)
	if err != nil {
		t.Fatalf("%q was accepted, and package http says %v", text, err)
	}
	if r.Method != h.method || r.Host != h.host || r.RequestURI != h.target || !reflect.DeepEqual(r.URL, u) || r.ContentLength != int64(h.length) {
		t.Fatalf("%q was read as %s %s %v of %s with %d bytes, and by package http as %s %s %v of %s with %d",
			text, h.method, h.target, u, h.host, h.length, r.Method, r.RequestURI, r.URL, r.Host, r.ContentLength)
	}
	if fmt.Sprint(r.Header) != fmt.Sprint(h.header) {
		t.Fatalf("%q has the headers %v, and in package http %v", text, h.header, r.Header)
	}
	if r.Close || r.TransferEncoding != nil || r.Trailer != nil || r.ProtoMajor != 1 || r.ProtoMinor != 1 {
		t.Fatalf("%q was accepted, and means more to package http: %+v", text, r)
	}
	// Both must read the same body and the same bytes after it.
	if read, err := io.ReadAll(r.Body); err != nil || string(read) != body {
		t.Fatalf("%q has the body %q, and in package http %q, %v", text, body, read, err)
	}
	if rest, _ := io.ReadAll(reader); string(rest) != "GET" {
		t.Fatalf("%q is followed by %q in package http", text, rest)
	}
}

// FuzzHead checks that any head, after any other head on the same connection, is read as
// package http reads it, or left to package http.
func FuzzHead(f *testing.F) {
	for _, second := range append(oddHeads(), usualHead) {
		f.Add(usualHead, second)
		f.Add(second, usualHead)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var h head
		agree(t, &h, first)
		agree(t, &h, second)
	})
}

func withHeader(line string) string {
	return strings.Replace(usualHead, "\r\nAccept-Encoding: gzip", "\r\n"+line, 1)
}

// oddHeads are heads that must be left to package http.
func oddHeads() []string {
	return []string{
		withHeader("Transfer-Encoding: chunked"), withHeader("transfer-encoding: identity"), withHeader("Content-Length: 2"), withHeader("Content-Length: 3"),
		withHeader("Connection: close"), withHeader("Connection: keep-alive, close"), withHeader("Connection: Upgrade\r\nUpgrade: h2c"),
		withHeader("Expect: 100-continue"), withHeader("Trailer: X"), withHeader("TE: trailers"), withHeader("Pragma: no-cache"),
		withHeader("Host: other"), withHeader(" folded"), withHeader("\tfolded"), withHeader("No colon"), withHeader(": no name"),
		withHeader("Space : x"), withHeader("X-Text: caf\xc3\xa9"), withHeader("X-Text: a\x00b"), withHeader("X-Text: a\nX-Other: b"),
		withHeader("X-Text: a\rX-Other: b"), withHeader("X-Täxt: a"),
		strings.Replace(usualHead, "Content-Length: 2", "Content-Length: +2", 1),
		strings.Replace(usualHead, "Content-Length: 2", "Content-Length: ", 1),
		strings.Replace(usualHead, "Content-Length: 2", "Content-Length: -0", 1),
		strings.Replace(usualHead, "Content-Length: 2", "Content-Length: 0x2", 1),
		strings.Replace(usualHead, "Content-Length: 2", "Content-Length: 2,2", 1),
		strings.Replace(usualHead, "Content-Length: 2", "Content-Length: 0000000000000000002", 1),
		strings.Replace(usualHead, "Host: 127.0.0.1:4566\r\n", "", 1), strings.Replace(usualHead, "Host: 127.0.0.1:4566", "Host:", 1),
		strings.Replace(usualHead, "Host: 127.0.0.1:4566", "Host: a b", 1), strings.Replace(usualHead, "Host: 127.0.0.1:4566", "Host: a/b", 1),
		strings.Replace(usualHead, "HTTP/1.1", "HTTP/1.0", 1), strings.Replace(usualHead, "HTTP/1.1", "HTTP/2.0", 1),
		strings.Replace(usualHead, " HTTP/1.1", "", 1), strings.Replace(usualHead, "POST", "PUT", 1), strings.Replace(usualHead, "POST", "post", 1),
		strings.Replace(usualHead, "POST /", "POST  /", 1), strings.Replace(usualHead, "POST / ", "POST /  ", 1),
		strings.Replace(usualHead, "POST /", "POST http://other/", 1), strings.Replace(usualHead, "POST /", "POST *", 1),
		strings.Replace(usualHead, "POST /", "POST /#x", 1), strings.Replace(usualHead, "POST /", "POST /%zz", 1),
		"\r\n" + usualHead, " " + usualHead, "PRI * HTTP/2.0\r\n\r\n", "\r\n\r\n", "\x16\x03\x01\r\n\r\n",
		withHeader(strings.Repeat("X-A: b\r\n", maxHeaders) + "X-Z: b"),
	}
}

func TestOddHeadsAreLeftToPackageHTTP(t *testing.T) {
	for _, text := range oddHeads() {
		var h head
		taken := h.parse(text)
		if taken {
			_, taken = h.url()
		}
		if taken {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestSimpleHeadsAreReadAsByPackageHTTP(t *testing.T) {
	var h head // the same for all, as on a connection
	for _, text := range []string{
		usualHead, usualHead, strings.Replace(usualHead, "Accept-Encoding: gzip\r\n", "", 1), usualHead, withHeader("Connection: keep-alive"), withHeader("connection: Keep-Alive"), withHeader("X-Twice: a\r\nX-Twice: b"),
		withHeader("X-Twice: c\r\nX-Twice: d"), withHeader("X-Twice: c\r\nX-twice: d\r\nx-Other:\t e \t "), withHeader("X-Empty:"), usualHead,
		strings.Replace(usualHead, "Content-Length: 2\r\n", "", 1), strings.Replace(usualHead, "Content-Length: 2", "Content-Length: 65536", 1),
		strings.Replace(usualHead, "POST /", "GET /000000000000/orders?Action=ReceiveMessage&x=%20+%2F", 1),
		strings.Replace(usualHead, "POST /", "POST //other/x", 1),
		strings.Replace(usualHead, "Host: 127.0.0.1:4566", "host: [::1]:4566", 1), strings.ToLower(usualHead[16:len(usualHead)-4]) + "\r\n\r\n",
	} {
		if !strings.HasPrefix(text, "POST") && !strings.HasPrefix(text, "GET") {
			text = usualHead[:17] + text[1:] // names in lower case
		}
		if !h.parse(text) {
			t.Errorf("%q was not taken", text)
		}
		agree(t, &h, text)
	}
}

func TestHeadWithSameHeadersAllocatesOnlyItsText(t *testing.T) {
	var h head
	if !h.parse(usualHead) {
		t.Fatal("not taken")
	}
	if allocated := testing.AllocsPerRun(100, func() { h.parse(usualHead) }); allocated > 0 {
		t.Errorf("%.0f allocations", allocated)
	}
}

func BenchmarkHead(b *testing.B) {
	var h head
	data := []byte(usualHead)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if !h.parse(string(data[:headEnd(data)])) {
			b.Fatal("not taken")
		}
	}
}

func BenchmarkHeadOfPackageHTTP(b *testing.B) {
	data := []byte(usualHead)
	reader := bufio.NewReader(nil)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(bytes.NewReader(data))
		if _, err := http.ReadRequest(reader); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzRequest checks that a request that is accepted here is read as package http reads
// the same bytes, including body and rest.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n\r\n{}",
		"GET /000000000000/q?Action=x&a=%41 HTTP/1.1\r\nHost: [::1]:80\r\naccept:\ta \r\nAccept: b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 02\r\nContent-Length: 2\r\n\r\n{}",
		"POST //evil/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST /%2f/..%00 HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\nCookie: a; b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 2\r\n\r\n{}",
		"POST /?# HTTP/1.1\r\nhOST: h\r\nx_amz: \x0b\r\n\r\n",
		"\r\nPOST / HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var h head
		end := headEnd([]byte(text))
		if end == 0 || end > maxHead || !h.parse(text[:end]) || h.length > maxBody || len(text) < end+h.length {
			return
		}
		target, ok := h.url()
		if !ok {
			return
		}
		reader := bufio.NewReader(strings.NewReader(text))
		want, err := http.ReadRequest(reader)
		if err != nil {
			t.Fatalf("package http refuses %q: %v", text, err)
		}
		header := h.header.Clone()
		for name, values := range want.Header { // package http adds no headers, and omits a length of 0
			if !reflect.DeepEqual(header[name], values) {
				t.Errorf("%q: header %s is %q, want %q", text, name, header[name], values)
			}
			delete(header, name)
		}
		delete(header, "Content-Length")
		if len(header) > 0 {
			t.Errorf("%q: package http does not have the headers %q", text, header)
		}
		if h.method != want.Method || h.host != want.Host || int64(h.length) != want.ContentLength || want.Close || len(want.TransferEncoding) > 0 || !reflect.DeepEqual(target, want.URL) {
			t.Errorf("%q: got %s %v %q %d, want %s %v %q %d", text, h.method, target, h.host, h.length, want.Method, want.URL, want.Host, want.ContentLength)
		}
		body, err := io.ReadAll(want.Body)
		if err != nil || string(body) != text[end:end+h.length] {
			t.Errorf("%q: the body is %q, want %q (%v)", text, text[end:end+h.length], body, err)
		}
		if rest, _ := io.ReadAll(reader); string(rest) != text[end+h.length:] {
			t.Errorf("%q: %q follows, want %q", text, text[end+h.length:], rest)
		}
	})
}
