package capability

import "time"

// A Grant is what a verified token allows. It is good for the request that it
// was given for; ask the [Verifier] again for the next one.
type Grant struct {
	identifier identifier
	scope      scope
	meter      *meter
}

// ID names the token, and everything narrowed from the same one.
func (g *Grant) ID() TokenID { return g.identifier.token }

// Key names the key that made the token.
func (g *Grant) Key() KeyID { return g.identifier.key }

// Tenant is the one that the token is bound to; empty if it is bound to none.
func (g *Grant) Tenant() string {
	if len(g.scope.tenants) > 0 {
		return g.scope.tenants[0] // there may be more only if they are equal
	}
	return ""
}

// ExpiresAt is when the token ends by itself.
func (g *Grant) ExpiresAt() time.Time { return time.Unix(g.scope.expires, 0).UTC() }

// AllowsTopic reports whether the token is for this topic, for lists that show
// only what their reader may see.
func (g *Grant) AllowsTopic(topic string) bool { return g.scope.allowsTopic(topic) }

// AllowsOperation reports whether the token is for this operation, somewhere.
func (g *Grant) AllowsOperation(o Operation) bool { return g.scope.operations.has(o) }

// Charge counts messages and bytes that were handed out under the token against
// its quotas. What a receive brings is known only afterwards, so it may exceed a
// quota; then the next request has to wait for longer.
func (g *Grant) Charge(messages int, bytes int64) {
	if len(g.scope.quotas) > 0 {
		g.meter.charge(g, messages, bytes)
	}
}

// String names the token.
func (g *Grant) String() string { return g.identifier.String() }
