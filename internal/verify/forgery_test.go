package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A decider reports whether it accepts a token, in its binary form, for a request.
type decider func(binary []byte, r Request, at time.Time) bool

// A sample is a genuine token with a request that it allows.
type sample struct {
	name    string
	binary  []byte
	request Request
}

// An attempt is a token and a request that must be refused.
type attempt struct {
	kind    string
	binary  []byte
	request Request
	at      time.Time
}

// A forgeryEnv has genuine tokens and the keys that signed them, and makes forgeries.
type forgeryEnv struct {
	ring     *keyring.Ring
	genuine  []sample
	now      time.Time
	outsider keyring.Key // not in the ring
}

func newForgeryEnv(t testing.TB) *forgeryEnv {
	c := &forgeryEnv{ring: keyring.New(fixedKey(t, 1), fixedKey(t, 2)), now: time.Now().Truncate(time.Second), outsider: fixedKey(t, 3)}
	exp := capability.ExpiresAt(c.now.Add(time.Hour))
	add := func(name string, token capability.Token, edit func(*Request)) {
		r := sendToOrders()
		edit(&r)
		c.genuine = append(c.genuine, sample{name, token.RevealBinary(nil), r})
	}
	plain := mustMint(t, c.ring, "", capability.Operations(capability.OpSend), capability.Queues(capability.Queue("orders")), exp)
	add("plain", plain, func(*Request) {})
	add("narrowed", mustNarrow(t,
		mustMint(t, c.ring, "", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(c.now.Add(100*time.Hour))),
		capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck), exp, capability.Queues(capability.Queue("orders"), capability.QueuesUnder("user:4:")), capability.MaxBodyBytes(1000), capability.Audience("eu1"),
		capability.Networks(netip.MustParsePrefix("10.0.0.0/8")), capability.NotBefore(c.now), capability.Tenant("acme")), func(*Request) {})
	add("tenant", mustMint(t, c.ring, "acme", capability.Operations(capability.OpRecv), capability.Queues(capability.QueuesUnder("user:4:")), exp), func(r *Request) { r.Operation, r.Queue = capability.OpRecv, "user:4:inbox" })
	previous, err := mint(fixedKey(t, 2), macaroon.Identifier{Key: 2, Token: macaroon.NewTokenID(c.now)}, []capability.Caveat{capability.Operations(capability.OpSend), capability.Queues(capability.Queue("orders")), exp})
	if err != nil {
		t.Fatal(err)
	}
	add("previous key", previous, func(*Request) {})
	add("one delivery", mustMint(t, c.ring, "", capability.Operations(capability.OpAck), capability.Queues(capability.Queue("orders")), exp, capability.ForReceipt("r1")), func(r *Request) { r.Operation = capability.OpAck })
	add("two of a kind", mustNarrow(t, plain, capability.Operations(capability.OpSend, capability.OpRecv)), func(*Request) {})
	return c
}

