package verify

import (
	"net/netip"
	"time"

	"github.com/mailboxmq/mailbox/capability"
)

// A Request is an operation to authorize with a token. A fact that the request does
// not state cannot meet a caveat: a token for one network is refused if Client is
// not set, and one with a limit on bodies if Load is not.
type Request struct {
	Operation capability.Operation
	// Queue is the name of the queue. It is empty for operations on the node as a
	// whole, such as listing queues, which only tokens with AnyQueue allow.
	Queue string
	// Under: Queue is a prefix, and the request is about all queues under it.
	Under bool
	// Tenant is the tenant that the request is for; empty if there is none.
	Tenant string
	// Load is the size of a send.
	Load Load
	// Client is the address of the client.
	Client netip.Addr
	// Peer is the SPIFFE id in the client's certificate, if that was verified.
	Peer string
	// Receipt is the receipt of the delivery to settle or extend.
	Receipt string
	// Slot is the id of the reply slot, for the operations on slots.
	Slot string
	// Lease says with which token and when that delivery was received, if this is
	// proven. It allows an ack after the token was revoked.
	Lease Lease
	// Unmetered: the quotas of the token do not matter.
	Unmetered bool
}

// A Load is the size of a send. The zero Load means that the size is not known.
type Load struct {
	// Messages is the number of messages.
	Messages int
	// Bytes is the size of all bodies together.
	Bytes int64
	// LargestBody is the size of the largest body in bytes.
	LargestBody int64
}

// LoadOf returns the load of a send with these bodies.
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

// A Lease says with which token and when a delivery was received. The caller must
// take it from a source that cannot be forged, such as a receipt with a MAC.
type Lease struct {
	Token   capability.TokenID
	TakenAt time.Time
}
