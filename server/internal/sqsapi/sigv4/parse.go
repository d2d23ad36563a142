package sigv4

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	// maxCredential bounds access key id and scope together.
	maxCredential = 512
	// maxSignedHeaders bounds how many headers a signature covers.
	maxSignedHeaders = 100
)

// Present reports whether the request has an AWS signature, valid or not.
func Present(r *http.Request) bool {
	authorization := r.Header.Get("Authorization")
	return strings.HasPrefix(authorization, "AWS4-") || strings.HasPrefix(authorization, "AWS ") ||
		strings.Contains(r.URL.RawQuery, "X-Amz-Algorithm=") || strings.Contains(r.URL.RawQuery, "X-Amz-Signature=")
}

// Parse reads the signature of a request. It does not read the body.
func Parse(r *http.Request) (*Signed, error) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	var claim claim
	if authorization := r.Header.Get("Authorization"); authorization != "" {
		err = claim.fromHeader(r, authorization)
		if err == nil && isPresigned(query) {
			// Its signature would be valid in the header too, without its expiry.
			err = incomplete("Only one way to sign a request is allowed: the Authorization header, or query-string parameters.")
		}
	} else {
		err = claim.fromQuery(query)
	}
	if err != nil {
		return nil, err
	}
	signed, err := claim.signed()
	if err != nil {
		return nil, err
	}
	if err := checkCovered(r, claim.headers); err != nil {
		return nil, err
	}
	signed.request, signed.query, signed.headers = r, query, claim.headers
	signed.mayLack = claim.presigned || r.Header.Get("X-Amz-Content-Sha256") == unsignedPayload
	return signed, nil
}

// isPresigned reports whether a query has parameters of a presigned URL.
func isPresigned(query []pair) bool {
	return slices.ContainsFunc(query, func(p pair) bool {
		switch p.name {
		case "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Expires", "X-Amz-Signature", "X-Amz-SignedHeaders":
			return true
		}
		return false
	})
}

// A claim is the unparsed signature of a request.
type claim struct {
	presigned  bool
	credential string
	headers    string
	signature  string
	token      string
	// date is the time of signing in the form that is signed.
	date    string
	expires string
}

// fromHeader reads the header Authorization and what belongs to it.
func (c *claim) fromHeader(r *http.Request, authorization string) error {
	scheme, parameters, _ := strings.Cut(authorization, " ")
	if scheme != algorithm {
		if strings.HasPrefix(scheme, "AWS") {
			return incomplete("Unsupported AWS 'algorithm': '%.64s'.", scheme)
		}
		return sqswire.MissingAuthenticationToken.Default()
	}
	for parameter := range strings.SplitSeq(parameters, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		switch name {
		case "Credential":
			c.credential = value
		case "SignedHeaders":
			c.headers = value
		case "Signature":
			c.signature = value
		}
	}
	switch {
	case c.credential == "":
		return incomplete("Authorization header requires 'Credential' parameter.")
	case c.signature == "":
		return incomplete("Authorization header requires 'Signature' parameter.")
	case c.headers == "":
		return incomplete("Authorization header requires 'SignedHeaders' parameter.")
	}
	c.token = r.Header.Get("X-Amz-Security-Token")
	c.date = dateOf(r)
	if c.date == "" {
		return incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
	}
	return nil
}

// dateOf returns the time of signing from the headers in the form that is
// signed. Date may have the form of HTTP, X-Amz-Date may not.
func dateOf(r *http.Request) string {
	if date := r.Header.Get("X-Amz-Date"); date != "" {
		return date
	}
	date := r.Header.Get("Date")
	if t, err := http.ParseTime(date); err == nil {
		return t.UTC().Format(timeFormat)
	}
	return date
}

// fromQuery reads the parameters of a presigned URL.
func (c *claim) fromQuery(query []pair) error {
	values := make(map[string]string)
	for _, p := range query {
		if strings.HasPrefix(p.name, "X-Amz-") {
			if _, twice := values[p.name]; twice {
				return incomplete("The query-string parameter '%.64s' is there more than once.", p.name)
			}
			values[p.name] = p.value
		}
	}
	if values["X-Amz-Algorithm"] == "" && values["X-Amz-Signature"] == "" {
		return sqswire.MissingAuthenticationToken.Default()
	}
	if values["X-Amz-Algorithm"] != algorithm {
		return incomplete("Unsupported AWS 'algorithm': '%.64s'.", values["X-Amz-Algorithm"])
	}
	for _, name := range []string{"X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date"} {
		if values[name] == "" {
			return incomplete("AWS query-string parameters must include '%s'. Re-examine the query-string parameters.", name)
		}
	}
	*c = claim{
		presigned:  true,
		credential: values["X-Amz-Credential"],
		headers:    values["X-Amz-SignedHeaders"],
		signature:  values["X-Amz-Signature"],
		token:      values["X-Amz-Security-Token"],
		date:       values["X-Amz-Date"],
		expires:    values["X-Amz-Expires"],
	}
	return nil
}

