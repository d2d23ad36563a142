package capability

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// signV4 derives the key of AWS signatures, version 4, and signs with it, as a
// client does, and as a service does to compare.
func signV4(secret Secret, date, region, text string) string {
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

func signedWith(signature string) func(Secret) bool {
	return func(secret Secret) bool {
		return hmac.Equal([]byte(signature), []byte(signV4(secret, "20260102", "eu-central-1", "what is signed")))
	}
}

func TestAWSClientSignsWithToken(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	token := ordersToken(t, ring)
	c := token.Credentials()
	if !regexp.MustCompile(`^MBX[A-Z2-7]{32}$`).MatchString(c.AccessKeyID) || len(c.SecretAccessKey.Reveal()) != 44 {
		t.Errorf("credentials %s with a secret of %d bytes", c.AccessKeyID, len(c.SecretAccessKey.Reveal()))
	}
	signature := signV4(c.SecretAccessKey, "20260102", "eu-central-1", "what is signed")
	grant, err := v.AuthorizeSigned(t.Context(), c.AccessKeyID, c.SessionToken, signedWith(signature), sendToOrders())
	if err != nil || grant.ID() != token.ID() {
		t.Fatalf("refused: %v", err)
	}
	// The caveats are those of the token, and the holder can add some.
	grant, err = v.AuthorizeSigned(t.Context(), c.AccessKeyID, c.SessionToken, signedWith(signature), Request{Operation: OpPurge, Queue: "orders"})
	checkRefusal(t, grant, err, ReasonOperation)
	narrow := mustNarrow(t, token, Operations(OpRecv)).Credentials()
	signature = signV4(narrow.SecretAccessKey, "20260102", "eu-central-1", "what is signed")
	if narrow.AccessKeyID != c.AccessKeyID {
		t.Error("a narrowed token has another access key id")
	}
	grant, err = v.AuthorizeSigned(t.Context(), narrow.AccessKeyID, narrow.SessionToken, signedWith(signature), sendToOrders())
	checkRefusal(t, grant, err, ReasonOperation)
	if _, err = v.AuthorizeSigned(t.Context(), narrow.AccessKeyID, narrow.SessionToken, signedWith(signature), Request{Operation: OpRecv, Queue: "orders"}); err != nil {
		t.Errorf("refused: %v", err)
	}
	// The narrowed secret does not sign for the wider session token.
	grant, err = v.AuthorizeSigned(t.Context(), c.AccessKeyID, c.SessionToken, signedWith(signature), sendToOrders())
	checkRefusal(t, grant, err, ReasonNotGenuine)
	if empty := (Token{}).Credentials(); empty.AccessKeyID != "" || empty.SecretAccessKey.Reveal() != "" {
		t.Error("the zero token has credentials")
	}
}

// TestSessionTokenWithoutSignatureIsRefused: an eavesdropper sees everything
// but the secret.
func TestSessionTokenWithoutSignatureIsRefused(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	token := ordersToken(t, ring)
	c, other := token.Credentials(), ordersToken(t, ring).Credentials()
	stranger := ordersToken(t, NewKeyRing(NewKey())).Credentials()
	never := func(Secret) bool { return false }
	always := func(Secret) bool { return true }
	for name, test := range map[string]struct {
		accessKeyID, sessionToken string
		signed                    func(Secret) bool
		reason                    Reason
	}{
		"not signed":               {c.AccessKeyID, c.SessionToken, never, ReasonNotGenuine},
		"no session token":         {c.AccessKeyID, "", always, ReasonMissing},
		"no access key id":         {"", c.SessionToken, always, ReasonMissing},
		"another access key id":    {other.AccessKeyID, c.SessionToken, always, ReasonMalformed},
		"another service's":        {stranger.AccessKeyID, stranger.SessionToken, always, ReasonNotGenuine},
		"a whole token":            {c.AccessKeyID, token.Reveal(), always, ReasonMalformed},
		"no base64":                {c.AccessKeyID, c.SessionToken + "=", always, ReasonMalformed},
		"a line break":             {c.AccessKeyID, c.SessionToken[:8] + "\n" + c.SessionToken[8:], always, ReasonMalformed},
		"a cut session token":      {c.AccessKeyID, c.SessionToken[:len(c.SessionToken)-4], always, ReasonMalformed},
		"an enormous one":          {c.AccessKeyID, string(make([]byte, 1<<16)), always, ReasonMalformed},
		"signed by another token":  {c.AccessKeyID, c.SessionToken, signedWith(signV4(other.SecretAccessKey, "20260102", "eu-central-1", "what is signed")), ReasonNotGenuine},
		"signed something else":    {c.AccessKeyID, c.SessionToken, signedWith(signV4(c.SecretAccessKey, "20260102", "eu-central-1", "something else")), ReasonNotGenuine},
		"signed with its own text": {c.AccessKeyID, c.SessionToken, signedWith(signV4(NewSecret(c.SessionToken), "20260102", "eu-central-1", "what is signed")), ReasonNotGenuine},
	} {
		grant, err := v.AuthorizeSigned(t.Context(), test.accessKeyID, test.sessionToken, test.signed, sendToOrders())
		t.Log(name)
		checkRefusal(t, grant, err, test.reason)
	}
	if _, err := Parse(c.SessionToken); err == nil {
		t.Error("a session token is a token")
	}
}

func TestSignedRequestsExpireAndAreRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := NewKeyRing(NewKey())
		far := new(remoteRevocations)
		v := NewVerifier(ring, &VerifierOptions{Revocations: far})
		token := ordersToken(t, ring)
		c := token.Credentials()
		ask := func() (*Grant, error) {
			return v.AuthorizeSigned(t.Context(), c.AccessKeyID, c.SessionToken, func(s Secret) bool { return s.Equal(c.SecretAccessKey) }, sendToOrders())
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
		grant, err := ask()
		checkRefusal(t, grant, err, ReasonRevoked)
		time.Sleep(time.Hour)
		grant, err = ask()
		checkRefusal(t, grant, err, ReasonExpired)
	})
}

func TestTokenSignedReturnsTokenOfSecret(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	token := mustNarrow(t, ordersToken(t, ring), Operations(OpSend))
	c := token.Credentials()
	shown, err := v.TokenSigned(t.Context(), c.AccessKeyID, c.SessionToken, func(s Secret) bool { return s.Equal(c.SecretAccessKey) })
	if err != nil || !shown.Equal(token) {
		t.Errorf("got %v, %v", shown, err)
	}
	if _, err := v.Authorize(t.Context(), shown, sendToOrders()); err != nil {
		t.Errorf("the token is refused: %v", err)
	}
	stranger := ordersToken(t, NewKeyRing(NewKey())).Credentials()
	for name, test := range map[string]struct {
		accessKeyID, sessionToken string
		signed                    bool
		reason                    Reason
	}{
		"not signed":        {c.AccessKeyID, c.SessionToken, false, ReasonNotGenuine},
		"no session token":  {c.AccessKeyID, "", true, ReasonMissing},
		"another service's": {stranger.AccessKeyID, stranger.SessionToken, true, ReasonNotGenuine},
		"a mixture":         {stranger.AccessKeyID, c.SessionToken, true, ReasonMalformed},
	} {
		shown, err := v.TokenSigned(t.Context(), test.accessKeyID, test.sessionToken, func(Secret) bool { return test.signed })
		if !shown.IsZero() || ReasonOf(err) != test.reason {
			t.Errorf("%s: got %v, %v", name, shown, err)
		}
	}
}
