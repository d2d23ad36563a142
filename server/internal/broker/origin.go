package broker

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
)

// An Origin says where a request comes from.
type Origin struct {
	// Client is the address of who asks; the zero Addr if it has none, as on a
	// unix socket.
	Client netip.Addr
	// Peer is the SPIFFE id of the client's certificate, if that was verified.
	Peer string
	// CorrelationID follows the request through logs, and the messages that it
	// sends through their lives. Empty means that each message gets one of its
	// own.
	CorrelationID string
}

// ClientAt returns the address in a host:port that a connection comes from; the
// zero Addr for what has no address, like a unix socket. What proxies say in headers
// is not believed. Which of our own interfaces a link-local client is behind, its
// zone, is no part of it: no token could name that.
func ClientAt(remote string) netip.Addr {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr().Unmap().WithZone("")
}

// PeerOf returns the SPIFFE id of the client's certificate, if there is one that
// was verified; state is nil without TLS.
func PeerOf(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	for _, uri := range state.VerifiedChains[0][0].URIs {
		if uri.Scheme == "spiffe" {
			return uri.String()
		}
	}
	return ""
}

// OriginOf returns where a connection comes from that has sent something, so that a
// handshake of TLS is over.
func OriginOf(c net.Conn) Origin {
	origin := Origin{Client: ClientAt(c.RemoteAddr().String())}
	if secure, ok := c.(*tls.Conn); ok {
		state := secure.ConnectionState()
		origin.Peer = PeerOf(&state)
	}
	return origin
}

// An Arrival is a connection that wants to know whether a genuine token was shown on
// it.
type Arrival interface{ Shown() }

type arrivalKey struct{}

// WithArrival returns a context for the requests of a connection.
func WithArrival(ctx context.Context, a Arrival) context.Context {
	return context.WithValue(ctx, arrivalKey{}, a)
}
