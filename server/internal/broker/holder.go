package broker

import "github.com/mailboxmq/mailbox/capability"

// A holder is who shows a token. Tokens that were narrowed from the same one have
// the same id, which is what they are revoked by; but each of them is a capability
// of its own, and what one has taken is not the others' to settle without a
// receipt.
type holder struct {
	token capability.TokenID
	exact capability.Fingerprint
}

// Fingerprint tells the caller's token from every other, those that were narrowed
// from it included. It is not secret.
func (c Caller) Fingerprint() capability.Fingerprint { return c.holder.exact }
