package sigv4

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A pair is one parameter of a query, decoded.
type pair struct{ name, value string }

// parseQuery reads a query. Unlike url.ParseQuery it refuses only what cannot be
// decoded, because all parameters were signed.
func parseQuery(raw string) ([]pair, error) {
	if raw == "" {
		return nil, nil
	}
	pairs := make([]pair, 0, strings.Count(raw, "&")+1)
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if nameErr != nil || valueErr != nil {
			return nil, incomplete("The query string is not encoded as URLs are.")
		}
		pairs = append(pairs, pair{name, value})
	}
	return pairs, nil
}

// appendCanonical appends the canonical request for this path, without the hash of the
// payload. The path is encoded once more than in the URL.
func (s *Signed) appendCanonical(b []byte, path string) []byte {
	b = append(append(b, s.request.Method...), '\n')
	if path == "" {
		path = "/"
	}
	b = append(appendEscaped(b, path, '/'), '\n')
	b = append(appendQuery(b, s.query), '\n')
	for name := range strings.SplitSeq(s.headers, ";") {
		b = appendHeader(b, s.request, name)
	}
	b = append(b, '\n')
	return append(append(b, s.headers...), '\n')
}

// mayResolve reports whether resolve could change a path. Some clients resolve dots
// and double slashes before they sign, while others do not.
func mayResolve(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path, "/.") || path != "" && path[0] != '/'
}

// resolve removes empty parts, single and double dots from a path.
func resolve(path string) string {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			parts = parts[:max(len(parts)-1, 0)]
		default:
			parts = append(parts, part)
		}
	}
	resolved := "/" + strings.Join(parts, "/")
	if len(parts) > 0 && strings.HasSuffix(path, "/") {
		resolved += "/"
	}
	return resolved
}

// appendQuery appends the parameters in the order of their encoded names and values,
// without the signature itself.
func appendQuery(b []byte, query []pair) []byte {
	if len(query) == 0 {
		return b
	}
	encoded := make([]pair, 0, len(query))
	for _, p := range query {
		if p.name != "X-Amz-Signature" {
			encoded = append(encoded, pair{escape(p.name), escape(p.value)})
		}
	}
	slices.SortFunc(encoded, func(a, b pair) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	for i, p := range encoded {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(append(b, p.name...), '=')
		b = append(b, p.value...)
	}
	return b
}

// appendHeader appends the line of one header: its values without redundant space.
func appendHeader(b []byte, r *http.Request, name string) []byte {
	b = append(append(b, name...), ':')
	switch name {
	case "host", ":authority":
		return append(appendCollapsed(b, r.Host), '\n')
	}
	for i, value := range headerValues(r, name) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCollapsed(b, value)
	}
	return append(b, '\n')
}

// headerValues returns the values of a header, also of those that package http
// keeps elsewhere.
func headerValues(r *http.Request, name string) []string {
	if name == "transfer-encoding" {
		return r.TransferEncoding
	}
	canonical, usual := canonicalNames[name]
	if !usual {
		canonical = http.CanonicalHeaderKey(name)
	}
	values := r.Header[canonical]
	if name == "content-length" && len(values) == 0 && r.ContentLength >= 0 {
		return []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	return values
}

// canonicalNames has the names of package http for headers that clients sign, so that
// looking one up does not allocate.
var canonicalNames = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		"accept", "amz-sdk-invocation-id", "amz-sdk-request", "content-length", "content-md5", "content-type", "date", "user-agent",
		"x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "x-amz-target", "x-amz-user-agent", "x-amzn-query-mode",
	} {
		names[name] = http.CanonicalHeaderKey(name)
	}
	return names
}()

// appendCollapsed appends a value, trimmed and with single spaces.
func appendCollapsed(b []byte, value string) []byte {
	value = strings.Trim(value, " \t")
	if !strings.Contains(value, "  ") {
		return append(b, value...)
	}
	for i := range len(value) {
		if value[i] != ' ' || value[i-1] != ' ' {
			b = append(b, value[i])
		}
	}
	return b
}

// escape encodes all but letters, digits, -, _, . and ~.
func escape(text string) string {
	for i := range len(text) {
		if !unreserved[text[i]] {
			return string(appendEscaped(nil, text, 0))
		}
	}
	return text
}

// appendEscaped is escape, and leaves one more byte unescaped, unless it is 0.
func appendEscaped(b []byte, text string, stays byte) []byte {
	const hexDigits = "0123456789ABCDEF"
	for i := range len(text) {
		if c := text[i]; unreserved[c] || c == stays && stays != 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&0xF])
		}
	}
	return b
}

var unreserved = func() (plain [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~" {
		plain[c] = true
	}
	return plain
}()
