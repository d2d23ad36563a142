package capability

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

func TestCaveatsAreWrittenAsDocumented(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 1, time.FixedZone("east", 3600))
	for want, c := range map[string]Caveat{
		"mbx:op=send,recv": Operations(OpSend, OpRecv),
		"mbx:op=ack,nack,extend,stats,peek,purge,dlq,admin": Operations(OpAck, OpNack, OpExtend, OpStats, OpPeek, OpPurge, OpDLQ, OpAdmin),
		"mbx:op=*":                               AllOperations(),
		"mbx:topic=orders,user:42:*,a/b/*,a.*,*": Queues(Queue("orders"), QueuesUnder("user:42:"), QueuesUnder("a/b/"), QueuesUnder("a."), AnyQueue()),
		"mbx:topic=100%25 %2A%2C,a:%2A:*":        Queues(Queue("100% *,"), QueuesUnder("a:*:")),
		"mbx:tenant=acme":                        Tenant("acme"),
		"mbx:exp=2026-01-02T02:04:05Z":           ExpiresAt(at), // earlier
		"mbx:nbf=2026-01-02T02:04:06Z":           NotBefore(at), // later
		"mbx:nbf=2026-01-02T02:04:05Z":           NotBefore(at.Add(-1)),
		"mbx:quota=msgs/s:100":                   MessagesPerSecond(100),
		"mbx:quota=bytes/s:65536":                BytesPerSecond(65536),
		"mbx:max_body=0":                         MaxBodyBytes(0),
		"mbx:net=10.0.0.0/8,::1/128":             Networks(netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("::1/128")),
		"mbx:peer=spiffe://a.b/c,spiffe://d":     Peers("spiffe://a.b/c", "spiffe://d"),
		"mbx:aud=eu1,eu-2":                       Audience("eu1", "eu-2"),
		"mbx:receipt=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad": ForReceipt("abc"),
	} {
		if c.String() != want || c.Check() != nil {
			t.Errorf("%s (%v), want %s", c, c.Check(), want)
		}
		if parsed, err := ParseCaveat(want); err != nil || parsed.String() != want {
			t.Errorf("ParseCaveat(%s) = %v, %v", want, parsed, err)
		}
	}
}

