package sigv4

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	// maxCredential bounds access key id and scope together.
	maxCredential = 512
	// maxSignedHeaders bounds how many headers a signature covers.
	maxSignedHeaders = 100
)

// Present reports whether the request carries anything that is meant as a
// signature in the way of AWS, whether or not it is a good one.
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
	signed.canonicalize(r, query, claim.headers)
	signed.mayLack = claim.presigned || r.Header.Get("X-Amz-Content-Sha256") == unsignedPayload
	return signed, nil
}

// A claim is what a request says about its signature, as it is written there.
type claim struct {
	presigned  bool
	credential string
	headers    []string
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
	var headers string
	for parameter := range strings.SplitSeq(parameters, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		switch name {
		case "Credential":
			c.credential = value
		case "SignedHeaders":
			headers = value
		case "Signature":
			c.signature = value
		}
	}
	switch {
	case c.credential == "":
		return incomplete("Authorization header requires 'Credential' parameter.")
	case c.signature == "":
		return incomplete("Authorization header requires 'Signature' parameter.")
	case headers == "":
		return incomplete("Authorization header requires 'SignedHeaders' parameter.")
	}
	c.headers = strings.Split(headers, ";")
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
		headers:    strings.Split(values["X-Amz-SignedHeaders"], ";"),
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
	signature, err := hex.DecodeString(c.signature)
	if err != nil || len(signature) != len(s.signature) || c.signature != strings.ToLower(c.signature) {
		return nil, sqswire.InvalidSignature.Default()
	}
	copy(s.signature[:], signature)
	if s.Time, err = time.Parse(timeFormat, c.date); err != nil || len(c.date) != len(timeFormat) {
		return nil, incomplete("Date must be in ISO-8601 'basic format'. Got '%.64s'. See http://en.wikipedia.org/wiki/ISO_8601", c.date)
	}
	if day := c.date[:len(s.day)]; s.day != day {
		return nil, sqswire.InvalidSignature.Withf("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '%s' != '%s', from '%s'.", s.day, day, c.date)
	}
	if c.presigned {
		return s, s.readExpires(c.expires)
	}
	return s, nil
}

// readCredential reads key/day/region/service/aws4_request. The key id may
// contain slashes.
func (s *Signed) readCredential(credential string) error {
	parts := strings.Split(credential, "/")
	n := len(parts)
	if n < 5 || len(credential) > maxCredential {
		return incomplete("Credential must have at least 5 slash-delimited elements, e.g. keyid/date/region/service/term.")
	}
	s.AccessKeyID = strings.Join(parts[:n-4], "/")
	s.day, s.Region, s.Service = parts[n-4], parts[n-3], parts[n-2]
	switch {
	case parts[n-1] != terminator:
		return sqswire.InvalidSignature.Withf("Credential should be scoped with a valid terminator: 'aws4_request', not '%.64s'.", parts[n-1])
	case len(s.day) != len("20060102"):
		return sqswire.InvalidSignature.Withf("Credential should be scoped to a valid date, not '%.64s'.", s.day)
	case s.AccessKeyID == "" || s.Region == "" || s.Service == "":
		return incomplete("Credential must have a key id, a region and a service.")
	}
	return nil
}

// readExpires reads how long a presigned request is good; as long as others
// where it does not say.
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

// checkCovered checks that the signature covers what decides about the meaning
// of the request.
func checkCovered(r *http.Request, headers []string) error {
	if len(headers) > maxSignedHeaders {
		return incomplete("The signature covers too many headers.")
	}
	var host, target bool
	for _, name := range headers {
		if name == "" || name != strings.ToLower(name) {
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

func incomplete(format string, args ...any) *sqswire.Error {
	return sqswire.IncompleteSignature.Withf(format, args...)
}
