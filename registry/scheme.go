package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/identifier"
)

// A Scheme opens the queue that an address of one URI scheme names. Every backend has
// one: its URLOpener. A part of an address that a scheme does not know what to do with, a
// host above all, is refused with ErrInvalid, and never passed over: a message
// that goes to another machine than its sender meant is worse than one that
// does not go.
type Scheme func(ctx context.Context, address *url.URL) (driver.Queue, error)

// Schemes is an opener of queues by URI, which chooses the backend by scheme:
//
//	memory://name                   a memory backend
//	disk:///dir?queue=name          a directory
//	redis://host:port/name?db=0     Redis; also rediss:, redis+sentinel: and redis+cluster:
//	sqs://region/queue              AWS SQS
//	mailbox://host:port/name        mailboxd
//
// It has only the schemes that it is given:
//
//	memory := membox.New(nil)
//	schemes := registry.Schemes{
//		ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(memory)},
//		Default:  memory,
//	}
//
// Addresses may come from clients, with a request that names where its answer goes.
// They open only what the program has given to each URLOpener: backends, directories,
// servers, regions, daemons. The schemes that packages register for OpenURL, which is
// for trusted configuration, are never used here.
//
// Use it as the fallback of a Registry, which keeps what it opens. It is safe
// for concurrent use; its fields must not be changed once it is used.
type Schemes struct {
	// ByScheme has the schemes by name, in lower case.
	ByScheme map[string]Scheme
	// Default opens names that are no URIs, which is to say that there is no
	// "://" in them. Nil means that there are no such names.
	Default driver.Opener
}

var _ driver.Opener = Schemes{}

// OpenQueue opens the queue that name, a URI or a plain name, leads to. It
// blocks, and fails, as the backend does. Codes beside the backend's:
// ErrUnresolved, with ErrInvalid for a scheme that ByScheme does not have,
// for an invalid URI and for a plain name without a Default.
func (s Schemes) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if !strings.Contains(name, "://") {
		if s.Default == nil {
			return nil, identifier.Unresolved(name, "is not a URI", driver.ErrInvalid)
		}
		return s.Default.OpenQueue(ctx, name)
	}
	address, err := url.Parse(name)
	if err != nil {
		// What the parser says may repeat a password.
		return nil, identifier.Unresolved(name, "is not a valid URI", driver.ErrInvalid)
	}
	open := s.ByScheme[address.Scheme]
	if open == nil {
		known := slices.Sorted(maps.Keys(s.ByScheme))
		return nil, identifier.Unresolved(name, fmt.Sprintf("scheme %q is none of %q", address.Scheme, known), driver.ErrInvalid)
	}
	queue, err := open(ctx, address)
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Queue == "" {
		located := *e
		located.Queue = identifier.Printable(name)
		err = &located
	}
	return queue, err
}