func TestBadCaveatsAreRefused(t *testing.T) {
	for _, c := range []Caveat{
		{},
		Operations(), Operations(0), Operations(OpSend, 200), Queues(), Queues(Pattern{}), Queues(Queue("")), Queues(Queue("a{")),
		Queues(QueuesUnder("user")), Queues(QueuesUnder(":")), Queues(QueuesUnder("")), Queues(QueuesUnder("a::")), Queues(QueuesUnder("a/../")),
		Queues(QueuesUnder("/a/")), Queues(Queue(strings.Repeat("a", 256))), Tenant(""), Tenant("a b"), MessagesPerSecond(0), BytesPerSecond(-1),
		MaxBodyBytes(-1), Networks(), Networks(netip.Prefix{}), Networks(netip.MustParsePrefix("::ffff:10.0.0.0/104")),
		Peers(), Peers("worker"), Peers("spiffe://"), Peers("spiffe://a/../b"), Peers("spiffe://a,b"), Audience(), Audience("a b"), Audience(""),
		ForReceipt(""), ExpiresAt(time.Time{}), ExpiresAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), NotBefore(time.Time{}),
	} {
		wantCode(t, "caveat "+c.String(), c.Check(), driver.ErrInvalid)
	}
	for _, text := range []string{
		"", "mbx:", "mbx:op", "mbx:op=", "op=send", "MBX:op=send", " mbx:op=send", "mbx:op=send ", "mbx:op=send,", "mbx:op=,send", "mbx:op=SEND",
		"mbx:op=send,*", "mbx:Op=send", "mbx:op =send", "mbx:topic=", "mbx:topic=a,", "mbx:topic=a*", "mbx:topic=a:**", "mbx:topic=*a", "mbx:topic=a*b",
		"mbx:topic=%41", "mbx:topic=%2c", "mbx:topic=%2", "mbx:topic=%", "mbx:topic=a\x00", "mbx:topic=\xff", "mbx:topic=:*", "mbx:topic=a::*",
		"mbx:exp=0", "mbx:exp=2026-01-02", "mbx:exp=2026-01-02T03:04:05+00:00", "mbx:exp=2026-01-02T03:04:05.0Z", "mbx:exp=2026-01-02t03:04:05z",
		"mbx:exp=2026-02-30T03:04:05Z", "mbx:exp=1969-12-31T23:59:59Z", "mbx:exp=+2026-01-02T03:04:05Z", "mbx:nbf=", "mbx:nbf=never",
		"mbx:quota=100", "mbx:quota=msgs/s", "mbx:quota=msgs/s:", "mbx:quota=msgs/s:0", "mbx:quota=msgs/s:-1", "mbx:quota=msgs/s:+1", "mbx:quota=msgs/s:01",
		"mbx:quota=msgs/s:1e3", "mbx:quota=inflight:5", "mbx:quota=msgs/s:99999999999999999999", "mbx:max_body=", "mbx:max_body=1k", "mbx:max_body=-0",
		"mbx:net=10.0.0.1", "mbx:net=10.0.0.1/8", "mbx:net=10.0.0.0/33", "mbx:net=010.0.0.0/8", "mbx:net=::ffff:10.0.0.0/104", "mbx:net=fe80::%eth0/64",
		"mbx:peer=https://a", "mbx:peer=spiffe://a//b", "mbx:peer=spiffe://a/", "mbx:aud=a,,b", "mbx:receipt=", "mbx:receipt=" + strings.Repeat("0", 63),
		"mbx:receipt=" + strings.Repeat("A", 64), "mbx:receipt=" + strings.Repeat("g", 64), "mbx:tenant=", "mbx:tenant=a,b", "mbx:new=1", "account = 1",
	} {
		if c, err := ParseCaveat(text); !errors.Is(err, driver.ErrInvalid) || c.String() != "" {
			t.Errorf("ParseCaveat(%q): %v, want ErrInvalid", text, err)
		}
		var s scope
		if s.add(text) == "" {
			t.Errorf("%q is met", text)
		}
	}
}

func TestOperationsHaveNames(t *testing.T) {
	for o := OpSend; o <= OpAudit; o++ {
		if back, err := ParseOperation(o.String()); err != nil || back != o {
			t.Errorf("%v became %v, %v", o, back, err)
		}
	}
	for _, word := range []string{"", "no operation", "Send", "*"} {
		if o, err := ParseOperation(word); !errors.Is(err, driver.ErrInvalid) || o != 0 {
			t.Errorf("ParseOperation(%q) = %v, %v", word, o, err)
		}
	}
	for _, o := range []Operation{0, OpAudit + 1, 255} {
		if allOperations.has(o) || o.String() != "no operation" {
			t.Errorf("operation %d exists", o)
		}
	}
}

// TestQueuePrefixesEndAtSegments tries names that a careless comparison would accept.
func TestQueuePrefixesEndAtSegments(t *testing.T) {
	for pattern, names := range map[string]struct{ yes, no []string }{
		"orders": {
			yes: []string{"orders"},
			no:  []string{"", "order", "orders2", "orders-x", "orders ", " orders", "Orders", "ORDERS", "orders:eu", "ordеrs" /* a Cyrillic e */, "orders\u200b", "o\u0308rders"},
		},
		"user:4:*": {
			yes: []string{"user:4:inbox", "user:4:inbox:old", "user:4:a/b.c", "user:4:*", "user:4: "},
			no:  []string{"user:4", "user:4:", "user:42", "user:42:inbox", "user:4::", "user:4::inbox", "user:4:.", "user:4:..", "user:4:../5", "user:4:a/../../user:5", "user:4:/x", "user:4:x:", "user:4:x//y", "user:4:x/", "USER:4:inbox", "user.4.inbox", "user:4/inbox", "x:user:4:inbox", ""},
		},
		"a/b/*":       {yes: []string{"a/b/c"}, no: []string{"a/b", "a/bc", "a/b/./c", "a/b/..", "a//b/c", "a/b\\c"}},
		"a.*":         {yes: []string{"a.b", "a.b.c"}, no: []string{"a", "a..b", "ab", "a."}},
		"*":           {yes: []string{"", "anything", "a/../b"}},
		"50%25%2C%2A": {yes: []string{"50%,*"}, no: []string{"50%25%2C%2A", "50%", "50%,x"}},
		"é":           {yes: []string{"\u00e9"}, no: []string{"e\u0301"}},
	} {
		p, err := ParsePattern(pattern)
		if err != nil || p.String() != pattern {
			t.Fatalf("ParsePattern(%q) = %v, %v", pattern, p, err)
		}
		for _, name := range names.yes {
			if !p.matches(name) {
				t.Errorf("%q does not match %q", pattern, name)
			}
		}
		for _, name := range names.no {
			if p.matches(name) {
				t.Errorf("%q matches %q", pattern, name)
			}
		}
	}
	if (Pattern{}).matches("") || (Pattern{}).matches("a") || (Pattern{}).String() != "" {
		t.Error("the zero pattern matches something")
	}
	if _, err := ParsePattern("a*"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a prefix without separator: %v", err)
	}
}

