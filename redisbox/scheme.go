package redisbox

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// Servers opens queues by address, like redis://cache.local:6379/orders: its method
// OpenURI is a mailbox.Scheme. Addresses come from clients, so they lead only to servers
// that were added, through backends that are open, with the credentials of their
// clients. The zero value has no servers. It is safe for concurrent use.
//
// The schemes are redis, rediss, redis+sentinel and redis+cluster. The backend that was
// added for an address decides where it leads; the scheme is part of the name. The port
// is 6379 unless the address has another, and the database is 0 unless it has a
// parameter db.
type Servers struct {
	mu       sync.Mutex // guards backends
	backends map[string]*Backend
}

// schemes are the schemes of addresses in Redis.
var schemes = []string{"redis", "rediss", "redis+sentinel", "redis+cluster"}

const defaultPort = "6379"

// Add makes addresses that begin with address, like redis://cache.local:6379 or
// redis://cache.local?db=2, lead to backend, which the caller closes. It does no I/O.
// Codes: ErrInvalid, ErrConflict (the address was added before).
func (s *Servers) Add(address string, backend *Backend) error {
	parsed, err := url.Parse(address)
	if err != nil {
		return addressError("address", "is not a valid URI") // the parser's error may repeat a password
	}
	server, name, err := readAddress(parsed)
	if err == nil && name != "" {
		err = addressError("address", "names a queue; want only the server, like redis://HOST:PORT")
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backends[server] != nil {
		return &driver.Error{Code: driver.ErrConflict, Op: "add", Field: "address", Detail: server + " was added before"}
	}
	if s.backends == nil {
		s.backends = make(map[string]*Backend)
	}
	s.backends[server] = backend
	return nil
}

// OpenURI opens the queue that an address like redis://host:port/name?db=0 names.
// It blocks as OpenQueue does. An address with a user, a password or a parameter
// other than db is refused. Codes: ErrInvalid, ErrForbidden (its server was not
// added), and those of OpenQueue.
func (s *Servers) OpenURI(ctx context.Context, address *url.URL) (driver.Queue, error) {
	server, name, err := readAddress(address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	backend := s.backends[server]
	s.mu.Unlock()
	if backend == nil {
		return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "is not a server that was added"}
	}
	return backend.OpenQueue(ctx, name)
}

func addressError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}

// readAddress returns the server of an address in its canonical form, and the name of
// the queue. It refuses parts that an address of these schemes cannot have.
func readAddress(address *url.URL) (server, name string, err error) {
	parameters, err := url.ParseQuery(address.RawQuery)
	database := "0"
	if given := parameters["db"]; len(given) == 1 {
		database = given[0]
		delete(parameters, "db")
	}
	number, notNumber := strconv.ParseUint(database, 10, 16)
	switch {
	case !slices.Contains(schemes, address.Scheme):
		err = addressError("scheme", fmt.Sprintf("%q is unknown; want %s", address.Scheme, strings.Join(schemes, ", ")))
	case address.Opaque != "" || address.Hostname() == "":
		err = addressError("host", "is missing; want redis://HOST:PORT/QUEUE")
	case address.User != nil:
		err = addressError("user", "is not allowed in an address; set it on the server's client")
	case address.Fragment != "":
		err = addressError("fragment", "is not allowed in an address; write # in a name as %23")
	case err != nil || len(parameters) > 0:
		err = addressError("query", "only the parameter db is allowed; write ? in a name as %3F")
	case notNumber != nil:
		err = addressError("db", fmt.Sprintf("%q is not the number of a database", database))
	}
	if err != nil {
		return "", "", err
	}
	port := address.Port()
	if port == "" {
		port = defaultPort
	}
	server = address.Scheme + "://" + net.JoinHostPort(strings.ToLower(address.Hostname()), port) + "?db=" + strconv.FormatUint(number, 10)
	return server, strings.TrimPrefix(address.Path, "/"), nil
}
