package mailbox

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox/driver"
)

// A Resolver finds mailboxes by identifier: a name, or a URI. It deals in
// queues and not in mailboxes, so that one resolver serves every type of body.
// It must be safe for concurrent use. [Registry] is one.
type Resolver interface {
	// Resolve returns a handle on the queue that id names. The caller may
	// close it, which touches neither the queue nor other handles. It may
	// block on I/O and ends with ctx. Codes: ErrUnresolved if id names
	// nothing; those of a backend's OpenQueue otherwise.
	Resolve(ctx context.Context, id string) (driver.Queue, error)
}

// ResolveOptional is Resolve for optional queues: for an identifier that names nothing,
// found is false and there is no error. Any other error is returned.
func ResolveOptional(ctx context.Context, resolver Resolver, id string) (queue driver.Queue, found bool, err error) {
	if resolver == nil {
		return nil, false, &Error{Code: ErrInvalid, Op: opResolve, Field: "resolver", Detail: "is nil"}
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
