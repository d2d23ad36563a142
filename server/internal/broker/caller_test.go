package broker_test

import (
	"net/netip"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestClientIsIdentifiedByAddressAlone(t *testing.T) {
	for remote, want := range map[string]string{
		"10.1.2.3:4": "10.1.2.3", "[::ffff:10.1.2.3]:4": "10.1.2.3", "[fe80::1%eth0]:4": "fe80::1", "[2001:db8::1]:4": "2001:db8::1",
	} {
		if got := broker.ClientAt(remote); got.String() != want {
			t.Errorf("%s is %v, want %s", remote, got, want)
		}
	}
	for _, remote := range []string{"", "@", "/run/mailbox.sock", "pipe"} {
		if got := broker.ClientAt(remote); got.IsValid() {
			t.Errorf("%q is %v, want none", remote, got)
		}
	}
}

func TestLinkLocalClientMatchesItsNetwork(t *testing.T) {
	b := memory(t, broker.Limits{})
	token := mint(t, b.ring, "", capability.Networks(netip.MustParsePrefix("fe80::/10")))
	for _, client := range []string{"[fe80::1%eth0]:4", "[fe80::1]:4"} {
		c := b.Caller(token, broker.Origin{Client: broker.ClientAt(client)})
		if _, err := c.Send(t.Context(), "orders", say("x")); err != nil {
			t.Errorf("%s: %v", client, err)
		}
	}
}
