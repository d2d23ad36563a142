package keepalive

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	// maxHead bounds the head of a request. Longer ones go to package http.
	maxHead = 16 << 10
	// maxBody bounds a body. Any client can make the daemon keep this much in
	// memory before its signature is verified. Longer ones go to package http.
	maxBody = 64 << 10
	// maxHeaders bounds the headers of a request. More go to package http.
	maxHeaders = 32
	// maxLengthDigits bounds a Content-Length, far above maxBody.
	maxLengthDigits = 9
)

// A head is the request line and the headers of a request. It is reused for the next
// request: clients send the same headers each time, so most of it stays valid.
type head struct {
	method string
	target string
	host   string
	length int
	// header has the values below, by name.
	header http.Header
	// names are the names that header was built from, as received, and known is how
	// many there are; 0 if header must be built again.
	names  [maxHeaders]string
	known  int
	values [maxHeaders]string
	// The positions of the headers that this package interprets; -1 for none.
	hostAt, lengthAt, connectionAt int
}

// headEnd returns where the body begins, 0 if the head is incomplete.
func headEnd(data []byte) int {
	const end = "\r\n\r\n"
	if i := bytes.Index(data, []byte(end)); i >= 0 {
		return i + len(end)
	}
	return 0
}

// parse reads a head. It reports false for one that package http must read.
func (h *head) parse(text string) bool {
	line, rest, ok := strings.Cut(text, "\r\n")
	if !ok || !h.parseRequestLine(line) {
		return false
	}
	count, same := 0, true
	for ; ; count++ {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok {
			return false
		}
		if line == "" {
			break
		}
		name, value, colon := strings.Cut(line, ":")
		if !colon || count == maxHeaders {
			return false
		}
		if count >= h.known || h.names[count] != name {
			same = false
			if !validName(name) {
				return false
			}
			h.names[count] = name
		}
		if h.values[count], ok = trimValue(value); !ok {
			return false
		}
	}
	if rest != "" || !(same && count == h.known) && !h.build(count) {
		return false
	}
	return h.interpret()
}

// build builds header from the first count names and values. It reports false if there
// is one that package http must read.
func (h *head) build(count int) bool {
	if h.header == nil {
		h.header = make(http.Header, maxHeaders)
	}
	clear(h.header)
	h.known, h.hostAt, h.lengthAt, h.connectionAt = count, -1, -1, -1
	for i, name := range h.names[:count] {
		name = canonical(name)
		earlier, twice := h.header[name]
		var at *int
		switch name {
		case "Host":
			at = &h.hostAt
		case "Content-Length":
			at = &h.lengthAt
		case "Connection":
			at = &h.connectionAt
		case "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Expect", "Pragma", "Keep-Alive", "Proxy-Connection", "Http2-Settings":
			return false // they concern the connection, or package http interprets them
		}
		switch {
		case at != nil && *at >= 0:
			return false
		case at != nil:
			*at = i
		case twice:
			h.header[name] = append(earlier, h.values[i])
			h.known = 0 // the values were copied
			continue
		}
		if name != "Host" { // package http does not keep it in Header either
			h.header[name] = h.values[i : i+1 : i+1]
		}
	}
	return true
}

// interpret reads the headers that this package interprets. It reports false for a head
// that package http must read.
func (h *head) interpret() bool {
	if h.hostAt < 0 || !validHost(h.values[h.hostAt]) {
		return false
	}
	h.host, h.length = h.values[h.hostAt], 0
	if h.lengthAt >= 0 {
		text := h.values[h.lengthAt]
		length, err := strconv.ParseUint(text, 10, 32)
		if err != nil || len(text) > maxLengthDigits {
			return false
		}
		h.length = int(length)
	}
	return h.connectionAt < 0 || strings.EqualFold(h.values[h.connectionAt], "keep-alive")
}

// parseRequestLine reads the method and the target.
func (h *head) parseRequestLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	switch method {
	case http.MethodPost, http.MethodGet:
	default:
		return false
	}
	if version != "HTTP/1.1" || target == "" || target[0] != '/' {
		return false
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7F || c == '#' {
			return false
		}
	}
	h.method, h.target = method, target
	return true
}

// validName reports whether the name of a header is valid.
func validName(name string) bool {
	for i := range len(name) {
		if !inNames[name[i]] {
			return false
		}
	}
	return name != ""
}

// trimValue returns the value of a header without surrounding space. It reports false
// for a value with characters other than printable ASCII and tabs.
func trimValue(value string) (string, bool) {
	for value != "" && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for value != "" && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
		value = value[:len(value)-1]
	}
	for i := range len(value) {
		if c := value[i]; c != '\t' && (c < ' ' || c >= 0x7F) {
			return "", false
		}
	}
	return value, true
}

// url parses the target. It reports false for an invalid one.
func (h *head) url() (*url.URL, bool) {
	if h.target == "/" { // most are
		return &url.URL{Path: "/"}, true
	}
	u, err := url.ParseRequestURI(h.target)
	return u, err == nil && u.Host == "" && u.Scheme == ""
}

// validHost reports whether a Host is a name or an address with or without a port.
func validHost(host string) bool {
	for i := range len(host) {
		c := host[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune(".-_:[]", rune(c)) {
			return false
		}
	}
	return host != ""
}

// inNames are the bytes that are allowed in the name of a header.
var inNames = func() (allowed [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		allowed[c] = true
	}
	return allowed
}()

// canonical returns the name of a header as package http writes it.
func canonical(name string) string {
	if known, ok := canonicalNames[name]; ok {
		return known
	}
	return http.CanonicalHeaderKey(name)
}

// canonicalNames has the headers that clients send, in the forms in which they send
// them, so that canonical does not allocate for them.
var canonicalNames = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "Authorization", "Connection", "Content-Length",
		"Content-Type", "Host", "User-Agent", "X-Amz-Content-Sha256", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Target",
		"X-Amz-User-Agent", "X-Amzn-Query-Mode", "X-Amzn-Trace-Id",
	} {
		key := http.CanonicalHeaderKey(name)
		names[key], names[strings.ToLower(key)] = key, key
	}
	return names
}()
