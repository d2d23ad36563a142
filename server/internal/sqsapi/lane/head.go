package lane

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	// maxHead is how long the head of a request may be here.
	maxHead = 16 << 10
	// maxBody is how long a body may be here. It is what anybody can make the
	// daemon keep in memory without having signed anything.
	maxBody = 64 << 10
	// maxHeaders is how many headers a request may have here.
	maxHeaders = 32
	// maxLengthDigits bounds a Content-Length, far above maxBody.
	maxLengthDigits = 9
)

// A head is the first part of a request. It is used again for the next one: clients
// send the same headers with each request, so that most of what is known of one is
// true of the next.
type head struct {
	method string
	target string
	host   string
	length int
	// header has the values below, by name.
	header http.Header
	// names are those that header was made for, as they came, and known is how many
	// they are; 0 if it has to be made anew.
	names  [maxHeaders]string
	known  int
	values [maxHeaders]string
	// These say where the headers are that mean something here; -1 for none.
	hostAt, lengthAt, connectionAt int
}

// headEnd returns where the body begins, 0 if the head is not there as a whole.
func headEnd(data []byte) int {
	const end = "\r\n\r\n"
	if i := bytes.Index(data, []byte(end)); i >= 0 {
		return i + len(end)
	}
	return 0
}

// parse reads a head. It reports false for what package http has to look at.
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
	if rest != "" || !(same && count == h.known) && !h.arrange(count) {
		return false
	}
	return h.understand()
}

// arrange makes header for the first of names and values. It reports false if there
// is one that package http has to look at.
func (h *head) arrange(count int) bool {
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
			return false // they are about the connection, or mean something to package http
		}
		switch {
		case at != nil && *at >= 0:
			return false
		case at != nil:
			*at = i
		case twice:
			h.header[name] = append(earlier, h.values[i])
			h.known = 0 // what was appended is a copy
			continue
		}
		if name != "Host" { // package http keeps it elsewhere, too
			h.header[name] = h.values[i : i+1 : i+1]
		}
	}
	return true
}

// understand reads the headers that mean something here. It reports false for those
// that package http has to look at.
func (h *head) understand() bool {
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

// validName reports whether a header may have this name.
func validName(name string) bool {
	for i := range len(name) {
		if !inNames[name[i]] {
			return false
		}
	}
	return name != ""
}

// trimValue returns the value of a header without the space around it. It reports
// false for one with anything but plain characters.
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

// url reads the target. It reports false for what is none.
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

// inNames says which bytes the name of a header may have.
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

// canonicalNames are those of the headers that clients send, in the forms in which
// they send them. Making them would cost memory for each.
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