// misuses yields genuine tokens with requests that they do not allow.
func (c *forgeryEnv) misuses(t testing.TB) iter.Seq[attempt] {
	return func(yield func(attempt) bool) {
		try := func(kind string, e sample, edit func(*attempt)) bool {
			misuse := attempt{kind, e.binary, e.request, c.now}
			edit(&misuse)
			return yield(misuse)
		}
		for _, e := range c.genuine {
			for _, queue := range []string{
				"", "order", "orders2", "orders-x", "orders/", "orders/..", "orders:eu", "ORDERS", "ordеrs", "*", "orders,bills",
				"user:4", "user:4:", "user:42:inbox", "user:4::inbox", "user:4:..", "user:4:../user:5:inbox", "user:5:inbox", "user:4:.",
			} {
				if !try("queue "+queue, e, func(k *attempt) { k.request.Queue = queue }) {
					return
				}
			}
			for _, o := range []capability.Operation{0, capability.OpPeek, capability.OpPurge, capability.OpDLQ, capability.OpAdmin, capability.OpAdmin + 1} {
				if !try("operation "+o.String(), e, func(k *attempt) { k.request.Operation = o }) {
					return
				}
			}
			for _, late := range []time.Duration{0, time.Second, 90 * time.Second, time.Hour} {
				if !try("time", e, func(k *attempt) { k.at = c.now.Add(time.Hour + late) }) {
					return
				}
			}
		}
		narrowed, tenant, delivery, twice := c.genuine[1], c.genuine[2], c.genuine[4], c.genuine[5]
		ok := try("tenant", narrowed, func(k *attempt) { k.request.Tenant = "other" }) &&
			try("tenant of the token", tenant, func(k *attempt) { k.request.Tenant = "other" }) &&
			try("network", narrowed, func(k *attempt) { k.request.Client = netip.MustParseAddr("11.0.0.1") }) &&
			try("body", narrowed, func(k *attempt) { k.request.Load = Load{1, 1001, 1001} }) &&
			try("unmeasured body", narrowed, func(k *attempt) { k.request.Load = Load{} }) &&
			try("too early", narrowed, func(k *attempt) { k.at = c.now.Add(-3 * time.Minute) }) &&
			try("receipt", delivery, func(k *attempt) { k.request.Receipt = "r2" }) &&
			try("operation that a later caveat names", twice, func(k *attempt) { k.request.Operation = capability.OpRecv })
		if !ok {
			return
		}
		// Genuine tokens with an unknown or malformed caveat.
		for _, caveat := range []string{"account = 1", "mbx:colour=red", "", "mbx:op=", "mbx:exp=soon", "mbx:topic=*,", "mbx:max_body=x", "mbx:net=here", "MBX:op=*"} {
			m := oracleMints(t, fixedKey(t, 1), "", "mbx:op=*", "mbx:topic=*", capability.ExpiresAt(c.now.Add(time.Hour)).String(), caveat)
			if !yield(attempt{"caveat " + caveat, fromOracle(t, m).RevealBinary(nil), sendToOrders(), c.now}) {
				return
			}
		}
	}
}

// parts are the fields of a token, to be changed and assembled again.
type parts struct {
	identifier []byte
	caveats    [][]byte
	signature  []byte
}

func takeApart(binary []byte) parts {
	var m macaroon.Macaroon
	if !m.Parse(binary) {
		panic("not a token")
	}
	p := parts{identifier: slices.Clone(m.Identifier), signature: slices.Clone(m.Signature)}
	for i := range m.Count {
		p.caveats = append(p.caveats, slices.Clone(m.Caveat(i)))
	}
	return p
}

func (p parts) assemble() []byte {
	b := macaroon.AppendSection([]byte{macaroon.Version}, p.identifier)
	for _, caveat := range p.caveats {
		b = macaroon.AppendSection(b, caveat)
	}
	b = append(b, macaroon.FieldEnd, macaroon.FieldSignature, byte(len(p.signature)))
	return append(b, p.signature...)
}

