package membox

import (
	"context"
	"net/url"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// OpenURI opens the queue that an address like memory://name names. It is a
// mailbox.Scheme: the same name is the same queue of this backend, whether it
// is opened by address or by OpenQueue.
//
// A name with characters that a host cannot have stands in the path, escaped:
// memory:///responses:7. A backend in memory has no hosts, ports, users and
// parameters, so an address that has both a host and a path, or any of the
// others, means something else and is refused. It does not block. Codes:
// ErrInvalid, ErrClosed.
func (b *Backend) OpenURI(ctx context.Context, address *url.URL) (driver.Queue, error) {
	invalid := func(field, detail string) (driver.Queue, error) {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
	}
	path := strings.TrimPrefix(address.Path, "/")
	switch {
	case address.Scheme != "memory":
		return invalid("scheme", "is not memory")
	case address.Opaque != "":
		return invalid("address", "wants two slashes: memory://name")
	case address.User != nil:
		return invalid("user", "a backend in memory has no users")
	case address.Port() != "" || strings.HasSuffix(address.Host, ":"):
		return invalid("port", "a backend in memory has no ports; a name with a colon is written memory:///a:b")
	case address.Host != "" && address.Path != "":
		return invalid("host", "a backend in memory has no hosts; a name with a slash is written memory:///a/b")
	case address.RawQuery != "" || address.ForceQuery:
		return invalid("query", "a backend in memory has no parameters; a question mark in a name is written %3F")
	case address.Fragment != "":
		return invalid("fragment", "an address has none; a # in a name is written %23")
	}
	return b.OpenQueue(ctx, address.Host+path)
}
