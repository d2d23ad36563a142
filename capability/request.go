package capability

import (
	"net/netip"
	"time"
)

// A Request is what somebody wants to do with a token. What a request does not
// say cannot meet a condition: a token for one network is refused if the client
// is not known, and one with a limit on bodies if the size is not.
type Request struct {
	Operation Operation
	// Topic is the queue. It is empty for operations on the node as a whole,
	// such as listing queues, which only tokens for any topic allow.
	Topic string
	// Tenant is the one that the request is for; empty if there are none.
	Tenant string
	// Load is what a send carries.
	Load Load
	// Client is the address that the request comes from.
	Client netip.Addr
	// Peer is the SPIFFE id in the client's certificate, if that was verified.
	Peer string
	// Receipt is that of the delivery to settle or extend.
	Receipt string
	// Lease says how that delivery was taken, if this is known for sure. It lets
	// an ack through after the token was revoked.
	Lease Lease
}

// A Load is how much a send carries. The zero Load is not known.
type Load struct {
	// Messages is how many there are.
	Messages int
	// Bytes are those of all bodies.
	Bytes int64
	// LargestBody has so many bytes.
	LargestBody int64
}

// LoadOf adds up bodies.
func LoadOf(bodies ...[]byte) Load {
	var l Load
	for _, body := range bodies {
		l.Messages++
		l.Bytes += int64(len(body))
		l.LargestBody = max(l.LargestBody, int64(len(body)))
	}
	return l
}

func (l Load) known() bool { return l.Messages > 0 && l.Bytes >= l.LargestBody && l.LargestBody >= 0 }

// A Lease is a delivery that was taken with a token. Whoever fills it in must
// know it from something that cannot be forged, such as a receipt with a MAC.
type Lease struct {
	Token   TokenID
	TakenAt time.Time
}
