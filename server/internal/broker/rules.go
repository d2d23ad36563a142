package broker

import (
	"time"

	"github.com/mailboxmq/mailbox/capability"
)

// Rules are what a surface decides for itself because its protocol promises
// something else than the native ones.
type Rules struct {
	// MaxPayloadBytes bounds payloads instead of Limits.MaxPayloadBytes, within the
	// bound of the backend; 0 leaves that in force.
	MaxPayloadBytes int
	// AnyVisibility allows less than Limits.MinVisibility.
	AnyVisibility bool
	// AnyWait cuts a wait that is longer than is allowed, instead of refusing it.
	AnyWait bool
}

// Under returns the same caller, who is served by these rules.
func (c Caller) Under(rules Rules) Caller {
	c.rules = rules
	return c
}

// limits are those in force for the caller.
func (c *Caller) limits() *Limits {
	limits := c.broker.limits.Load()
	if c.rules == (Rules{}) {
		return limits
	}
	own := *limits
	if c.rules.MaxPayloadBytes > 0 {
		own.MaxPayloadBytes = c.rules.MaxPayloadBytes
	}
	if c.rules.AnyVisibility {
		own.MinVisibility = 0
	}
	return &own
}

// daemonTokenLife is how long the token of a [Broker.Daemon] is good: long enough
// for a piece of work, and for a clock that is turned a little.
const daemonTokenLife = 15 * time.Minute

// Daemon returns the daemon itself as a caller of a tenant, for work that goes on
// when who asked for it is gone, and for what a surface has to know before it can
// decide. It may do everything for some minutes; make a new one for each piece of
// work. What it does for somebody is to be authorised for them first. Codes:
// those of capability.KeyRing.Mint.
func (b *Broker) Daemon(tenant string) (Caller, error) {
	token, err := b.ring.Mint(tenant, capability.AllOperations(), capability.Topics(capability.AnyTopic()),
		capability.ExpiresAt(time.Now().Add(daemonTokenLife)))
	if err != nil {
		return Caller{}, err
	}
	return b.Caller(token, Origin{}), nil
}
