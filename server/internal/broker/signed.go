package broker

import (
	"context"

	"github.com/mailboxmq/mailbox/capability"
)

// Signed returns the token with whose credentials a request was signed in the way of
// AWS; see capability.Verifier.TokenSigned for signed. The errors are those of
// authorisation. It blocks only where the revocations do.
func (b *Broker) Signed(ctx context.Context, accessKeyID, sessionToken string, signed func(secret capability.Secret) bool, origin Origin) (capability.Token, error) {
	token, err := b.verifier.TokenSigned(ctx, accessKeyID, sessionToken, signed)
	if err != nil {
		unknown := Caller{broker: b, origin: origin}
		unknown.refused(ctx, capability.Request{}, err)
	}
	return token, err
}

// Uses returns nil if the caller may do anything with a queue, which need not be
// there. Surfaces call it before they tell anything about the queue. It does not
// count against quotas.
func (c Caller) Uses(ctx context.Context, queue string) error { return c.authorizeUse(ctx, queue) }

// May returns nil if the caller may do this with a queue, for operations that a
// surface puts together of several. It counts as one message where messages are
// counted.
func (c Caller) May(ctx context.Context, operation capability.Operation, queue string) error {
	request := c.request(operation, queue)
	request.Load = capability.Load{Messages: 1}
	_, err := c.authorizeRequest(ctx, request)
	return err
}
