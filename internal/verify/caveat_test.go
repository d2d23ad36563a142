package verify

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

// TestEachCaveatHolds adds each caveat to a token and checks a request
// that meets it, requests that do not, and one that does not state the fact.
func TestEachCaveatHolds(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, &Options{Audience: []string{"eu1", "mailboxd"}})
	change := func(edit func(*Request)) Request {
		r := sendToOrders()
		edit(&r)
		return r
	}
	small := capability.MaxBodyBytes(100)
	for _, test := range []struct {
		name   string
		caveat capability.Caveat
		yes    []Request
		no     []Request
		reason capability.Reason
	}{
		{"operation", capability.Operations(capability.OpSend, capability.OpPeek), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Operation = capability.OpRecv }), change(func(r *Request) { r.Operation = capability.OpPeek }),
			change(func(r *Request) { r.Operation = capability.OpAdmin }), change(func(r *Request) { r.Operation = 0 }), change(func(r *Request) { r.Operation = 99 }),
		}, capability.ReasonOperation},
		{"queue", capability.Queues(capability.Queue("orders"), capability.Queue("bills")), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Queue = "bills" }), change(func(r *Request) { r.Queue = "" }), change(func(r *Request) { r.Queue = "orders2" }),
		}, capability.ReasonQueue},
		{"tenant", capability.Tenant("acme"), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Tenant = "other" }), change(func(r *Request) { r.Tenant = "" }), change(func(r *Request) { r.Tenant = "Acme" }),
		}, capability.ReasonTenant},
		{"audience", capability.Audience("us1", "eu1"), []Request{sendToOrders()}, nil, ""},
		{"other audience", capability.Audience("us1"), nil, []Request{sendToOrders()}, ReasonAudience},
		{"network", capability.Networks(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")), []Request{
			sendToOrders(), change(func(r *Request) { r.Client = netip.MustParseAddr("::ffff:10.9.9.9") }), change(func(r *Request) { r.Client = netip.MustParseAddr("::1") }),
		}, []Request{
			change(func(r *Request) { r.Client = netip.MustParseAddr("11.0.0.1") }), change(func(r *Request) { r.Client = netip.Addr{} }),
			change(func(r *Request) { r.Client = netip.MustParseAddr("::2") }), change(func(r *Request) { r.Client = netip.MustParseAddr("::10.0.0.1") }),
			change(func(r *Request) { r.Client = netip.MustParseAddr("::1%eth0") }),
		}, ReasonNetwork},
		{"everywhere in IPv4", capability.Networks(netip.MustParsePrefix("0.0.0.0/0")), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Client = netip.Addr{} }), change(func(r *Request) { r.Client = netip.MustParseAddr("2001:db8::1") }),
		}, ReasonNetwork},
		{"peer", capability.Peers("spiffe://example.org/worker"), []Request{sendToOrders()}, []Request{
			change(func(r *Request) { r.Peer = "" }), change(func(r *Request) { r.Peer = "spiffe://example.org/worker2" }), change(func(r *Request) { r.Peer = "spiffe://example.org/" }),
		}, ReasonPeer},
		{"receipt", capability.ForReceipt("r1"), []Request{
			change(func(r *Request) { r.Operation = capability.OpAck }), change(func(r *Request) { r.Operation = capability.OpNack }), change(func(r *Request) { r.Operation = capability.OpExtend }),
		}, []Request{
			change(func(r *Request) { r.Operation, r.Receipt = capability.OpAck, "r2" }), change(func(r *Request) { r.Operation, r.Receipt = capability.OpAck, "" }),
			change(func(r *Request) { r.Operation, r.Receipt = capability.OpRecv, "" }), sendToOrders(), change(func(r *Request) { r.Operation = capability.OpRecv }),
		}, ReasonReceipt},
		{"slot", capability.ForSlot("s1"), []Request{
			{Operation: capability.OpAsk, Slot: "s1"}, {Operation: capability.OpAnswer, Slot: "s1", Load: LoadOf(make([]byte, 101))},
		}, []Request{
			{Operation: capability.OpAsk, Slot: "s2"}, {Operation: capability.OpAnswer}, {Operation: capability.OpSend, Queue: "orders", Slot: "s1", Load: LoadOf(nil)}, sendToOrders(),
		}, ReasonSlot},
		{"body of an answer", small, []Request{
			{Operation: capability.OpAnswer, Slot: "s"}, {Operation: capability.OpAnswer, Slot: "s", Load: LoadOf(make([]byte, 100))},
		}, []Request{
			{Operation: capability.OpAnswer, Slot: "s", Load: LoadOf(make([]byte, 101))},
		}, ReasonBodyTooLarge},
		{"body", small, []Request{
			sendToOrders(), change(func(r *Request) { r.Operation, r.Load = capability.OpRecv, Load{} }), change(func(r *Request) { r.Load = LoadOf(nil) }),
		}, []Request{
			change(func(r *Request) { r.Load = Load{Messages: 1, Bytes: 101, LargestBody: 101} }), change(func(r *Request) { r.Load = LoadOf(make([]byte, 5), make([]byte, 101)) }),
		}, ReasonBodyTooLarge},
		{"body of unknown size", small, nil, []Request{
			change(func(r *Request) { r.Load = Load{} }), change(func(r *Request) { r.Load = Load{Messages: 1, Bytes: -1, LargestBody: -1} }), change(func(r *Request) { r.Load.Bytes = 0 }),
		}, ReasonUnmeasured},
		{"quota of an unknown size", capability.MessagesPerSecond(1000), nil, []Request{change(func(r *Request) { r.Load = Load{} })}, ReasonUnmeasured},
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
			narrowed := mustNarrow(t, ordersToken(t, ring, capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.MaxBodyBytes(1<<40), capability.Audience("us1", "eu1", "mailboxd")), test.caveat)
			for _, r := range test.no {
				wantRefused(t, v, narrowed, r, test.reason)
			}
			// It holds as well if a wider caveat follows it.
			widened := mustNarrow(t, token, capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.MaxBodyBytes(1<<40), capability.Audience("us1", "eu1", "mailboxd"), capability.ExpiresAt(time.Now().Add(100*time.Hour)))
			for _, r := range test.no {
				wantRefused(t, v, widened, r, test.reason)
			}
		})
	}
}

