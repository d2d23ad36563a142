package capability

import (
	"context"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// Credentials are a token in the form that clients of AWS understand. Such
// clients do not send the secret; they sign requests with it, and send the
// session token along. The session token is the token without its signature,
// and the secret is the signature: a service with the keys computes the secret
// from the session token. So it stores nothing, and caveats and expiry work as
// for any token.
type Credentials struct {
	// AccessKeyID names key and token. It is not secret.
	AccessKeyID string
	// SecretAccessKey signs requests.
	SecretAccessKey Secret
	// SessionToken contains the caveats. It is useless without the secret.
	SessionToken string
}

const accessKeyPrefix = "MBX"

// accessKeyEncoding is base32 without padding: access key ids are letters and
// digits.
var accessKeyEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// Credentials returns the token as credentials for clients of AWS; those of the
// zero Token are empty.
func (t Token) Credentials() Credentials {
	var m macaroon
	if !m.parse(t.binary.bytes()) {
		return Credentials{}
	}
	id, _ := parseIdentifier(m.identifier)
	return Credentials{
		AccessKeyID:     id.accessKeyID(),
		SecretAccessKey: secretAccessKey((*chain)(m.signature)),
		SessionToken:    tokenEncoding.EncodeToString(m.body),
	}
}

func (id *identifier) accessKeyID() string {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 20), uint32(id.key))
	return accessKeyPrefix + accessKeyEncoding.EncodeToString(append(b, id.token[:]...))
}

func secretAccessKey(signature *chain) Secret {
	return NewSecret(base64.StdEncoding.EncodeToString(signature[:]))
}

// AuthorizeSigned is [Verifier.Authorize] for a request that was signed as AWS
// requests are. It computes the secret that belongs to the session token and
// passes it to signed, which reports whether the request was signed with that
// secret and must compare in constant time. A session token without a valid
// signature is refused.
//
// Unlike Authorize it verifies every request, because the secret is not cached.
func (v *Verifier) AuthorizeSigned(ctx context.Context, accessKeyID, sessionToken string, signed func(secret Secret) bool, request Request) (*Grant, error) {
	if accessKeyID == "" || sessionToken == "" {
		return nil, v.refuse(ReasonMissing, &request, nil)
	}
	wall, passed := v.clock.now()
	known, reason, err := v.examineSigned(ctx, accessKeyID, sessionToken, passed, signed)
	switch {
	case err != nil:
		return nil, err
	case reason != "":
		return nil, v.refuse(reason, &request, known)
	}
	return v.admit(known, &request, wall)
}

func (v *Verifier) examineSigned(ctx context.Context, accessKeyID, sessionToken string, passed time.Duration, signed func(Secret) bool) (*verdict, Reason, error) {
	var m macaroon
	if len(sessionToken) > tokenEncoding.EncodedLen(MaxTokenBytes) {
		return nil, ReasonMalformed, nil
	}
	body, err := tokenEncoding.DecodeString(sessionToken)
	if err != nil || tokenEncoding.EncodedLen(len(body)) != len(sessionToken) || !m.parseBody(body) {
		return nil, ReasonMalformed, nil
	}
	// The signature covers the access key id, but not always the session token.
	if id, ok := parseIdentifier(m.identifier); !ok || id.accessKeyID() != accessKeyID {
		return nil, ReasonMalformed, nil
	}
	return v.examineMacaroon(ctx, &m, passed, func(computed *chain) bool { return signed(secretAccessKey(computed)) })
}

// TokenSigned returns the token that belongs to the signature of an AWS request,
// for services that learn later what the request is for: they pass the token to
// [Verifier.Authorize], which caches it. signed is as in
// [Verifier.AuthorizeSigned]. It refuses a request that is not signed with the
// secret that belongs to the session token, and checks nothing else: the token may
// have expired. It blocks only where the revocations do.
func (v *Verifier) TokenSigned(ctx context.Context, accessKeyID, sessionToken string, signed func(secret Secret) bool) (Token, error) {
	var request Request
	if accessKeyID == "" || sessionToken == "" {
		return Token{}, v.refuse(ReasonMissing, &request, nil)
	}
	_, passed := v.clock.now()
	var signature [signatureBytes]byte
	known, reason, err := v.examineSigned(ctx, accessKeyID, sessionToken, passed, func(secret Secret) bool {
		if !signed(secret) {
			return false
		}
		decoded, err := base64.StdEncoding.DecodeString(secret.Reveal())
		return err == nil && copy(signature[:], decoded) == signatureBytes
	})
	switch {
	case err != nil:
		return Token{}, err
	case reason != "":
		return Token{}, v.refuse(reason, &request, known)
	}
	body, err := tokenEncoding.DecodeString(sessionToken)
	if err != nil {
		return Token{}, malformed()
	}
	return adopt(appendSignature(body, &signature))
}
