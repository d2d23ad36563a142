package capability

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func TestRefusalNamesOperationQueueAndRemedy(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	all, everywhere := AllOperations(), Queues(AnyQueue())
	send := Request{Operation: OpSend, Queue: "jobs", Load: LoadOf([]byte("hello"))}
	purge := Request{Operation: OpPurge, Queue: "jobs"}
	for _, test := range []struct {
		caveats []Caveat
		request Request
		want    string
	}{
		{[]Caveat{Operations(OpSend, OpAck), everywhere, inAnHour()}, purge, `mailbox: authorize jobs: forbidden: token does not allow "purge" on queue "jobs"; it allows send, ack on all queues: operation`},
		{[]Caveat{all, Queues(Queue("orders"), QueuesUnder("jobs.")), inAnHour()}, purge, `token does not allow "purge" on queue "jobs"; it allows everything but backup and audit on orders, jobs.*: topic`},
		{[]Caveat{all, everywhere, Queues(Queue("orders")), inAnHour()}, purge, `it allows everything but backup and audit on orders: topic`},
		{[]Caveat{all, Queues(QueuesUnder("jobs.")), Queues(Queue("jobs.a")), inAnHour()}, purge, `it allows everything but backup and audit on jobs.*, and of these only jobs.a`},
		{[]Caveat{Operations(OpSend), Operations(OpAck), everywhere, inAnHour()}, purge, `it allows nothing`},
		{[]Caveat{Operations(OpAdmin), Queues(Queue("orders")), inAnHour()}, Request{Operation: OpAdmin}, `token does not allow "admin" on the daemon as a whole; it allows admin on orders`},
		{[]Caveat{all, everywhere, ExpiresAt(time.Unix(1e9, 0))}, send, `mailbox: authorize jobs: unauthenticated: token expired at 2001-09-09T01:46:40Z; ask for a new one`},
		{[]Caveat{all, everywhere, inAnHour(), NotBefore(time.Unix(1e10, 0))}, send, `token is not valid before 2286-11-20T17:46:40Z`},
		{[]Caveat{all, everywhere, inAnHour(), Networks(netip.MustParsePrefix("10.0.0.0/8"))}, Request{Operation: OpPurge, Queue: "jobs", Client: netip.MustParseAddr("127.0.0.1")}, `token is for clients in 10.0.0.0/8, and this one is 127.0.0.1`},
		{[]Caveat{all, everywhere, inAnHour(), Peers("spiffe://example.org/w")}, purge, `token is for clients with the certificate of spiffe://example.org/w`},
		{[]Caveat{all, everywhere, inAnHour(), Audience("billing")}, purge, `token is for the service billing`},
		{[]Caveat{all, everywhere, inAnHour(), Tenant("acme")}, purge, `token is for another tenant`},
		{[]Caveat{all, everywhere, inAnHour(), ForReceipt("r")}, Request{Operation: OpAck, Queue: "jobs", Receipt: "s"}, `token is for settling another delivery`},
		{[]Caveat{all, everywhere, inAnHour(), MaxBodyBytes(3)}, send, `token allows bodies of at most 3 bytes, and one has 5`},
		{[]Caveat{all, everywhere, inAnHour(), MaxBodyBytes(3)}, Request{Operation: OpSend, Queue: "jobs"}, `the request does not state its size`},
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
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	token, err := ring.Mint("", AllOperations(), Queues(AnyQueue()), inAnHour(), MessagesPerSecond(1), BytesPerSecond(1000))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err = v.Authorize(t.Context(), token, Request{Operation: OpSend, Queue: "jobs", Load: LoadOf(nil, nil)})
	}
	if want := "the token's quota is used up: 1 message per second, 1000 bytes per second"; !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestMissingMalformedAndForeignTokensDiffer(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	foreign, err := NewKeyRing(NewKey()).Mint("", AllOperations(), Queues(Queue("secret")), ExpiresAt(time.Unix(1e9, 0)))
	if err != nil {
		t.Fatal(err)
	}
	_, foreignErr := v.Authorize(t.Context(), foreign, Request{Operation: OpSend, Queue: "jobs"})
	_, emptyErr := v.Authorize(t.Context(), Token{}, Request{Operation: OpSend, Queue: "jobs"})
	_, garbageErr := Parse("garbage")
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
	ring := NewKeyRing(NewKey())
	patterns := make([]Pattern, 100)
	for i := range patterns {
		patterns[i] = Queue(strings.Repeat("ü", 9))
	}
	token, err := ring.Mint("", AllOperations(), Queues(patterns...), inAnHour())
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewVerifier(ring, nil).Authorize(t.Context(), token, Request{Operation: OpSend, Queue: "jobs"})
	if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "…") || strings.ToValidUTF8(err.Error(), "") != err.Error() {
		t.Errorf("got %v", err)
	}
}
