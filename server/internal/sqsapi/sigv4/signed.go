package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	algorithm       = "AWS4-HMAC-SHA256"
	terminator      = "aws4_request"
	unsignedPayload = "UNSIGNED-PAYLOAD"
	timeFormat      = "20060102T150405Z"

	// skew is how far the clocks of client and service may be apart.
	skew = 15 * time.Minute
	// maxExpires is how long a presigned URL may be good.
	maxExpires = 7 * 24 * time.Hour
)

// A Signed is the signature of a request, and what it was made over. It looks at
// the request again when it is verified, which must not have changed by then.
type Signed struct {
	// AccessKeyID says whose secret the request is signed with.
	AccessKeyID string
	// SessionToken is empty for credentials that need none.
	SessionToken string
	// Region and Service are the scope that the client gave its signature.
	Region  string
	Service string
	// Time is when the request was signed.
	Time time.Time
	// Expires is how long a presigned request is good, from Time on, and 0
	// for others.
	Expires time.Duration

	// day is the day of the scope, and date is Time, as they were written.
	day, date string
	signature [sha256.Size]byte
	request   *http.Request
	query     []pair
	// headers are the names of those that are covered, with semicolons between.
	headers string
	// mayLack says that the payload may be left out of the signature.
	mayLack bool
}

// CheckTime checks that the request was signed not more than 15 minutes from
// now, or that the time of a presigned one is not over.
func (s *Signed) CheckTime(now time.Time) error {
	format := func(t time.Time) string { return t.UTC().Format(timeFormat) }
	if earliest := now.Add(skew); s.Time.After(earliest) {
		return sqswire.InvalidSignature.Withf("Signature not yet current: %s is still later than %s (%s + 15 min.)",
			format(s.Time), format(earliest), format(now))
	}
	if s.Expires > 0 {
		if !now.Before(s.Time.Add(s.Expires)) {
			return sqswire.RequestExpired.Default()
		}
		return nil
	}
	if latest := now.Add(-skew); s.Time.Before(latest) {
		return sqswire.InvalidSignature.Withf("Signature expired: %s is now earlier than %s (%s - 15 min.)",
			format(s.Time), format(latest), format(now))
	}
	return nil
}

// CheckScope checks that the signature is one for the service.
func (s *Signed) CheckScope(service string) error {
	if s.Service != service {
		return sqswire.InvalidSignature.Withf("Credential should be scoped to correct service: '%s'.", service)
	}
	return nil
}

// emptySHA256 is the hash of no payload.
var emptySHA256 = sha256.Sum256(nil)

// VerifiedBy reports whether the request, with a body of the given hash, was
// signed with the secret. It compares in constant time.
func (s *Signed) VerifiedBy(secret *Secret, bodySHA256 [sha256.Size]byte) bool {
	key := secret.key(s)
	at, _ := desks.Get().(*desk)
	defer desks.Put(at)
	if at.verify(s, key, bodySHA256[:], false) {
		return true
	}
	return s.mayLack && bodySHA256 == emptySHA256 && at.verify(s, key, nil, false)
}

// A desk is memory to write down what was signed.
type desk struct {
	text []byte
	hash [sha256.Size]byte
	mac  [sha256.Size]byte
}

// desks keeps them for reuse.
var desks = sync.Pool{New: func() any { return &desk{text: make([]byte, 0, usualRequest)} }}

// usualRequest is how long most requests are, written down, with the token of a
// session.
const usualRequest = 2 << 10

// verify compares the signature with the one that key makes, for each of the ways
// to write the path that clients know. Without the hash of a body it is that of a
// payload that was left out.
func (d *desk) verify(s *Signed, key *scopedKey, body []byte, resolved bool) bool {
	path := s.request.URL.EscapedPath()
	if resolved {
		path = resolve(path)
	}
	d.text = s.appendCanonical(d.text[:0], path)
	if body == nil {
		d.text = append(d.text, unsignedPayload...)
	} else {
		d.text = hex.AppendEncode(d.text, body)
	}
	d.hash = sha256.Sum256(d.text)
	d.text = s.appendStringToSign(d.text[:0], &d.hash)
	key.sum(&d.mac, d.text)
	if hmac.Equal(d.mac[:], s.signature[:]) {
		return true
	}
	return !resolved && mayResolve(path) && d.verify(s, key, body, true)
}

func (s *Signed) appendStringToSign(b []byte, hash *[sha256.Size]byte) []byte {
	b = append(append(append(b, algorithm+"\n"...), s.date...), '\n')
	b = append(append(b, s.day...), '/')
	b = append(append(b, s.Region...), '/')
	b = append(append(b, s.Service...), "/"+terminator+"\n"...)
	return hex.AppendEncode(b, hash[:])
}
