package verify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// signV4 derives the key of AWS signatures, version 4, and signs with it, as a
// client does, and as a service does to compare.
func signV4(secret macaroon.Secret, date, region, text string) string {
	mac := func(key []byte, message string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(message))
		return h.Sum(nil)
	}
	key := []byte("AWS4" + secret.Reveal())
	for _, part := range []string{date, region, "sqs", "aws4_request", text} {
		key = mac(key, part)
	}
	return hex.EncodeToString(key)
}

func signedWith(signature string) func(macaroon.Secret) bool {
	return func(secret macaroon.Secret) bool {
		return hmac.Equal([]byte(signature), []byte(signV4(secret, "20260102", "eu-central-1", "what is signed")))
	}
}

// authorizeSigned authorizes a request that was signed as AWS requests are.
func authorizeSigned(v *Verifier, ctx context.Context, accessKeyID, sessionToken string, signed func(macaroon.Secret) bool, r Request) (*Grant, error) {
	token, err := v.TokenSigned(ctx, accessKeyID, sessionToken, signed)
	if err != nil {
		return nil, err
	}
	return v.Authorize(ctx, token, r)
}

func TestAWSClientSignsWithToken(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	token := ordersToken(t, ring)
	c := macaroon.CredentialsOf(token.RevealBinary(nil))
	if !regexp.MustCompile(`^MBX[A-Z2-7]{32}$`).MatchString(c.AccessKeyID) || len(c.SecretAccessKey.Reveal()) != 44 {
		t.Errorf("credentials %s with a secret of %d bytes", c.AccessKeyID, len(c.SecretAccessKey.Reveal()))
	}
	signature := signV4(c.SecretAccessKey, "20260102", "eu-central-1", "what is signed")
	grant, err := authorizeSigned(v, t.Context(), c.AccessKeyID, c.SessionToken, signedWith(signature), sendToOrders())
	if err != nil || grant.ID() != token.ID() {
		t.Fatalf("refused: %v", err)
	}
	// The caveats are those of the token, and the holder can add some.
	grant, err = authorizeSigned(v, t.Context(), c.AccessKeyID, c.SessionToken, signedWith(signature), Request{Operation: capability.OpPurge, Queue: "orders"})
	checkRefusal(t, grant, err, capability.ReasonOperation)
	narrow := macaroon.CredentialsOf(mustNarrow(t, token, capability.Operations(capability.OpRecv)).RevealBinary(nil))
	signature = signV4(narrow.SecretAccessKey, "20260102", "eu-central-1", "what is signed")
	if narrow.AccessKeyID != c.AccessKeyID {
		t.Error("a narrowed token has another access key id")
	}
	grant, err = authorizeSigned(v, t.Context(), narrow.AccessKeyID, narrow.SessionToken, signedWith(signature), sendToOrders())
	checkRefusal(t, grant, err, capability.ReasonOperation)
	if _, err = authorizeSigned(v, t.Context(), narrow.AccessKeyID, narrow.SessionToken, signedWith(signature), Request{Operation: capability.OpRecv, Queue: "orders"}); err != nil {
		t.Errorf("refused: %v", err)
	}
	// The narrowed secret does not sign for the wider session token.
	grant, err = authorizeSigned(v, t.Context(), c.AccessKeyID, c.SessionToken, signedWith(signature), sendToOrders())
	checkRefusal(t, grant, err, capability.ReasonNotGenuine)
	if empty := macaroon.CredentialsOf((capability.Token{}).RevealBinary(nil)); empty.AccessKeyID != "" || empty.SecretAccessKey.Reveal() != "" {
		t.Error("the zero token has credentials")
	}
}

