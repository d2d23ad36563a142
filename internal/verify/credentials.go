package verify

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func (v *Verifier) examineSigned(ctx context.Context, accessKeyID, sessionToken string, passed time.Duration, signed func(macaroon.Secret) bool) (*verdict, capability.Reason, error) {
	var m macaroon.Macaroon
	if len(sessionToken) > macaroon.Encoding.EncodedLen(macaroon.MaxBytes) {
		return nil, capability.ReasonMalformed, nil
	}
	body, err := macaroon.Encoding.DecodeString(sessionToken)
	if err != nil || macaroon.Encoding.EncodedLen(len(body)) != len(sessionToken) || !m.ParseBody(body) {
		return nil, capability.ReasonMalformed, nil
	}
	// The signature covers the access key id, but not always the session token.
	if id, ok := macaroon.ParseIdentifier(m.Identifier); !ok || id.AccessKeyID() != accessKeyID {
		return nil, capability.ReasonMalformed, nil
	}
	return v.examineMacaroon(ctx, &m, passed, func(computed *macaroon.Chain) bool { return signed(macaroon.SecretAccessKey(computed)) })
}

// TokenSigned returns the token that belongs to the signature of an AWS request,
// for [Verifier.Authorize]. It computes the secret that belongs to the session token and
// passes it to signed, which reports whether the request was signed with that secret and
// must compare in constant time. It refuses a request that is not signed with the
// secret that belongs to the session token, and checks nothing else: the token may
// have expired. It blocks only where the revocations do.
func (v *Verifier) TokenSigned(ctx context.Context, accessKeyID, sessionToken string, signed func(secret macaroon.Secret) bool) (capability.Token, error) {
	var request Request
	if accessKeyID == "" || sessionToken == "" {
		return capability.Token{}, v.refuse(capability.ReasonMissing, &request, nil)
	}
	_, passed := v.clock.now()
	var signature [macaroon.SignatureBytes]byte
	known, reason, err := v.examineSigned(ctx, accessKeyID, sessionToken, passed, func(secret macaroon.Secret) bool {
		if !signed(secret) {
			return false
		}
		decoded, err := base64.StdEncoding.DecodeString(secret.Reveal())
		return err == nil && copy(signature[:], decoded) == macaroon.SignatureBytes
	})
	switch {
	case err != nil:
		return capability.Token{}, err
	case reason != "":
		return capability.Token{}, v.refuse(reason, &request, known)
	}
	body, err := macaroon.Encoding.DecodeString(sessionToken)
	if err != nil {
		return capability.Token{}, v.refuse(capability.ReasonMalformed, &request, nil)
	}
	return capability.ParseBinary(macaroon.AppendSignature(body, &signature))
}
