package lane

import (
	"bufio"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// FuzzHeadsAreReadAsPackageHTTPReadsThem compares what is read here with what package
// http makes of the same bytes. What is not taken here is of no interest.
func FuzzHeadsAreReadAsPackageHTTPReadsThem(f *testing.F) {
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
			t.Fatalf("package http does not take %q: %v", text, err)
		}
		header := h.header.Clone()
		for name, values := range want.Header { // package http may add nothing, and leaves out the length where it is 0
			if !reflect.DeepEqual(header[name], values) {
				t.Errorf("%q: header %s is %q, want %q", text, name, header[name], values)
			}
			delete(header, name)
		}
		delete(header, "Content-Length")
		if len(header) > 0 {
			t.Errorf("%q: headers %q are none to package http", text, header)
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
