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
// and the secret is the signature: with the right keys the service can compute
// the one from the other, so it has to store nothing, and a token works narrowed
// and expires as always.
type Credentials struct {
	// AccessKeyID names key and token. It is not secret.
	AccessKeyID string
	// SecretAccessKey is what requests are signed with.
	SecretAccessKey Secret
	// SessionToken says what the token allows. Without the secret it is good
	// for nothing.
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

// AuthorizeSigned is [Verifier.Authorize] for a request that was signed in the
// way of AWS. It computes the secret that belongs to the session token and calls
// signed with it, which reports whether the request was signed with that secret;
// compare in constant time there. Whoever cannot sign has no token, whatever
// session token they show.
//
// Unlike Authorize it verifies each time, because the secret is not kept.
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
	// The access key id stands in what was signed; the session token may not.
	if id, ok := parseIdentifier(m.identifier); !ok || id.accessKeyID() != accessKeyID {
		return nil, ReasonMalformed, nil
	}
	return v.judge(ctx, &m, passed, func(computed *chain) bool { return signed(secretAccessKey(computed)) })
}
