package macaroon

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
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

// CredentialsOf returns a token, in its binary form, as credentials for clients of AWS;
// those of no token are empty.
func CredentialsOf(token []byte) Credentials {
	var m Macaroon
	if !m.Parse(token) {
		return Credentials{}
	}
	id, _ := ParseIdentifier(m.Identifier)
	return Credentials{
		AccessKeyID:     id.AccessKeyID(),
		SecretAccessKey: SecretAccessKey((*Chain)(m.Signature)),
		SessionToken:    Encoding.EncodeToString(m.Body),
	}
}

// AccessKeyID returns the access key id of a token with this identifier.
func (id *Identifier) AccessKeyID() string {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 20), id.Key)
	return accessKeyPrefix + accessKeyEncoding.EncodeToString(append(b, id.Token[:]...))
}

// SecretAccessKey returns the secret of a token with this signature.
func SecretAccessKey(signature *Chain) Secret {
	return NewSecret(base64.StdEncoding.EncodeToString(signature[:]))
}
