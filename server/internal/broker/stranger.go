package broker

import (
	"context"
	"net/netip"
	"time"

	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// maxStrangers is how many requests without a genuine token are answered a second.
	// Each costs as much as a small send, and has no tenant that could take turns.
	maxStrangers = 1024
	// strangerFor is how long a request without a genuine token counts.
	strangerFor = time.Second
)

// Stranger waits until another request without a genuine token may be answered. It
// counts against the share of the client's address. Surfaces call it for requests that
// show no token; Genuine calls it for tokens that it refuses. It blocks until then, or
// until ctx ends. Codes: ErrFull.
func (b *Broker) Stranger(ctx context.Context, client netip.Addr) error {
	address := share.Path{AddressKey(client)}
	if err := b.strangers.Enter(ctx, address, 1); err != nil {
		b.metrics.Rejected(metricSaturated)
		return refusedShare(err, "read", "")
	}
	time.AfterFunc(strangerFor, func() { b.strangers.Leave(address, 1) })
	return nil
}

// addressBits is the prefix of an IPv6 address that identifies a client, which can
// choose the rest freely.
const addressBits = 64

// AddressKey returns the key of the share of an address. No tenant has the same key. The
// zero Addr is a client of this machine, as on a unix socket.
func AddressKey(client netip.Addr) share.Key {
	key := share.Key{Name: "local", ID: [16]byte{1}}
	switch {
	case client.Is6():
		key.Name = netip.PrefixFrom(client, addressBits).Masked().String()
	case client.IsValid():
		key.Name = client.String()
	}
	return key
}