// forgeries yields n tokens that were never minted: first every simple change, then
// random changes.
func (c *forgeryEnv) forgeries(n int) iter.Seq[attempt] {
	return func(yield func(attempt) bool) {
		made := 0
		genuine := make(map[string]bool)
		for _, e := range c.genuine {
			genuine[string(e.binary)] = true
		}
		emit := func(kind string, binary []byte, r Request) bool {
			if genuine[string(macaroon.WithoutLocation(slices.Clone(binary)))] {
				return true // the changes cancelled each other, or made an empty location, which is ignored
			}
			made++
			return made <= n && yield(attempt{kind, binary, r, c.now})
		}
		for _, e := range c.genuine {
			if !c.listed(e, emit) {
				return
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		for made < n {
			e := c.genuine[random.IntN(len(c.genuine))]
			if !emit("random", c.mutate(random, e), e.request) {
				return
			}
		}
	}
}

// listed makes every simple change of one token.
func (c *forgeryEnv) listed(e sample, emit func(kind string, binary []byte, r Request) bool) bool {
	for bit := range 8 * len(e.binary) {
		b := slices.Clone(e.binary)
		b[bit/8] ^= 1 << (bit % 8)
		if !emit("flipped bit", b, e.request) {
			return false
		}
	}
	for i := range e.binary {
		if !emit("cut", e.binary[:i], e.request) || !emit("missing byte", slices.Delete(slices.Clone(e.binary), i, i+1), e.request) ||
			!emit("extra byte", slices.Insert(slices.Clone(e.binary), i, e.binary[i]), e.request) ||
			!emit("missing start", e.binary[i+1:], e.request) {
			return false
		}
	}
	for kind, forged := range c.structural(e) {
		if !emit(kind, forged, e.request) {
			return false
		}
	}
	return true
}

// structural changes the fields of a token.
func (c *forgeryEnv) structural(e sample) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		change := func(kind string, edit func(*parts)) bool {
			p := takeApart(e.binary)
			edit(&p)
			return yield(kind, p.assemble())
		}
		original := takeApart(e.binary)
		for i := range original.caveats {
			ok := change("dropped caveat", func(p *parts) { p.caveats = slices.Delete(p.caveats, i, i+1) }) &&
				change("dropped caveats from here on", func(p *parts) { p.caveats = p.caveats[:i] }) &&
				change("doubled caveat", func(p *parts) { p.caveats = slices.Insert(p.caveats, i, p.caveats[i]) }) &&
				change("emptied caveat", func(p *parts) { p.caveats[i] = nil }) &&
				change("caveat as identifier", func(p *parts) { p.identifier = p.caveats[i] })
			for j := range original.caveats[:i] {
				ok = ok && change("swapped caveats", func(p *parts) { p.caveats[i], p.caveats[j] = p.caveats[j], p.caveats[i] }) &&
					change("joined caveats", func(p *parts) { p.caveats[j] = append(p.caveats[j], p.caveats[i]...) })
			}
			for _, name := range []string{"op", "topic", "tenant", "exp", "nbf", "quota", "max_body", "net", "peer", "aud", "receipt", "slot", "new"} {
				ok = ok && change("retyped caveat", func(p *parts) {
					_, value, _ := macaroon.CutCaveat(string(p.caveats[i]))
					p.caveats[i] = []byte("mbx:" + name + "=" + value)
				})
			}
			for _, value := range []string{"*", "send,recv,ack,purge,admin", "9999-12-31T23:59:59Z", "orders,bills", "user:*", "0.0.0.0/0", "999999999"} {
				ok = ok && change("rewritten caveat", func(p *parts) {
					name, _, _ := macaroon.CutCaveat(string(p.caveats[i]))
					p.caveats[i] = []byte("mbx:" + name + "=" + value)
				})
			}
			if !ok {
				return
			}
		}
		_ = c.identifierChanges(original, change) && c.signatureChanges(original, change) && encodingChanges(e.binary, yield)
	}
}

// identifierChanges changes key, id and tenant of a token.
func (c *forgeryEnv) identifierChanges(original parts, change func(string, func(*parts)) bool) bool {
	id, _ := macaroon.ParseIdentifier(original.identifier)
	for _, key := range []capability.KeyID{0, 1, 2, 3, 99} {
		if !change("other key", func(p *parts) { id := id; id.Key = uint32(key); p.identifier = id.Append(nil) }) {
			return false
		}
	}
	for _, tenant := range []string{"", "acme", "other", "acmeother"} {
		if !change("other tenant", func(p *parts) { id := id; id.Tenant = tenant; p.identifier = id.Append(nil) }) {
			return false
		}
	}
	return change("other id", func(p *parts) { p.identifier[20]++ }) &&
		change("other version", func(p *parts) { p.identifier[0]++ }) &&
		change("no identifier", func(p *parts) { p.identifier = nil })
}

