package verify

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

func TestRefusalNamesOperationQueueAndRemedy(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	all, everywhere := capability.AllOperations(), capability.Queues(capability.AnyQueue())
	send := Request{Operation: capability.OpSend, Queue: "jobs", Load: LoadOf([]byte("hello"))}
	purge := Request{Operation: capability.OpPurge, Queue: "jobs"}
	for _, test := range []struct {
		caveats []capability.Caveat
		request Request
		want    string
	}{
		{[]capability.Caveat{capability.Operations(capability.OpSend, capability.OpAck), everywhere, inAnHour()}, purge, `mailbox: authorize jobs: forbidden: token does not allow "purge" on queue "jobs"; it allows send, ack on all queues: operation`},
		{[]capability.Caveat{all, capability.Queues(capability.Queue("orders"), capability.QueuesUnder("jobs.")), inAnHour()}, purge, `token does not allow "purge" on queue "jobs"; it allows everything but backup, audit, ask, answer, throttle on orders, jobs.*: topic`},
		{[]capability.Caveat{all, everywhere, capability.Queues(capability.Queue("orders")), inAnHour()}, purge, `it allows everything but backup, audit, ask, answer, throttle on orders: topic`},
		{[]capability.Caveat{all, capability.Queues(capability.QueuesUnder("jobs.")), capability.Queues(capability.Queue("jobs.a")), inAnHour()}, purge, `it allows everything but backup, audit, ask, answer, throttle on jobs.*, and of these only jobs.a`},
		{[]capability.Caveat{capability.Operations(capability.OpSend), capability.Operations(capability.OpAck), everywhere, inAnHour()}, purge, `it allows nothing`},
		{[]capability.Caveat{capability.Operations(capability.OpAdmin), capability.Queues(capability.Queue("orders")), inAnHour()}, Request{Operation: capability.OpAdmin}, `token does not allow "admin" on the daemon as a whole; it allows admin on orders`},
		{[]capability.Caveat{all, everywhere, capability.ExpiresAt(time.Unix(1e9, 0))}, send, `mailbox: authorize jobs: unauthenticated: token expired at 2001-09-09T01:46:40Z; ask for a new one`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.NotBefore(time.Unix(1e10, 0))}, send, `token is not valid before 2286-11-20T17:46:40Z`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.Networks(netip.MustParsePrefix("10.0.0.0/8"))}, Request{Operation: capability.OpPurge, Queue: "jobs", Client: netip.MustParseAddr("127.0.0.1")}, `token is for clients in 10.0.0.0/8, and this one is 127.0.0.1`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.Peers("spiffe://example.org/w")}, purge, `token is for clients with the certificate of spiffe://example.org/w`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.Audience("billing")}, purge, `token is for the service billing`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.Tenant("acme")}, purge, `token is for another tenant`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.ForReceipt("r")}, Request{Operation: capability.OpAck, Queue: "jobs", Receipt: "s"}, `token is for settling another delivery`},
		{[]capability.Caveat{capability.EveryOperation(), everywhere, inAnHour(), capability.ForSlot("r")}, Request{Operation: capability.OpAnswer, Slot: "s"}, `token is for another reply slot`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.MaxBodyBytes(3)}, send, `token allows bodies of at most 3 bytes, and one has 5`},
		{[]capability.Caveat{all, everywhere, inAnHour(), capability.MaxBodyBytes(3)}, Request{Operation: capability.OpSend, Queue: "jobs"}, `the request does not state its size`},
	} {
		token, err := ring.Mint("", test.caveats...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.Authorize(t.Context(), token, test.request)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}

func TestUsedUpQuotaIsNamed(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour(), capability.MessagesPerSecond(1), capability.BytesPerSecond(1000))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err = v.Authorize(t.Context(), token, Request{Operation: capability.OpSend, Queue: "jobs", Load: LoadOf(nil, nil)})
	}
	if want := "the token's quota is used up: 1 message per second, 1000 bytes per second"; !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestMissingMalformedAndForeignTokensDiffer(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	foreign, err := keyring.New(keyring.NewKey()).Mint("", capability.AllOperations(), capability.Queues(capability.Queue("secret")), capability.ExpiresAt(time.Unix(1e9, 0)))
	if err != nil {
		t.Fatal(err)
	}
	_, foreignErr := v.Authorize(t.Context(), foreign, Request{Operation: capability.OpSend, Queue: "jobs"})
	_, emptyErr := v.Authorize(t.Context(), capability.Token{}, Request{Operation: capability.OpSend, Queue: "jobs"})
	_, garbageErr := capability.Parse("garbage")
	for want, err := range map[string]error{
		"token was not made with the keys of this daemon": foreignErr,
		"there is no token":           emptyErr,
		"not a token; copy all of it": garbageErr,
	} {
		if !errors.Is(err, driver.ErrUnauthenticated) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "expired") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestRefusalIsShortForLongTokens(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	patterns := make([]capability.Pattern, 100)
	for i := range patterns {
		patterns[i] = capability.Queue(strings.Repeat("ü", 9))
	}
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(patterns...), inAnHour())
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(ring, nil).Authorize(t.Context(), token, Request{Operation: capability.OpSend, Queue: "jobs"})
	if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "…") || strings.ToValidUTF8(err.Error(), "") != err.Error() {
		t.Errorf("got %v", err)
	}
}
