package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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

// A Signed is the signature of a request, and what it was made over.
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

	// day is the day of the scope, as it was written.
	day       string
	signature [sha256.Size]byte
	// requests is the canonical request without the hash of its payload, in
	// each of the ways to write its path that clients know.
	requests []string
	// mayLack says that the payload may be left out of the signature.
	mayLack bool
}

// CheckTime checks that the request was signed not more than 15 minutes from
// now, or that the time of a presigned one is not over.
func (s *Signed) CheckTime(now time.Time) error {
	signed, here := s.Time.UTC().Format(timeFormat), now.UTC().Format(timeFormat)
	if earliest := now.Add(skew); s.Time.After(earliest) {
		return sqswire.InvalidSignature.Withf("Signature not yet current: %s is still later than %s (%s + 15 min.)",
			signed, earliest.UTC().Format(timeFormat), here)
	}
	if s.Expires > 0 {
		if !now.Before(s.Time.Add(s.Expires)) {
			return sqswire.RequestExpired.Default()
		}
		return nil
	}
	if latest := now.Add(-skew); s.Time.Before(latest) {
		return sqswire.InvalidSignature.Withf("Signature expired: %s is now earlier than %s (%s - 15 min.)",
			signed, latest.UTC().Format(timeFormat), here)
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
func (s *Signed) VerifiedBy(secret string, bodySHA256 [sha256.Size]byte) bool {
	key := s.signingKey(secret)
	payloads := []string{hex.EncodeToString(bodySHA256[:])}
	if s.mayLack && bodySHA256 == emptySHA256 {
		payloads = append(payloads, unsignedPayload)
	}
	for _, request := range s.requests {
		for _, payload := range payloads {
			expected := mac(key, s.stringToSign(request+payload))
			if hmac.Equal(expected, s.signature[:]) {
				return true
			}
		}
	}
	return false
}

// scope is what the signature is limited to.
func (s *Signed) scope() string { return s.day + "/" + s.Region + "/" + s.Service + "/" + terminator }

func (s *Signed) stringToSign(canonicalRequest string) string {
	hash := sha256.Sum256([]byte(canonicalRequest))
	return algorithm + "\n" + s.Time.UTC().Format(timeFormat) + "\n" + s.scope() + "\n" + hex.EncodeToString(hash[:])
}

// signingKey is the secret, limited to the scope.
func (s *Signed) signingKey(secret string) []byte {
	key := mac([]byte("AWS4"+secret), s.day)
	key = mac(key, s.Region)
	key = mac(key, s.Service)
	return mac(key, terminator)
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
