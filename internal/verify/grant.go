package verify

import (
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A Grant is what a verified token allows. It is valid for one request; call the
// [Verifier] again for the next one.
type Grant struct {
	identifier macaroon.Identifier
	scope      scope
	meter      *meter
}

// ID returns the id of the token, which all tokens narrowed from it share.
func (g *Grant) ID() capability.TokenID { return g.identifier.Token }

// key returns the id of the key that signed the token.
func (g *Grant) key() capability.KeyID { return capability.KeyID(g.identifier.Key) }

// tenant returns the tenant that the token is bound to; empty if there is none.
func (g *Grant) tenant() string {
	if len(g.scope.Tenants) > 0 {
		return g.scope.Tenants[0] // if there are several, they are equal
	}
	return ""
}

// expiresAt returns when the token expires.
func (g *Grant) expiresAt() time.Time { return time.Unix(g.scope.Expires, 0).UTC() }

// AllowsQueue reports whether the token allows this queue, for lists that show
// only the queues that their reader may see.
func (g *Grant) AllowsQueue(queue string) bool { return g.scope.allowsQueue(queue) }

// AllowsOperation reports whether the token allows this operation on any queue.
func (g *Grant) AllowsOperation(o capability.Operation) bool { return g.scope.Operations.Has(uint8(o)) }

// Charge counts messages and bytes that were delivered under the token against
// its quotas. The size of a receive is known only afterwards, so it may exceed a
// quota; then the next request waits longer.
func (g *Grant) Charge(messages int, bytes int64) {
	if len(g.scope.Quotas) > 0 {
		g.meter.charge(g, messages, bytes)
	}
}

// String returns a name that does not reveal the token.
func (g *Grant) String() string { return g.identifier.String() }
