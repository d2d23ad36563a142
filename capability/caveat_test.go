package capability

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
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
		"mbx:slot=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad":    ForSlot("abc"),
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
		ForReceipt(""), ForSlot(""), ExpiresAt(time.Time{}), ExpiresAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), NotBefore(time.Time{}),
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
		"mbx:receipt=" + strings.Repeat("A", 64), "mbx:receipt=" + strings.Repeat("g", 64), "mbx:slot=", "mbx:slot=" + strings.Repeat("A", 64), "mbx:tenant=", "mbx:tenant=a,b", "mbx:new=1", "account = 1",
	} {
		if c, err := ParseCaveat(text); !errors.Is(err, driver.ErrInvalid) || c.String() != "" {
			t.Errorf("ParseCaveat(%q): %v, want ErrInvalid", text, err)
		}
		var s macaroon.Scope
		if s.Add(text) == "" {
			t.Errorf("%q is met", text)
		}
	}
}

func TestOperationsHaveNames(t *testing.T) {
	for o := OpSend; o <= OpThrottle; o++ {
		if back, err := ParseOperation(o.String()); err != nil || back != o {
			t.Errorf("%v became %v, %v", o, back, err)
		}
	}
	for _, word := range []string{"", "no operation", "Send", "*"} {
		if o, err := ParseOperation(word); !errors.Is(err, driver.ErrInvalid) || o != 0 {
			t.Errorf("ParseOperation(%q) = %v, %v", word, o, err)
		}
	}
	for _, o := range []Operation{0, OpThrottle + 1, 255} {
		if macaroon.AllOperations.Has(uint8(o)) || o.String() != "no operation" {
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
			if !p.pattern.Matches(name) {
				t.Errorf("%q does not match %q", pattern, name)
			}
		}
		for _, name := range names.no {
			if p.pattern.Matches(name) {
				t.Errorf("%q matches %q", pattern, name)
			}
		}
	}
	if (macaroon.Pattern{}).Matches("") || (macaroon.Pattern{}).Matches("a") || (Pattern{}).String() != "" {
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
		if (err == nil) != p.pattern.Valid() {
			t.Fatalf("%+v is valid: %t, and its text %q reads with %v", p, p.pattern.Valid(), p.String(), err)
		}
		if err == nil && back != p {
			t.Fatalf("%+v became %+v", p, back)
		}
		if p.pattern.Valid() && p.pattern.Kind == macaroon.MatchPrefix && (p.pattern.Matches(name) || !p.pattern.Matches(name+"x")) {
			t.Fatalf("%q as a prefix", name)
		}
	})
}
