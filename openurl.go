package mailbox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/identifier"
	"github.com/mailboxmq/mailbox/internal/opening"
)

// modulePath is the path of this module, for advice on imports.
const modulePath = "github.com/mailboxmq/mailbox/"

// urlPackages are the packages of this module that register schemes for OpenURL.
var urlPackages = map[string]string{
	"memory": "membox", "disk": "diskbox", "sqs": "sqsbox", "mailbox": "remotebox", "mailboxs": "remotebox",
	"postgres": "pgbox", "postgresql": "pgbox", "redis": "redisbox", "rediss": "redisbox", "redis+sentinel": "redisbox", "redis+cluster": "redisbox",
}

// openBackends are the backends that OpenURL has open.
var openBackends opening.Pool

// OpenURL opens the queue that a URL names, and the backend that has it, and returns a
// mailbox on the queue:
//
//	orders, err := mailbox.OpenURL[Order](ctx, "disk:///var/lib/shop?queue=orders", nil)
//
// The scheme chooses the backend, whose package must be imported, for its side effect if
// for nothing else:
//
//	import _ "github.com/mailboxmq/mailbox/diskbox"
//
//	memory://QUEUE                            membox
//	disk:///DIRECTORY?queue=QUEUE             diskbox
//	redis://HOST:PORT/QUEUE?db=0              redisbox; also rediss, redis+sentinel, redis+cluster
//	postgres://HOST:PORT/DATABASE/QUEUE       pgbox
//	sqs://REGION/QUEUE                        sqsbox
//	mailbox://HOST:PORT/QUEUE?token_file=FILE remotebox; mailboxs is the same over TLS
//
// docs/urls.md has all parameters. The name of the mailbox is that of the queue.
//
// Mailboxes of one directory, server, region or daemon share a backend in this process.
// It is closed with the last of them; until then its queues stay, those of memory://
// included. A failed OpenURL leaves nothing open. To configure a backend in other ways,
// open it with its package, and use Open.
//
// The URL is configuration, and trusted: it can create any directory and connect to any
// server. Never pass an address that came with a message or from a client; for those
// there is package registry, which opens only what it was given.
//
// It blocks on I/O, and ends with ctx. Codes: ErrInvalid (a part of the URL, named by the
// Field), ErrUnresolved (the scheme is not registered), and those of the backend. Errors
// contain no password.
func OpenURL[T any](ctx context.Context, rawURL string, options *Options[T]) (*Mailbox[T], error) {
	if ctx == nil {
		return nil, &Error{Code: ErrInvalid, Op: opOpen, Field: "ctx", Detail: "is nil"}
	}
	address, err := parseTrustedURL(rawURL)
	if err != nil {
		return nil, err
	}
	target, err := driver.ReadURL(address)
	if errors.Is(err, ErrUnresolved) {
		return nil, unregistered(address)
	}
	if err != nil {
		return nil, located(err, address)
	}
	backend, release, err := openBackends.Acquire(ctx, address.Scheme+"\x00"+target.Key, target.Open)
	if err != nil {
		return nil, located(err, address)
	}
	mailbox, err := Open(ctx, backend, target.Queue, options)
	if err != nil {
		if failed := release(); failed != nil {
			err = errors.Join(err, failed)
		}
		return nil, located(err, address)
	}
	mailbox.release = release
	return mailbox, nil
}

// parseTrustedURL parses a URL. It refuses one that may have a password in the wrong
// place, where others would print it.
func parseTrustedURL(rawURL string) (*url.URL, error) {
	invalid := func(detail string) error {
		return &Error{Code: ErrInvalid, Op: opOpen, Field: "url", Detail: detail}
	}
	scheme, rest, found := strings.Cut(rawURL, "://")
	if !found || scheme == "" {
		return nil, invalid("has no SCHEME://; want a URL like memory://QUEUE or redis://HOST:PORT/QUEUE (" + registeredSchemes() + ")")
	}
	address, err := url.Parse(rawURL)
	if err != nil {
		// The parser's error repeats the URL.
		return nil, invalid("cannot be read; want SCHEME://HOST:PORT/QUEUE, with /, ?, #, @ and % in a password or a name as %2F, %3F, %23, %40 and %25")
	}
	if identifier.HasLateAt(rest) {
		return nil, invalid("has an @ behind the host; write /, ?, # and @ in a password or a name as %2F, %3F, %23 and %40")
	}
	return address, nil
}

// unregistered is the error for a URL whose scheme no imported package has registered.
func unregistered(address *url.URL) error {
	detail := fmt.Sprintf("%.40q is not registered; ", address.Scheme)
	if name, ours := urlPackages[address.Scheme]; ours {
		detail += fmt.Sprintf("add import _ %q", modulePath+name)
	} else {
		detail += "import the package of a backend that has it"
	}
	return &Error{Code: ErrUnresolved, Op: opOpen, Field: "scheme", Detail: detail + " (" + registeredSchemes() + ")"}
}

// registeredSchemes lists the registered schemes for an error.
func registeredSchemes() string {
	schemes := driver.URLSchemes()
	if len(schemes) == 0 {
		return `no scheme is registered; add import _ "` + modulePath + `membox" or another backend's package`
	}
	return "registered: " + strings.Join(schemes, ", ")
}

// located adds the URL to an error that names no queue, without the user, the password
// and the parameters.
func located(err error, address *url.URL) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*Error](err); !ok {
		return &Error{Code: ErrUnavailable, Op: opOpen, Queue: withoutSecrets(address), Err: err}
	}
	return driver.Annotate(err, withoutSecrets(address), opOpen)
}

// withoutSecrets returns scheme, host and path of a URL.
func withoutSecrets(address *url.URL) string {
	plain := url.URL{Scheme: address.Scheme, Host: address.Host, Path: address.Path}
	return identifier.Printable(plain.String())
}
