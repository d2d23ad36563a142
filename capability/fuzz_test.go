package capability

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func FuzzParse(f *testing.F) {
	f.Add(ordersToken(f).Reveal())
	f.Add("AgIV")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ReasonMalformed) || !token.IsZero() {
				t.Fatalf("%v and %v", err, token)
			}
			return
		}
		if token.Reveal() != text {
			t.Fatalf("%q became %q", text, token.Reveal())
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, text := range []string{"orders", "user:4:*", "*", "a%2Cb", "a/b.c:*", "%25*"} {
		f.Add(text, "user:4:inbox")
	}
	separates := func(c byte) bool { return strings.IndexByte(macaroon.Separators, c) >= 0 }
	f.Fuzz(func(t *testing.T, text, queue string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Fatalf("%q became %q", text, p)
		}
		if p.pattern.Kind == macaroon.MatchPrefix && p.pattern.Matches(queue) {
			last := p.pattern.Text[len(p.pattern.Text)-1]
			rest := queue[len(p.pattern.Text):]
			if queue[len(p.pattern.Text)-1] != last || !separates(last) || rest == "" || separates(rest[0]) || separates(rest[len(rest)-1]) {
				t.Fatalf("%q matches %q", text, queue)
			}
		}
	})
}

func FuzzParseTokenID(f *testing.F) {
	f.Add(TokenID(macaroon.NewTokenID(time.Now())).String())
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := ParseTokenID(text); err == nil && id.String() != text {
			t.Fatalf("%q became %s", text, id)
		}
	})
}