// signatureChanges tries signatures that a forger can compute.
func (c *forgeryEnv) signatureChanges(original parts, change func(string, func(*parts)) bool) bool {
	mac := func(key, message []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(message)
		return h.Sum(nil)
	}
	for _, e := range c.genuine {
		other := takeApart(e.binary)
		ok := change("signature of another token", func(p *parts) { p.signature = other.signature }) &&
			change("caveats of another token", func(p *parts) { p.caveats = other.caveats }) &&
			change("identifier of another token", func(p *parts) { p.identifier = other.identifier })
		if !ok {
			return false
		}
	}
	wide := [][]byte{[]byte("mbx:op=*"), []byte("mbx:topic=*"), []byte(capability.ExpiresAt(c.now.Add(time.Hour)).String())}
	for _, root := range [][]byte{nil, make([]byte, 32), macaroon.RootKey(c.outsider.Reveal(), ""), []byte(macaroon.RootInfo), original.identifier, original.signature} {
		for _, key := range []capability.KeyID{0, 1, 3, 99} {
			ok := change("minted with a guessed key", func(p *parts) {
				id := macaroon.Identifier{Key: uint32(key), Token: macaroon.NewTokenID(c.now)}
				p.identifier = id.Append(nil)
				var s macaroon.Chain
				s.Start(root, p.identifier)
				p.caveats = wide
				for _, caveat := range wide {
					s.Add(caveat)
				}
				p.signature = s[:]
			})
			if !ok {
				return false
			}
		}
	}
	return change("appended without signing", func(p *parts) { p.caveats = append(p.caveats, []byte("mbx:op=*")) }) &&
		change("appended and signed by the identifier", func(p *parts) {
			p.caveats = append(p.caveats, []byte("mbx:op=*"))
			p.signature = mac(p.identifier, []byte("mbx:op=*"))
		}) &&
		change("appended, signed, and the original dropped", func(p *parts) {
			p.signature = mac(p.signature, []byte("mbx:op=*"))
			p.caveats[0] = []byte("mbx:op=*")
		}) &&
		change("empty signature", func(p *parts) { p.signature = make([]byte, 32) }) &&
		change("no signature", func(p *parts) { p.signature = nil }) &&
		change("short signature", func(p *parts) { p.signature = p.signature[:31] }) &&
		change("long signature", func(p *parts) { p.signature = append(p.signature, 0) })
}

// encodingChanges encodes the same token differently.
func encodingChanges(binary []byte, yield func(string, []byte) bool) bool {
	original := takeApart(binary)
	location := append([]byte{macaroon.Version, 1, 4, 'h', 'e', 'r', 'e'}, binary[1:]...)
	first := 1 + 2 + len(original.identifier) // the end of the first section
	identifierLocation := slices.Insert(slices.Clone(binary), first+1, 1, 1, 'x')
	longLength := slices.Replace(slices.Clone(binary), 2, 3, binary[2]|0x80, 0)
	longerLength := slices.Replace(slices.Clone(binary), 2, 3, binary[2]|0x80, 0x80, 0)
	longType := slices.Replace(slices.Clone(binary), 1, 2, 0x82, 0)
	verification := slices.Insert(slices.Clone(binary), len(binary)-36, 4, 1, 'v')
	emptyVerification := slices.Insert(slices.Clone(binary), len(binary)-36, 4, 0)
	for kind, b := range map[string][]byte{
		"location": location, "location of a caveat": identifierLocation, "long length": longLength, "longer length": longerLength,
		"long type": longType, "verification id": verification, "empty verification id": emptyVerification,
		"something behind": append(slices.Clone(binary), 0), "twice": append(slices.Clone(binary), binary...), "version 1": append([]byte{1}, binary[1:]...),
		"as text": []byte(macaroon.Encoding.EncodeToString(binary)), "second signature": append(slices.Clone(binary), binary[len(binary)-34:]...),
	} {
		if !yield(kind, b) {
			return false
		}
	}
	return true
}

// mutate makes several random changes.
func (c *forgeryEnv) mutate(random *rand.Rand, e sample) []byte {
	b := slices.Clone(e.binary)
	for range 1 + random.IntN(4) {
		switch random.IntN(6) {
		case 0, 1:
			if len(b) > 0 {
				b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			}
		case 2:
			if len(b) > 0 {
				b[random.IntN(len(b))] = byte(random.Uint32())
			}
		case 3:
			if len(b) > 2 {
				from := random.IntN(len(b) - 1)
				b = slices.Delete(b, from, from+1+random.IntN(min(8, len(b)-from)))
			}
		case 4:
			other := c.genuine[random.IntN(len(c.genuine))].binary
			from := random.IntN(len(other))
			piece := other[from : from+random.IntN(len(other)-from)]
			b = slices.Insert(b, random.IntN(len(b)+1), piece...)
		case 5:
			other := c.genuine[random.IntN(len(c.genuine))].binary
			cut := random.IntN(min(len(b), len(other)) + 1)
			b = append(slices.Clone(b[:cut]), other[cut:]...)
		}
	}
	return b
}

