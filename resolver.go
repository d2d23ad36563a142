package mailbox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// A Resolver finds the queues of mailboxes by identifier: a name or a URI. It returns
// queues, so that one resolver serves every type of body. It must be safe for concurrent
// use. [Registry] is a Resolver.
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

// unresolved returns the error for an identifier that names no queue.
func unresolved(id, detail string, cause error) error {
	e := &Error{Code: ErrUnresolved, Op: opResolve, Queue: printable(id), Detail: detail, Err: cause}
	if inner, ok := errors.AsType[*Error](cause); ok {
		e.Field = inner.Field
	}
	return e
}

// identifierProblem returns why id is not a valid identifier, or "".
func identifierProblem(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > driver.MaxReplyToBytes:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(id), driver.MaxReplyToBytes)
	case !utf8.ValidString(id):
		return "is not valid UTF-8"
	}
	return ""
}

// printable returns an identifier as errors and logs contain it: shortened, without
// control characters, and without its password.
func printable(id string) string {
	const longest = 256
	id = withoutPassword(id)
	if len(id) > longest {
		id = strings.ToValidUTF8(id[:longest], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, id)
}

// withoutPassword returns an identifier without its password.
func withoutPassword(id string) string {
	if !strings.Contains(id, "://") {
		return id
	}
	scheme, rest, _ := strings.Cut(id, ":")
	address, err := url.Parse(id)
	switch {
	case err != nil || address.Opaque != "":
		return scheme + "://…" // any part may be the password
	case strings.Contains(address.Host, ":") && hasLateAt(strings.TrimPrefix(rest, "//")):
		return scheme + "://…" // USER:PASSWORD@, where the parser took the password for port and path
	case address.User != nil:
		return address.Redacted()
	}
	return id
}

// hasLateAt returns whether there is an @ behind the host in rest, a URL without
// SCHEME://. A password with a /, ? or # that is not escaped looks so.
func hasLateAt(rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@")
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
