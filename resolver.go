package mailbox

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox/driver"
)

// A Resolver finds the queues of mailboxes by identifier: a name or a URI. It returns
// queues, so that one resolver serves every type of body. It must be safe for concurrent
// use. A registry.Registry is one.
type Resolver interface {
	// Resolve returns a handle on the queue that id names. The caller may close it,
	// which affects neither the queue nor other handles. It may block on I/O and ends
	// with ctx. Codes: ErrUnresolved if id names no queue, and those of the backend's
	// OpenQueue.
	Resolve(ctx context.Context, id string) (driver.Queue, error)
}

// ResolveOptional resolves the identifier of an optional queue: if it names no queue,
// found is false and there is no error. Any other error is returned.
func ResolveOptional(ctx context.Context, resolver Resolver, id string) (queue driver.Queue, found bool, err error) {
	if resolver == nil {
		return nil, false, &Error{Code: ErrInvalid, Op: "resolve", Field: "resolver", Detail: "is nil"}
	}
	queue, err = resolver.Resolve(ctx, id)
	switch {
	case errors.Is(err, ErrUnresolved):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return queue, true, nil
}