// An outcome lists the wrong decisions of a decider.
type outcome struct {
	refused  []string // although genuine
	accepted []string // although forged or misused
	tried    int
}

// try calls decide with every genuine token, every misuse and n
// forgeries. It can stop at the first one that is accepted.
func (c *forgeryEnv) try(t testing.TB, decide decider, n int, stop bool) (found outcome) {
	for _, e := range c.genuine {
		if !decide(e.binary, e.request, c.now) {
			found.refused = append(found.refused, e.name)
		}
	}
	count := func(k attempt) {
		found.tried++
		if decide(k.binary, k.request, k.at) {
			found.accepted = append(found.accepted, fmt.Sprintf("%s: %x", k.kind, k.binary))
		}
	}
	for k := range c.misuses(t) {
		if count(k); stop && len(found.accepted) > 0 {
			return found
		}
	}
	for k := range c.forgeries(n) {
		if count(k); stop && len(found.accepted) > 0 {
			return found
		}
		if found.tried%1000 == 0 { // keep the genuine tokens in the cache
			for _, e := range c.genuine {
				decide(e.binary, e.request, c.now)
			}
		}
	}
	return found
}

// verifierDecider uses a Verifier, another one for each time, because the time of a
// verifier never goes back.
func verifierDecider(t testing.TB, c *forgeryEnv) decider {
	verifiers := make(map[time.Time]*Verifier)
	return func(binary []byte, r Request, at time.Time) bool {
		v := verifiers[at]
		if v == nil {
			v = New(c.ring, &Options{Audience: []string{"eu1"}})
			v.clock.offset.Store(0)
			v.clock.turned.Store(int64(time.Until(at)))
			verifiers[at] = v
		}
		known, wall, err := v.verifyBinary(t.Context(), binary, &r)
		if err == nil {
			_, err = v.admit(known, &r, wall)
		}
		token, errParse := capability.ParseBinary(binary)
		if errParse != nil {
			if err == nil {
				t.Errorf("accepted, although it cannot be parsed: %x", binary)
			}
			return err == nil
		}
		if _, errParsed := v.Authorize(t.Context(), token, r); (errParsed == nil) != (err == nil) {
			t.Errorf("parsing changes the verdict from %v to %v", err, errParsed)
		}
		return err == nil
	}
}

func TestNoForgeryIsAccepted(t *testing.T) {
	volume.Repeats(t)
	c := newForgeryEnv(t)
	n := volume.Count(t, volume.Of(50_000), 1_000_000)
	found := c.try(t, verifierDecider(t, c), n, false)
	for _, name := range found.refused {
		t.Errorf("a genuine token was refused: %s", name)
	}
	for _, forgery := range found.accepted[:min(len(found.accepted), 20)] {
		t.Errorf("accepted: %s", forgery)
	}
	t.Logf("%d forgeries and misuses, %d accepted", found.tried, len(found.accepted))
	if found.tried < n {
		t.Errorf("only %d of %d were tried", found.tried, n)
	}
}

// TestFlippedBitsInTokenTextAreRefused does the same to the text form.
func TestFlippedBitsInTokenTextAreRefused(t *testing.T) {
	c := newForgeryEnv(t)
	v := New(c.ring, &Options{Audience: []string{"eu1"}})
	for _, e := range c.genuine {
		text := []byte(macaroon.Encoding.EncodeToString(e.binary))
		for bit := range 8 * len(text) {
			b := bytes.Clone(text)
			b[bit/8] ^= 1 << (bit % 8)
			token, err := capability.Parse(string(b))
			if err != nil {
				continue
			}
			if _, err := v.Authorize(t.Context(), token, e.request); err == nil {
				t.Errorf("%s: bit %d of the text is not significant", e.name, bit)
			}
		}
	}
}