// TestPatternsRoundTripThroughText checks that every valid name of a queue can be
// written into a token and read back.
func TestPatternsRoundTripThroughText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-c%,*:/. é]{1,12}`).Draw(t, "name")
		p := Queue(name)
		if rapid.Bool().Draw(t, "prefix") {
			p = QueuesUnder(name)
		}
		back, err := ParsePattern(p.String())
		if (err == nil) != p.valid() {
			t.Fatalf("%+v is valid: %t, and its text %q reads with %v", p, p.valid(), p.String(), err)
		}
		if err == nil && back != p {
			t.Fatalf("%+v became %+v", p, back)
		}
		if p.valid() && p.kind == patternPrefix && (p.matches(name) || !p.matches(name+"x")) {
			t.Fatalf("%q as a prefix", name)
		}
	})
}

// TestEachCaveatHolds adds each caveat to a token and checks a request
// that meets it, requests that do not, and one that does not state the fact.
func TestEachCaveatHolds(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, &VerifierOptions{Audience: []string{"eu1", "mailboxd"}})
	change := func(edit func(*Request)) Request {
		r := sendToOrders()
		edit(&r)
		return r
	}
	small := MaxBodyBytes(100)
	for _, test := range []struct {
		name   string
		caveat Caveat
		yes    []Request
		no     []Request
		reason Reason
	}{
		{"operation", Operations(OpSend, OpPeek), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Operation = OpRecv }), change(func(r *Request) { r.Operation = OpPeek }),
			change(func(r *Request) { r.Operation = OpAdmin }), change(func(r *Request) { r.Operation = 0 }), change(func(r *Request) { r.Operation = 99 }),
		}, ReasonOperation},
		{"queue", Queues(Queue("orders"), Queue("bills")), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Queue = "bills" }), change(func(r *Request) { r.Queue = "" }), change(func(r *Request) { r.Queue = "orders2" }),
		}, ReasonQueue},
		{"tenant", Tenant("acme"), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Tenant = "other" }), change(func(r *Request) { r.Tenant = "" }), change(func(r *Request) { r.Tenant = "Acme" }),
		}, ReasonTenant},
		{"audience", Audience("us1", "eu1"), []Request{sendToOrders()}, nil, ""},
		{"other audience", Audience("us1"), nil, []Request{sendToOrders()}, ReasonAudience},
		{"network", Networks(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")), []Request{
			sendToOrders(), change(func(r *Request) { r.Client = netip.MustParseAddr("::ffff:10.9.9.9") }), change(func(r *Request) { r.Client = netip.MustParseAddr("::1") }),
		}, []Request{
			change(func(r *Request) { r.Client = netip.MustParseAddr("11.0.0.1") }), change(func(r *Request) { r.Client = netip.Addr{} }),
			change(func(r *Request) { r.Client = netip.MustParseAddr("::2") }), change(func(r *Request) { r.Client = netip.MustParseAddr("::10.0.0.1") }),
			change(func(r *Request) { r.Client = netip.MustParseAddr("::1%eth0") }),
		}, ReasonNetwork},
		{"everywhere in IPv4", Networks(netip.MustParsePrefix("0.0.0.0/0")), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Client = netip.Addr{} }), change(func(r *Request) { r.Client = netip.MustParseAddr("2001:db8::1") }),
		}, ReasonNetwork},
		{"peer", Peers("spiffe://example.org/worker"), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Peer = "" }), change(func(r *Request) { r.Peer = "spiffe://example.org/worker2" }), change(func(r *Request) { r.Peer = "spiffe://example.org/" }),
		}, ReasonPeer},
		{"receipt", ForReceipt("r1"), []Request{
			change(func(r *Request) { r.Operation = OpAck }), change(func(r *Request) { r.Operation = OpNack }), change(func(r *Request) { r.Operation = OpExtend }),
		}, []Request{
			change(func(r *Request) { r.Operation, r.Receipt = OpAck, "r2" }), change(func(r *Request) { r.Operation, r.Receipt = OpAck, "" }),
			change(func(r *Request) { r.Operation, r.Receipt = OpRecv, "" }), sendToOrders(), change(func(r *Request) { r.Operation = OpRecv }),
		}, ReasonReceipt},
		{"body", small, []Request{
			sendToOrders(), change(func(r *Request) { r.Operation, r.Load = OpRecv, Load{} }), change(func(r *Request) { r.Load = LoadOf(nil) }),
		}, []Request{
			change(func(r *Request) { r.Load = Load{Messages: 1, Bytes: 101, LargestBody: 101} }), change(func(r *Request) { r.Load = LoadOf(make([]byte, 5), make([]byte, 101)) }),
		}, ReasonBodyTooLarge},
		{"body of unknown size", small, nil, []Request{
			change(func(r *Request) { r.Load = Load{} }), change(func(r *Request) { r.Load = Load{Messages: 1, Bytes: -1, LargestBody: -1} }), change(func(r *Request) { r.Load.Bytes = 0 }),
		}, ReasonUnmeasured},
		{"quota of an unknown size", MessagesPerSecond(1000), nil, []Request{change(func(r *Request) { r.Load = Load{} })}, ReasonUnmeasured},
	} {
		t.Run(test.name, func(t *testing.T) {
			token := ordersToken(t, ring, test.caveat)
			for _, r := range test.yes {
				wantAllowed(t, v, token, r)
			}
			for _, r := range test.no {
				wantRefused(t, v, token, r, test.reason)
			}
			// It holds as well if a holder added it, after a wider caveat of the
			// same name.
			narrowed := mustNarrow(t, ordersToken(t, ring, AllOperations(), Queues(AnyQueue()), MaxBodyBytes(1<<40), Audience("us1", "eu1", "mailboxd")), test.caveat)
			for _, r := range test.no {
				wantRefused(t, v, narrowed, r, test.reason)
			}
			// It holds as well if a wider caveat follows it.
			widened := mustNarrow(t, token, AllOperations(), Queues(AnyQueue()), MaxBodyBytes(1<<40), Audience("us1", "eu1", "mailboxd"), ExpiresAt(time.Now().Add(100*time.Hour)))
			for _, r := range test.no {
				wantRefused(t, v, widened, r, test.reason)
			}
		})
	}
}

func TestCaveatsAddUp(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	base := func(caveats ...Caveat) Token {
		return mustMint(t, ring, "", append([]Caveat{AllOperations(), Queues(AnyQueue()), inAnHour()}, caveats...)...)
	}
	both := base(Queues(QueuesUnder("user:")), Queues(Queue("user:1"), Queue("orders")))
	wantAllowed(t, v, both, Request{Operation: OpRecv, Queue: "user:1"})
	wantRefused(t, v, both, Request{Operation: OpRecv, Queue: "user:2"}, ReasonQueue)
	wantRefused(t, v, both, Request{Operation: OpRecv, Queue: "orders"}, ReasonQueue)
	nothing := base(Operations(OpSend), Operations(OpRecv))
	wantRefused(t, v, nothing, Request{Operation: OpSend, Queue: "a"}, ReasonOperation)
	wantRefused(t, v, nothing, Request{Operation: OpRecv, Queue: "a"}, ReasonOperation)
	wantRefused(t, v, base(Tenant("a"), Tenant("b")), Request{Operation: OpRecv, Queue: "a", Tenant: "a"}, ReasonTenant)
	wantRefused(t, v, base(ForReceipt("a"), ForReceipt("b")), Request{Operation: OpAck, Queue: "a", Receipt: "a"}, ReasonReceipt)
	wantRefused(t, v, base(Networks(netip.MustParsePrefix("10.0.0.0/8")), Networks(netip.MustParsePrefix("11.0.0.0/8"))),
		Request{Operation: OpRecv, Queue: "a", Client: netip.MustParseAddr("10.0.0.1")}, ReasonNetwork)
}

func TestWholeNodeNeedsAnyQueue(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	list := Request{Operation: OpAdmin}
	wantAllowed(t, v, mustMint(t, ring, "", AllOperations(), Queues(AnyQueue()), inAnHour()), list)
	wantRefused(t, v, mustMint(t, ring, "", AllOperations(), Queues(QueuesUnder("a:")), inAnHour()), list, ReasonQueue)
	grant := wantAllowed(t, v, mustMint(t, ring, "", AllOperations(), Queues(QueuesUnder("a:")), inAnHour()), Request{Operation: OpStats, Queue: "a:b"})
	if !grant.AllowsQueue("a:c") || grant.AllowsQueue("b:c") {
		t.Error("a grant shows other queues than it allows")
	}
}

func TestTokenOfTenantIsRefusedForAnother(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	acme := mustMint(t, ring, "acme", AllOperations(), Queues(AnyQueue()), inAnHour())
	r := Request{Operation: OpSend, Queue: "orders", Tenant: "acme"}
	if grant := wantAllowed(t, v, acme, r); grant.tenant() != "acme" {
		t.Errorf("granted for tenant %q", grant.tenant())
	}
	for _, tenant := range []string{"", "acme2", "acm", "ACME"} {
		r.Tenant = tenant
		wantRefused(t, v, acme, r, ReasonTenant)
	}
	// A token without a tenant is for all of them, until it is narrowed.
	operator := mustMint(t, ring, "", AllOperations(), Queues(AnyQueue()), inAnHour())
	r.Tenant = "anybody"
	if grant := wantAllowed(t, v, operator, r); grant.tenant() != "" {
		t.Errorf("granted for tenant %q", grant.tenant())
	}
	wantRefused(t, v, mustNarrow(t, operator, Tenant("acme")), r, ReasonTenant)
}

func TestExpiryIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := NewKeyRing(NewKey())
		v := NewVerifier(ring, nil)
		end := time.Now().Add(10 * time.Second)
		token := ordersToken(t, ring, ExpiresAt(end))
		if grant := wantAllowed(t, v, token, sendToOrders()); !grant.expiresAt().Equal(end) {
			t.Errorf("expires at %v, want %v", grant.expiresAt(), end)
		}
		time.Sleep(10*time.Second - 1)
		wantAllowed(t, v, token, sendToOrders()) // from the cache
		wantAllowed(t, NewVerifier(ring, nil), token, sendToOrders())
		time.Sleep(time.Nanosecond)
		wantRefused(t, v, token, sendToOrders(), ReasonExpired)
		wantRefused(t, NewVerifier(ring, nil), token, sendToOrders(), ReasonExpired)
	})
}

func TestNotBeforeToleratesTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := NewKeyRing(NewKey())
		v := NewVerifier(ring, nil)
		token := ordersToken(t, ring, NotBefore(time.Now().Add(3*time.Minute)))
		wantRefused(t, v, token, sendToOrders(), ReasonNotYetValid)
		time.Sleep(time.Minute - 1)
		wantRefused(t, v, token, sendToOrders(), ReasonNotYetValid)
		time.Sleep(time.Nanosecond)
		wantAllowed(t, v, token, sendToOrders())
	})
}

func TestTimesFarAwayDoNotOverflow(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	forEver := mustMint(t, ring, "", AllOperations(), Queues(AnyQueue()), ExpiresAt(end))
	wantAllowed(t, v, forEver, sendToOrders())
	wantRefused(t, v, mustNarrow(t, forEver, NotBefore(end)), sendToOrders(), ReasonNotYetValid)
	wantRefused(t, v, mustNarrow(t, forEver, ExpiresAt(time.Unix(0, 0))), sendToOrders(), ReasonExpired)
}
