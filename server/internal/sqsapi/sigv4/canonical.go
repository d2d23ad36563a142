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

// parseQuery reads a query. Unlike url.ParseQuery it refuses nothing but what
// cannot be decoded, because everything that is there was signed.
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

// canonicalize writes down what was signed, all but the hash of the payload.
func (s *Signed) canonicalize(r *http.Request, query []pair, headers []string) {
	var rest strings.Builder
	rest.WriteByte('\n')
	writeQuery(&rest, query)
	rest.WriteByte('\n')
	for _, name := range headers {
		writeHeader(&rest, r, name)
	}
	rest.WriteByte('\n')
	rest.WriteString(strings.Join(headers, ";"))
	rest.WriteByte('\n')
	for _, path := range canonicalPaths(r.URL) {
		s.requests = append(s.requests, r.Method+"\n"+path+rest.String())
	}
}

// canonicalPaths returns the path as clients sign it. It is encoded once more
// than in the URL, and some resolve dots and double slashes first while others
// do not.
func canonicalPaths(u *url.URL) []string {
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	paths := []string{escape(path, '/')}
	if resolved := resolve(path); resolved != path {
		paths = append(paths, escape(resolved, '/'))
	}
	return paths
}

// resolve takes empty parts, single and double dots out of a path.
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

// writeQuery writes the parameters in the order of their encoded names and
// values, all but the signature itself.
func writeQuery(b *strings.Builder, query []pair) {
	encoded := make([]pair, 0, len(query))
	for _, p := range query {
		if p.name != "X-Amz-Signature" {
			encoded = append(encoded, pair{escape(p.name, 0), escape(p.value, 0)})
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
			b.WriteByte('&')
		}
		b.WriteString(p.name)
		b.WriteByte('=')
		b.WriteString(p.value)
	}
}

// writeHeader writes the line of one header: its values without the space that
// means nothing.
func writeHeader(b *strings.Builder, r *http.Request, name string) {
	b.WriteString(name)
	b.WriteByte(':')
	for i, value := range headerValues(r, name) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(collapse(value))
	}
	b.WriteByte('\n')
}

// headerValues returns the values of a header, also of those that package http
// keeps elsewhere.
func headerValues(r *http.Request, name string) []string {
	switch name {
	case "host", ":authority":
		return []string{r.Host}
	case "transfer-encoding":
		return r.TransferEncoding
	}
	values := r.Header.Values(name)
	if name == "content-length" && len(values) == 0 && r.ContentLength >= 0 {
		return []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	return values
}

// collapse trims a value and makes one space of several.
func collapse(value string) string {
	value = strings.Trim(value, " \t")
	if !strings.Contains(value, "  ") {
		return value
	}
	var b strings.Builder
	for i := range len(value) {
		if value[i] != ' ' || value[i-1] != ' ' {
			b.WriteByte(value[i])
		}
	}
	return b.String()
}

// escape encodes all but letters, digits, -, _, ., ~ and the byte that may stay.
func escape(text string, stays byte) string {
	plain := func(c byte) bool { return unreserved[c] || c == stays && stays != 0 }
	first := 0
	for first < len(text) && plain(text[first]) {
		first++
	}
	if first == len(text) {
		return text
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString(text[:first])
	for i := first; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&0xF])
		}
	}
	return b.String()
}

var unreserved = func() (plain [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~" {
		plain[c] = true
	}
	return plain
}()
