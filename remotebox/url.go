package remotebox

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
	"github.com/mailboxmq/mailbox/internal/tlsconfig"
)

// The schemes of addresses of daemons. Only mailbox.OpenURL knows the second, which is
// the first over TLS: a URLOpener has its own Options.TLS.
const (
	urlScheme       = "mailbox"
	urlSchemeSecure = "mailboxs"
)

// defaultPort is where a daemon listens for frames unless it is told otherwise.
const defaultPort = "9411"

// The variables that have the token of URLs without a parameter token_file.
const (
	tokenVariable     = "MAILBOX_TOKEN"
	tokenFileVariable = "MAILBOX_TOKEN_FILE"
)

func init() { driver.RegisterURL(readURL, urlScheme, urlSchemeSecure) }

// readURL reads a URL of mailbox.OpenURL. The token is in a file or in the
// environment: URLs are printed and logged.
func readURL(address *url.URL) (driver.URLTarget, error) {
	parameters, err := opening.ReadParameters(address, "token_file", "ca")
	if err != nil {
		return driver.URLTarget{}, err
	}
	plain := *address
	plain.Scheme, plain.RawQuery = urlScheme, ""
	if plain.Port() == "" && plain.Hostname() != "" {
		plain.Host = net.JoinHostPort(plain.Hostname(), defaultPort)
	}
	name, err := queueOf(&plain)
	if err != nil {
		return driver.URLTarget{}, err
	}
	options := &Options{}
	switch {
	case address.Scheme == urlSchemeSecure:
		if options.TLS, err = tlsconfig.Trusting(parameters.Get("ca")); err != nil {
			return driver.URLTarget{}, err
		}
	case parameters.Get("ca") != "":
		return driver.URLTarget{}, invalidURL("query", "parameter ca is for TLS; want mailboxs://HOST:PORT/QUEUE")
	case options.check(plain.Host) != nil:
		return driver.URLTarget{}, invalidURL("host", "is not on this machine, and without TLS the network can read the token; want mailboxs://HOST:PORT/QUEUE")
	}
	token, err := tokenOf(parameters.Get("token_file"))
	if err != nil {
		return driver.URLTarget{}, err
	}
	key := strings.Join([]string{address.Scheme, plain.Host, parameters.Get("ca"), token}, "\x00")
	return driver.URLTarget{Queue: name, Key: key, Open: func(ctx context.Context) (driver.Backend, error) {
		backend, err := Open(ctx, []string{plain.Host}, token, options)
		if err != nil {
			return nil, connectError(err)
		}
		return backend, nil
	}}, nil
}

// connectError says what to check when no connection can be made.
func connectError(err error) error {
	var e *driver.Error
	var plaintext tls.RecordHeaderError
	switch {
	case !errors.As(err, &e) || e.Code != driver.ErrUnavailable:
		return err
	case errors.As(err, &plaintext):
		return &driver.Error{Code: e.Code, Field: "host", Detail: "does not speak TLS; want mailbox://HOST:PORT/QUEUE", Err: err}
	}
	return &driver.Error{
		Code: e.Code, Field: "host", RetryAfter: e.RetryAfter, Err: err,
		Detail: "cannot connect to mailboxd; check that it runs, HOST:PORT (frames, " + defaultPort + " by default), and whether it wants TLS (mailboxs)",
	}
}

// tokenOf returns the token in the file, or else that of the environment.
func tokenOf(file string) (string, error) {
	source := "parameter token_file"
	if file == "" {
		if token := strings.TrimSpace(os.Getenv(tokenVariable)); token != "" {
			return token, nil
		}
		file, source = os.Getenv(tokenFileVariable), tokenFileVariable
	}
	if file == "" {
		return "", &driver.Error{
			Code: driver.ErrUnauthenticated, Op: "open", Field: "token",
			Detail: "is missing; name its file with ?token_file=FILE or " + tokenFileVariable + ", or set " + tokenVariable +
				" (a daemon writes one to operator.token in its data directory, mailbox cap mint makes narrower ones)",
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		if named, ok := errors.AsType[*fs.PathError](err); ok {
			err = named.Err // without the name, which may be a token by mistake
		}
		return "", &driver.Error{Code: driver.ErrUnauthenticated, Op: "open", Field: "token", Detail: source + " names a file that cannot be read", Err: err}
	}
	return strings.TrimSpace(string(text)), nil
}

// maxDaemons is how many daemons a URLOpener is connected to at once. Addresses come
// from clients, and each is a connection.
const maxDaemons = 64

// URLOpener returns a registry.Scheme: open, a function, safe for concurrent use, that
// opens the queue that an address like mailbox://host:port/name names. A server can keep
// the token that it is shown, and addresses come from senders of requests, so open connects
// only to the daemons in tokens, which has the token of each by host:port. It connects with
// the first queue of a daemon, all of them share the connection, and the last one ends it.
//
// A slash in the name is written as it is, other characters that an address cannot
// have are escaped. An address with a user, a query or a fragment, or without a host or
// a name, is refused. open blocks until the daemon has answered. Its codes are ErrInvalid,
// ErrForbidden (there is no token for the daemon), ErrFull (too many daemons), ErrClosed,
// and those of Backend.OpenQueue.
//
// closeAll ends the connections to all daemons, and so closes all their queues; open
// returns ErrClosed afterwards. closeAll blocks until that is done, and may be called again.
// URLOpener does no I/O.
func URLOpener(tokens map[string]string, options *Options) (
	open func(ctx context.Context, address *url.URL) (driver.Queue, error), closeAll func() error,
) {
	return urlOpener(tokens, options, &opening.Pool{Max: maxDaemons})
}

// urlOpener is URLOpener with the pool of daemons, by host:port.
func urlOpener(tokens map[string]string, options *Options, daemons *opening.Pool) (
	open func(ctx context.Context, address *url.URL) (driver.Queue, error), closeAll func() error,
) {
	open = func(ctx context.Context, address *url.URL) (driver.Queue, error) {
		name, err := queueOf(address)
		if err != nil {
			return nil, err
		}
		token, known := tokens[address.Host]
		if !known {
			return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "there is no token for this daemon"}
		}
		return daemons.OpenQueue(ctx, address.Host, name, func(context.Context) (driver.Backend, error) {
			return New([]string{address.Host}, token, options), nil
		})
	}
	return open, daemons.Close
}

// queueOf returns the name of the queue in an address, and refuses parts that an address
// of this scheme cannot have.
func queueOf(address *url.URL) (string, error) {
	var err error
	switch {
	case address.Scheme != urlScheme:
		err = invalidURL("scheme", "is not "+urlScheme)
	case address.Opaque != "":
		err = invalidURL("address", "has no //; want mailbox://HOST:PORT/QUEUE")
	case address.User != nil:
		err = invalidURL("user", "is not allowed in an address; a token is in a file or in the environment")
	case address.Hostname() == "" || address.Port() == "":
		err = invalidURL("host", "has no name or no port; want mailbox://HOST:PORT/QUEUE")
	case address.RawQuery != "" || address.ForceQuery:
		err = invalidURL("query", "is not allowed in an address; write ? in a name as %3F")
	case address.Fragment != "":
		err = invalidURL("fragment", "is not allowed in an address; write # in a name as %23")
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(address.Path, "/")
	if name == "" {
		return "", invalidURL("queue", "is missing; want mailbox://HOST:PORT/QUEUE")
	}
	return name, driver.CheckName(name)
}

func invalidURL(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}