// TestSessionTokenWithoutSignatureIsRefused: an eavesdropper sees everything
// but the secret.
func TestSessionTokenWithoutSignatureIsRefused(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	token := ordersToken(t, ring)
	c, other := macaroon.CredentialsOf(token.RevealBinary(nil)), macaroon.CredentialsOf(ordersToken(t, ring).RevealBinary(nil))
	stranger := macaroon.CredentialsOf(ordersToken(t, keyring.New(keyring.NewKey())).RevealBinary(nil))
	never := func(macaroon.Secret) bool { return false }
	always := func(macaroon.Secret) bool { return true }
	for name, test := range map[string]struct {
		accessKeyID, sessionToken string
		signed                    func(macaroon.Secret) bool
		reason                    capability.Reason
	}{
		"not signed":               {c.AccessKeyID, c.SessionToken, never, capability.ReasonNotGenuine},
		"no session token":         {c.AccessKeyID, "", always, capability.ReasonMissing},
		"no access key id":         {"", c.SessionToken, always, capability.ReasonMissing},
		"another access key id":    {other.AccessKeyID, c.SessionToken, always, capability.ReasonMalformed},
		"another service's":        {stranger.AccessKeyID, stranger.SessionToken, always, capability.ReasonNotGenuine},
		"a whole token":            {c.AccessKeyID, token.Reveal(), always, capability.ReasonMalformed},
		"no base64":                {c.AccessKeyID, c.SessionToken + "=", always, capability.ReasonMalformed},
		"a line break":             {c.AccessKeyID, c.SessionToken[:8] + "\n" + c.SessionToken[8:], always, capability.ReasonMalformed},
		"a cut session token":      {c.AccessKeyID, c.SessionToken[:len(c.SessionToken)-4], always, capability.ReasonMalformed},
		"an enormous one":          {c.AccessKeyID, string(make([]byte, 1<<16)), always, capability.ReasonMalformed},
		"signed by another token":  {c.AccessKeyID, c.SessionToken, signedWith(signV4(other.SecretAccessKey, "20260102", "eu-central-1", "what is signed")), capability.ReasonNotGenuine},
		"signed something else":    {c.AccessKeyID, c.SessionToken, signedWith(signV4(c.SecretAccessKey, "20260102", "eu-central-1", "something else")), capability.ReasonNotGenuine},
		"signed with its own text": {c.AccessKeyID, c.SessionToken, signedWith(signV4(macaroon.NewSecret(c.SessionToken), "20260102", "eu-central-1", "what is signed")), capability.ReasonNotGenuine},
	} {
		grant, err := authorizeSigned(v, t.Context(), test.accessKeyID, test.sessionToken, test.signed, sendToOrders())
		t.Log(name)
		checkRefusal(t, grant, err, test.reason)
	}
	if _, err := capability.Parse(c.SessionToken); err == nil {
		t.Error("a session token is a token")
	}
}

func TestSignedRequestsExpireAndAreRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		far := new(remoteRevocations)
		v := New(ring, &Options{Revocations: far})
		token := ordersToken(t, ring)
		c := macaroon.CredentialsOf(token.RevealBinary(nil))
		ask := func() (*Grant, error) {
			return authorizeSigned(v, t.Context(), c.AccessKeyID, c.SessionToken, func(s macaroon.Secret) bool { return s.Equal(c.SecretAccessKey) }, sendToOrders())
		}
		if _, err := ask(); err != nil {
			t.Fatal(err)
		}
		broken := error(driver.ErrUnavailable)
		far.fail.Store(&broken)
		_, err := ask()
		wantCode(t, "unreadable revocations", err, driver.ErrUnavailable)
		far.fail.Store(nil)
		if err := far.near.Revoke(t.Context(), revocation{Token: token.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultCacheTTL) // the verdict on the token is cached for so long
		grant, err := ask()
		checkRefusal(t, grant, err, capability.ReasonRevoked)
		time.Sleep(time.Hour)
		grant, err = ask()
		checkRefusal(t, grant, err, capability.ReasonExpired)
	})
}

func TestTokenSignedReturnsTokenOfSecret(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	token := mustNarrow(t, ordersToken(t, ring), capability.Operations(capability.OpSend))
	c := macaroon.CredentialsOf(token.RevealBinary(nil))
	shown, err := v.TokenSigned(t.Context(), c.AccessKeyID, c.SessionToken, func(s macaroon.Secret) bool { return s.Equal(c.SecretAccessKey) })
	if err != nil || !shown.Equal(token) {
		t.Errorf("got %v, %v", shown, err)
	}
	if _, err := v.Authorize(t.Context(), shown, sendToOrders()); err != nil {
		t.Errorf("the token is refused: %v", err)
	}
	stranger := macaroon.CredentialsOf(ordersToken(t, keyring.New(keyring.NewKey())).RevealBinary(nil))
	for name, test := range map[string]struct {
		accessKeyID, sessionToken string
		signed                    bool
		reason                    capability.Reason
	}{
		"not signed":        {c.AccessKeyID, c.SessionToken, false, capability.ReasonNotGenuine},
		"no session token":  {c.AccessKeyID, "", true, capability.ReasonMissing},
		"another service's": {stranger.AccessKeyID, stranger.SessionToken, true, capability.ReasonNotGenuine},
		"a mixture":         {stranger.AccessKeyID, c.SessionToken, true, capability.ReasonMalformed},
	} {
		shown, err := v.TokenSigned(t.Context(), test.accessKeyID, test.sessionToken, func(macaroon.Secret) bool { return test.signed })
		if !shown.IsZero() || capability.ReasonOf(err) != test.reason {
			t.Errorf("%s: got %v, %v", name, shown, err)
		}
	}
}