// signed reads the parts of the claim.
func (c *claim) signed() (*Signed, error) {
	s := &Signed{SessionToken: c.token}
	if err := s.readCredential(c.credential); err != nil {
		return nil, err
	}
	if len(c.signature) != hex.EncodedLen(len(s.signature)) || !isLower(c.signature) {
		return nil, sqswire.InvalidSignature.Default()
	}
	var encoded [2 * len(s.signature)]byte
	copy(encoded[:], c.signature)
	if _, err := hex.Decode(s.signature[:], encoded[:]); err != nil {
		return nil, sqswire.InvalidSignature.Default()
	}
	var ok bool
	if s.Time, ok = parseTime(c.date); !ok {
		return nil, incomplete("Date must be in ISO-8601 'basic format'. Got '%.64s'. See http://en.wikipedia.org/wiki/ISO_8601", c.date)
	}
	s.date = c.date
	if day := c.date[:len(s.day)]; s.day != day {
		return nil, sqswire.InvalidSignature.Withf("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '%s' != '%s', from '%s'.", s.day, day, c.date)
	}
	if c.presigned {
		return s, s.readExpires(c.expires)
	}
	return s, nil
}

// parseTime reads a time that is exactly in timeFormat, because the text was signed.
func parseTime(text string) (time.Time, bool) {
	if len(text) != len(timeFormat) {
		return time.Time{}, false
	}
	var numbers [14]int // each digit
	n := 0
	for i := range len(text) {
		c := text[i]
		switch {
		case timeFormat[i] == 'T' || timeFormat[i] == 'Z':
			if c != timeFormat[i] {
				return time.Time{}, false
			}
		case c < '0' || c > '9':
			return time.Time{}, false
		default:
			numbers[n] = int(c - '0')
			n++
		}
	}
	two := func(i int) int { return 10*numbers[i] + numbers[i+1] }
	year, month, day, hour, minute, second := 100*two(0)+two(2), time.Month(two(4)), two(6), two(8), two(10), two(12)
	t := time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	// time.Date normalizes values that are out of range.
	return t, t.Month() == month && t.Day() == day && hour < 24 && minute < 60 && second < 60
}

// readCredential reads key/day/region/service/aws4_request. The key id may
// contain slashes.
func (s *Signed) readCredential(credential string) error {
	rest, last, few := credential, "", false
	cut := func() (part string) {
		i := strings.LastIndexByte(rest, '/')
		if i < 0 {
			few = true
			return ""
		}
		rest, part = rest[:i], rest[i+1:]
		return part
	}
	last, s.Service, s.Region, s.day = cut(), cut(), cut(), cut()
	if few || len(credential) > maxCredential {
		return incomplete("Credential must have at least 5 slash-delimited elements, e.g. keyid/date/region/service/term.")
	}
	s.AccessKeyID = rest
	switch {
	case last != terminator:
		return sqswire.InvalidSignature.Withf("Credential should be scoped with a valid terminator: 'aws4_request', not '%.64s'.", last)
	case len(s.day) != len("20060102"):
		return sqswire.InvalidSignature.Withf("Credential should be scoped to a valid date, not '%.64s'.", s.day)
	case s.AccessKeyID == "" || s.Region == "" || s.Service == "":
		return incomplete("Credential must have a key id, a region and a service.")
	}
	return nil
}

// readExpires reads how long a presigned request is valid; without a parameter as long
// as other requests.
func (s *Signed) readExpires(text string) error {
	if text == "" {
		s.Expires = skew
		return nil
	}
	seconds, err := strconv.ParseUint(text, 10, 32)
	s.Expires = time.Duration(seconds) * time.Second
	if err != nil || s.Expires <= 0 || s.Expires > maxExpires {
		return incomplete("X-Amz-Expires must be a number of seconds from 1 to 604800.")
	}
	return nil
}

// checkCovered checks that the signature covers the headers that determine the meaning
// of the request.
func checkCovered(r *http.Request, headers string) error {
	if strings.Count(headers, ";") >= maxSignedHeaders {
		return incomplete("The signature covers too many headers.")
	}
	var host, target bool
	for name := range strings.SplitSeq(headers, ";") {
		if name == "" || !isLower(name) {
			return incomplete("'SignedHeaders' must be names of headers in lower case.")
		}
		host = host || name == "host" || name == ":authority"
		target = target || name == "x-amz-target"
	}
	if !host {
		return sqswire.InvalidSignature.Withf("'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.")
	}
	if !target && r.Header.Get("X-Amz-Target") != "" {
		return sqswire.InvalidSignature.Withf("'X-Amz-Target' must be a 'SignedHeader' in the AWS Authorization.")
	}
	return nil
}

// isLower reports whether a text has no letters in upper case.
func isLower(text string) bool {
	for i := range len(text) {
		if c := text[i]; 'A' <= c && c <= 'Z' {
			return false
		} else if c >= utf8.RuneSelf {
			return text == strings.ToLower(text)
		}
	}
	return true
}

func incomplete(format string, args ...any) *sqswire.Error {
	return sqswire.IncompleteSignature.Withf(format, args...)
}