func TestCaveatsAddUp(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	base := func(caveats ...capability.Caveat) capability.Token {
		return mustMint(t, ring, "", append([]capability.Caveat{capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour()}, caveats...)...)
	}
	both := base(capability.Queues(capability.QueuesUnder("user:")), capability.Queues(capability.Queue("user:1"), capability.Queue("orders")))
	wantAllowed(t, v, both, Request{Operation: capability.OpRecv, Queue: "user:1"})
	wantRefused(t, v, both, Request{Operation: capability.OpRecv, Queue: "user:2"}, capability.ReasonQueue)
	wantRefused(t, v, both, Request{Operation: capability.OpRecv, Queue: "orders"}, capability.ReasonQueue)
	nothing := base(capability.Operations(capability.OpSend), capability.Operations(capability.OpRecv))
	wantRefused(t, v, nothing, Request{Operation: capability.OpSend, Queue: "a"}, capability.ReasonOperation)
	wantRefused(t, v, nothing, Request{Operation: capability.OpRecv, Queue: "a"}, capability.ReasonOperation)
	wantRefused(t, v, base(capability.Tenant("a"), capability.Tenant("b")), Request{Operation: capability.OpRecv, Queue: "a", Tenant: "a"}, capability.ReasonTenant)
	wantRefused(t, v, base(capability.ForReceipt("a"), capability.ForReceipt("b")), Request{Operation: capability.OpAck, Queue: "a", Receipt: "a"}, ReasonReceipt)
	wantRefused(t, v, ordersToken(t, ring, capability.ForSlot("a"), capability.ForSlot("b")), Request{Operation: capability.OpAsk, Slot: "a"}, ReasonSlot)
	wantRefused(t, v, base(capability.Networks(netip.MustParsePrefix("10.0.0.0/8")), capability.Networks(netip.MustParsePrefix("11.0.0.0/8"))),
		Request{Operation: capability.OpRecv, Queue: "a", Client: netip.MustParseAddr("10.0.0.1")}, ReasonNetwork)
}

