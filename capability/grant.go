package capability

import "time"

// A Grant is what a verified token allows. It is valid for one request; call the
// [Verifier] again for the next one.
type Grant struct {
	identifier identifier
	scope      scope
	meter      *meter
}

// ID returns the id of the token, which all tokens narrowed from it share.
func (g *Grant) ID() TokenID { return g.identifier.token }

// key returns the id of the key that signed the token.
func (g *Grant) key() KeyID { return g.identifier.key }

// tenant returns the tenant that the token is bound to; empty if there is none.
func (g *Grant) tenant() string {
	if len(g.scope.tenants) > 0 {
		return g.scope.tenants[0] // if there are several, they are equal
	}
	return ""
}

// expiresAt returns when the token expires.
func (g *Grant) expiresAt() time.Time { return time.Unix(g.scope.expires, 0).UTC() }

// AllowsQueue reports whether the token allows this queue, for lists that show
// only the queues that their reader may see.
func (g *Grant) AllowsQueue(queue string) bool { return g.scope.allowsQueue(queue) }

// AllowsOperation reports whether the token allows this operation on any queue.
func (g *Grant) AllowsOperation(o Operation) bool { return g.scope.operations.has(o) }

// Charge counts messages and bytes that were delivered under the token against
// its quotas. The size of a receive is known only afterwards, so it may exceed a
// quota; then the next request waits longer.
func (g *Grant) Charge(messages int, bytes int64) {
	if len(g.scope.quotas) > 0 {
		g.meter.charge(g, messages, bytes)
	}
}

// String returns a name that does not reveal the token.
func (g *Grant) String() string { return g.identifier.String() }
