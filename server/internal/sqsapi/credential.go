package sqsapi

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// Credentials map access keys with their secrets to tokens. They are for clients that
// cannot send a session token.
type Credentials struct {
	byKey map[string]*session
}

// maxCredentialBytes bounds a line of the credentials file.
const maxCredentialBytes = 16 << 10

// ReadCredentials reads a credentials file: on each line an access key, its secret and a
// token, separated by blanks; empty lines and those that begin with # are ignored. Only
// its owner may be able to read it. Errors name the line and never repeat it.
func ReadCredentials(path string) (*Credentials, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sqs.credentials_file: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("sqs.credentials_file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("sqs.credentials_file: other users can read %s; run chmod 600 %s", path, path)
	}
	c := &Credentials{byKey: make(map[string]*session)}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxCredentialBytes)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: line %d: want an access key, a secret and a token", path, number)
		}
		token, err := capability.Parse(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: the third field is not a token", path, number)
		}
		if _, twice := c.byKey[fields[0]]; twice {
			return nil, fmt.Errorf("%s: line %d: the access key is on an earlier line too", path, number)
		}
		c.byKey[fields[0]] = &session{secret: sigv4.NewSecret(macaroon.NewSecret(fields[1])), token: token}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("sqs.credentials_file: %w", err)
	}
	return c, nil
}

// find returns the client with an access key, nil if there is none.
func (c *Credentials) find(accessKeyID string) *session {
	if c == nil {
		return nil
	}
	return c.byKey[accessKeyID]
}

// claimOf reads the signature of a request, and refuses it if it cannot be valid with any
// body. It does not verify it.
func (s *Service) claimOf(r *http.Request, now time.Time) (*sigv4.Signed, error) {
	signed, err := sigv4.Parse(r)
	if err == nil {
		err = signed.CheckTime(now)
	}
	if err == nil {
		err = signed.CheckScope("sqs")
	}
	if err == nil && signed.SessionToken == "" {
		if s.credentials.Load().find(signed.AccessKeyID) == nil {
			err = sqswire.UnrecognizedClient.Default()
		}
	}
	if err != nil {
		s.broker.Metrics().Refused("signature")
		return nil, err
	}
	return signed, nil
}

// authenticate returns the session whose secret signed a request.
func (s *Service) authenticate(ctx context.Context, signed *sigv4.Signed, call *sqswire.Call, origin broker.Origin) (*session, error) {
	hash := call.BodySHA256()
	if known := s.credentials.Load().find(signed.AccessKeyID); known != nil {
		if !signed.VerifiedBy(known.secret, hash) {
			s.broker.Metrics().Refused("signature")
			return nil, sqswire.InvalidSignature.Default()
		}
		return known, nil
	}
	key := sessionKey{signed.AccessKeyID, signed.SessionToken}
	if known := s.sessions.get(key); known != nil && signed.VerifiedBy(known.secret, hash) {
		return known, nil
	}
	verified, asked := false, false
	var used *sigv4.Secret
	token, err := s.broker.Signed(ctx, signed.AccessKeyID, signed.SessionToken, func(secret macaroon.Secret) bool {
		asked, used = true, sigv4.NewSecret(secret)
		verified = signed.VerifiedBy(used, hash)
		return verified
	}, origin)
	if err != nil {
		if asked && !verified && capability.ReasonOf(err) == capability.ReasonNotGenuine {
			// The token is genuine, but the signature was not made with its secret.
			err = sqswire.InvalidSignature.Default()
		}
		return nil, err
	}
	known := &session{token: token, secret: used}
	s.sessions.put(key, known)
	return known, nil
}