func TestWholeNodeNeedsAnyQueue(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	list := Request{Operation: capability.OpAdmin}
	wantAllowed(t, v, mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour()), list)
	wantRefused(t, v, mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.QueuesUnder("a:")), inAnHour()), list, capability.ReasonQueue)
	grant := wantAllowed(t, v, mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.QueuesUnder("a:")), inAnHour()), Request{Operation: capability.OpStats, Queue: "a:b"})
	if !grant.AllowsQueue("a:c") || grant.AllowsQueue("b:c") {
		t.Error("a grant shows other queues than it allows")
	}
}

func TestTokenOfTenantIsRefusedForAnother(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	acme := mustMint(t, ring, "acme", capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour())
	r := Request{Operation: capability.OpSend, Queue: "orders", Tenant: "acme"}
	if grant := wantAllowed(t, v, acme, r); grant.tenant() != "acme" {
		t.Errorf("granted for tenant %q", grant.tenant())
	}
	for _, tenant := range []string{"", "acme2", "acm", "ACME"} {
		r.Tenant = tenant
		wantRefused(t, v, acme, r, capability.ReasonTenant)
	}
	// A token without a tenant is for all of them, until it is narrowed.
	operator := mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour())
	r.Tenant = "anybody"
	if grant := wantAllowed(t, v, operator, r); grant.tenant() != "" {
		t.Errorf("granted for tenant %q", grant.tenant())
	}
	wantRefused(t, v, mustNarrow(t, operator, capability.Tenant("acme")), r, capability.ReasonTenant)
}

func TestExpiryIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, nil)
		end := time.Now().Add(10 * time.Second)
		token := ordersToken(t, ring, capability.ExpiresAt(end))
		if grant := wantAllowed(t, v, token, sendToOrders()); !grant.expiresAt().Equal(end) {
			t.Errorf("expires at %v, want %v", grant.expiresAt(), end)
		}
		time.Sleep(10*time.Second - 1)
		wantAllowed(t, v, token, sendToOrders()) // from the cache
		wantAllowed(t, New(ring, nil), token, sendToOrders())
		time.Sleep(time.Nanosecond)
		wantRefused(t, v, token, sendToOrders(), capability.ReasonExpired)
		wantRefused(t, New(ring, nil), token, sendToOrders(), capability.ReasonExpired)
	})
}

func TestNotBeforeToleratesTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		v := New(ring, nil)
		token := ordersToken(t, ring, capability.NotBefore(time.Now().Add(3*time.Minute)))
		wantRefused(t, v, token, sendToOrders(), capability.ReasonNotYetValid)
		time.Sleep(time.Minute - 1)
		wantRefused(t, v, token, sendToOrders(), capability.ReasonNotYetValid)
		time.Sleep(time.Nanosecond)
		wantAllowed(t, v, token, sendToOrders())
	})
}

func TestTimesFarAwayDoNotOverflow(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	forEver := mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(end))
	wantAllowed(t, v, forEver, sendToOrders())
	wantRefused(t, v, mustNarrow(t, forEver, capability.NotBefore(end)), sendToOrders(), capability.ReasonNotYetValid)
	wantRefused(t, v, mustNarrow(t, forEver, capability.ExpiresAt(time.Unix(0, 0))), sendToOrders(), capability.ReasonExpired)
}
