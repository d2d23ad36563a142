package membox

import (
	"context"
	"net/url"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

const urlScheme = "memory"

func init() { driver.RegisterURL(readURL, urlScheme) }

// readURL reads a URL of mailbox.OpenURL. All of them name queues of one backend.
func readURL(address *url.URL) (driver.URLTarget, error) {
	name, err := queueOf(address)
	if err != nil {
		return driver.URLTarget{}, err
	}
	return driver.URLTarget{Queue: name, Open: func(context.Context) (driver.Backend, error) { return New(nil), nil }}, nil
}

// URLOpener returns a registry.Scheme: a function, safe for concurrent use, that opens
// the queue that an address like memory://name names. The same name is the same queue of
// the backend, whether it is opened by address or by OpenQueue. The caller closes the
// backend.
//
// A name with characters that a host cannot have stands in the path, escaped:
// memory:///responses:7. A backend in memory has no hosts, ports, users and
// parameters: an address that has both a host and a path, or any of the others, is
// refused. It does not block. Codes: ErrInvalid, ErrClosed.
func URLOpener(backend *Backend) func(ctx context.Context, address *url.URL) (driver.Queue, error) {
	return func(ctx context.Context, address *url.URL) (driver.Queue, error) {
		name, err := queueOf(address)
		if err != nil {
			return nil, err
		}
		return backend.OpenQueue(ctx, name)
	}
}

// queueOf returns the name of the queue in an address, and refuses parts that an
// address of this scheme cannot have.
func queueOf(address *url.URL) (string, error) {
	invalid := func(field, detail string) (string, error) {
		return "", &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
	}
	name := address.Host + strings.TrimPrefix(address.Path, "/")
	switch {
	case address.Scheme != urlScheme:
		return invalid("scheme", "is not "+urlScheme)
	case address.Opaque != "":
		return invalid("address", "has no //; want memory://QUEUE")
	case address.User != nil:
		return invalid("user", "a backend in memory has no users; want memory://QUEUE")
	case address.Port() != "" || strings.HasSuffix(address.Host, ":"):
		return invalid("port", "a backend in memory has no ports; write a name with a colon as memory:///a:b")
	case address.Host != "" && address.Path != "":
		return invalid("host", "a backend in memory has no hosts; write a name with a slash as memory:///a/b")
	case address.RawQuery != "" || address.ForceQuery:
		return invalid("query", "a backend in memory has no parameters; write ? in a name as %3F")
	case address.Fragment != "":
		return invalid("fragment", "is not allowed in an address; write # in a name as %23")
	}
	if name == "" {
		return invalid("name", "is empty; want memory://QUEUE")
	}
	return name, driver.CheckName(name)
}
