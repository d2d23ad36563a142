package capability

import "testing"

func TestWhoSignsShowsTheTokenThatBelongsToTheSecret(t *testing.T) {
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
