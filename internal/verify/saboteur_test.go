package verify

import (
	"crypto/hmac"
	"slices"
	"strings"
	"testing"
	"time"

	oracle "gopkg.in/macaroon.v2"

	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A flaw is a possible mistake in a verifier.
type flaw string

const (
	flawless               flaw = "no flaw"
	comparesAPrefix        flaw = "compares the first 8 bytes of the signature"
	ignoresTheLastCaveat   flaw = "does not enforce the last caveat"
	signsOneCaveatLess     flaw = "leaves the last caveat out of the signature"
	acceptsUnknownCaveats  flaw = "accepts unknown caveats"
	acceptsBadCaveats      flaw = "accepts caveats that it cannot read"
	believesTheLastOfAKind flaw = "lets a later caveat of a kind replace an earlier one"
	matchesAnyPrefix       flaw = "matches prefixes across segments"
	foldsCase              flaw = "ignores case in queue names"
	graceOnExpiry          flaw = "gives two minutes of grace on expiry"
	expiresTooLate         flaw = "accepts a token in the second that it expires"
	readsLeniently         flaw = "accepts every encoding of a macaroon"
	ignoresTheTenant       flaw = "ignores the tenant of the token"
	trustsAnUnknownSize    flaw = "treats a body of unknown size as empty"
	fallsBackToAnEmptyKey  flaw = "verifies tokens of unknown keys with an empty key"
)

var flaws = []flaw{
	comparesAPrefix, ignoresTheLastCaveat, signsOneCaveatLess, acceptsUnknownCaveats, acceptsBadCaveats, believesTheLastOfAKind,
	matchesAnyPrefix, foldsCase, graceOnExpiry, expiresTooLate, readsLeniently, ignoresTheTenant, trustsAnUnknownSize, fallsBackToAnEmptyKey,
}

// saboteur returns a verifier with a flaw.
func saboteur(c *forgeryEnv, f flaw) decider {
	return func(binary []byte, r Request, at time.Time) bool {
		p, ok := read(binary, f)
		if !ok {
			return false
		}
		id, ok := macaroon.ParseIdentifier(p.identifier)
		if !ok || !signed(c, f, id, p) {
			return false
		}
		s, ok := understand(p, f, r.Queue)
		if !ok || !s.Complete() {
			return false
		}
		if f != ignoresTheTenant && id.Tenant != "" {
			s.Tenants = append(s.Tenants, id.Tenant)
		}
		if f == trustsAnUnknownSize && !r.Load.known() {
			r.Load = LoadOf(nil)
		}
		switch f {
		case graceOnExpiry:
			s.Expires += 120
		case expiresTooLate:
			s.Expires++
		}
		return s.checkTime(at.UnixNano()) == "" && s.check(&r, []string{"eu1"}) == ""
	}
}

func read(binary []byte, f flaw) (parts, bool) {
	if f == readsLeniently {
		var m oracle.Macaroon
		if m.UnmarshalBinary(binary) != nil {
			return parts{}, false
		}
		p := parts{identifier: m.Id(), signature: m.Signature()}
		for _, caveat := range m.Caveats() {
			p.caveats = append(p.caveats, caveat.Id)
		}
		return p, true
	}
	var m macaroon.Macaroon
	if !m.Parse(binary) {
		return parts{}, false
	}
	return takeApart(binary), true
}

func signed(c *forgeryEnv, f flaw, id macaroon.Identifier, p parts) bool {
	known := c.ring.Keys()
	var root []byte
	if i := slices.IndexFunc(known, func(k keyring.Key) bool { return uint32(k.ID()) == id.Key }); i >= 0 {
		root = macaroon.RootKey(known[i].Reveal(), id.Tenant)
	} else if f != fallsBackToAnEmptyKey {
		return false
	}
	caveats := p.caveats
	if f == signsOneCaveatLess && len(caveats) > 0 {
		caveats = caveats[:len(caveats)-1]
	}
	computed := func(caveats [][]byte) macaroon.Chain {
		var s macaroon.Chain
		s.Start(root, p.identifier)
		for _, caveat := range caveats {
			s.Add(caveat)
		}
		return s
	}
	all, some := computed(p.caveats), computed(caveats)
	if f == comparesAPrefix {
		return len(p.signature) >= 8 && hmac.Equal(all[:8], p.signature[:8])
	}
	return hmac.Equal(all[:], p.signature) || hmac.Equal(some[:], p.signature)
}

func understand(p parts, f flaw, queue string) (scope, bool) {
	var s scope
	caveats := slices.Clone(p.caveats)
	if f == ignoresTheLastCaveat && len(caveats) > 3 { // it must stay complete
		caveats = caveats[:len(caveats)-1]
	}
	for i, caveat := range caveats {
		text := string(caveat)
		name, _, _ := macaroon.CutCaveat(text)
		if f == believesTheLastOfAKind && name == macaroon.CaveatOperation {
			s.HasOperations = false
		}
		reason := s.Add(text)
		switch {
		case reason == "":
		case reason == macaroon.UnknownCaveat && f == acceptsUnknownCaveats:
		case reason == macaroon.MalformedCaveat && f == acceptsBadCaveats:
			// Parsing it may have changed the scope: start again without it.
			return understand(parts{caveats: slices.Delete(caveats, i, i+1)}, f, queue)
		default:
			return s, false
		}
	}
	for i := range s.Queues {
		for j, pattern := range s.Queues[i] {
			switch {
			case f == matchesAnyPrefix && strings.HasPrefix(queue, strings.TrimRight(pattern.Text, macaroon.Separators)):
				s.Queues[i][j] = macaroon.Pattern{Kind: macaroon.MatchExact, Text: queue}
			case f == foldsCase && pattern.Kind == macaroon.MatchExact:
				s.Queues[i] = append(s.Queues[i], macaroon.Pattern{Kind: macaroon.MatchExact, Text: strings.ToUpper(pattern.Text)})
			}
		}
	}
	return s, true
}

// TestEveryFlawedVerifierIsCaught proves that TestNoForgeryIsAccepted can fail: a flaw
// that it does not detect could be in the Verifier too.
func TestEveryFlawedVerifierIsCaught(t *testing.T) {
	c := newForgeryEnv(t)
	const forgeries = 20_000
	if found := c.try(t, saboteur(c, flawless), forgeries, false); len(found.accepted)+len(found.refused) > 0 {
		t.Fatalf("a verifier without a flaw: accepted %q, refused %q", found.accepted, found.refused)
	}
	for _, f := range flaws {
		t.Run(strings.ReplaceAll(string(f), " ", "_"), func(t *testing.T) {
			found := c.try(t, saboteur(c, f), forgeries, true)
			if len(found.accepted) == 0 || len(found.refused) > 0 {
				t.Errorf("a verifier that %s was not caught in %d attempts, or refuses genuine tokens (%q)", f, found.tried, found.refused)
				return
			}
			t.Logf("caught in %d attempts: %.100s", found.tried, found.accepted[0])
		})
	}
}
