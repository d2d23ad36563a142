package capability

import (
	"context"
	"encoding/base64"
)

// TokenSigned returns the token of whoever signed a request in the way of AWS, for
// services that decide later what the request is for: they show it to
// [Verifier.Authorize], which remembers it. signed is as in
// [Verifier.AuthorizeSigned]. It refuses what is not signed with the secret that
// belongs to the session token, and looks at nothing else: the token may have
// expired. It blocks only where the revocations do.
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
