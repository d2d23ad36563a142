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
	// maxExpires is how long a presigned URL may be valid.
	maxExpires = 7 * 24 * time.Hour
)

// A Signed is the signature of a request, and what it covers. Verifying it reads the
// request again, which must not have changed by then.
type Signed struct {
	// AccessKeyID identifies the secret that the request is signed with.
	AccessKeyID string
	// SessionToken is empty for credentials that need none.
	SessionToken string
	// Region and Service are the scope of the signature.
	Region  string
	Service string
	// Time is when the request was signed.
	Time time.Time
	// Expires is how long a presigned request is valid, from Time on, and 0
	// for others.
	Expires time.Duration

	// day is the day of the scope, and date is Time, as they were written.
	day, date string
	signature [sha256.Size]byte
	request   *http.Request
	query     []pair
	// headers are the names of the covered headers, separated by semicolons.
	headers string
	// mayLack: the signature may leave out the payload.
	mayLack bool
}

// CheckTime checks that the request was signed within 15 minutes of now, or that a
// presigned one has not expired.
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
	at, _ := verifiers.Get().(*verifier)
	defer verifiers.Put(at)
	if at.verify(s, key, bodySHA256[:], false) {
		return true
	}
	return s.mayLack && bodySHA256 == emptySHA256 && at.verify(s, key, nil, false)
}

// A verifier has the buffers for verifying one signature.
type verifier struct {
	text []byte
	hash [sha256.Size]byte
	mac  [sha256.Size]byte
}

// verifiers pools them.
var verifiers = sync.Pool{New: func() any { return &verifier{text: make([]byte, 0, typicalBytes)} }}

// typicalBytes is the length of most canonical requests with a session token.
const typicalBytes = 2 << 10

// verify compares the signature with the one that key makes, with the path resolved or
// not. Without the hash of a body it assumes that the payload was left out.
func (d *verifier) verify(s *Signed, key *scopedKey, body []byte, resolved bool) bool {
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
