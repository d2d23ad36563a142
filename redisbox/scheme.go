package redisbox

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// Servers opens queues by address, like redis://cache.local:6379/orders: its method
// OpenURI is a mailbox.Scheme. Addresses come from whoever sends a request, so they
// lead only to servers that were added, through backends that are open, with the
// credentials of their clients. The zero value has no servers. It is safe for
// concurrent use.
//
// The schemes are redis, rediss, redis+sentinel and redis+cluster. What an address
// leads to is up to who added it; the scheme is part of the name. The port is 6379
// unless the address has another, and the database is 0 unless it has a parameter
// db.
type Servers struct {
	mu       sync.Mutex // guards backends
	backends map[string]*Backend
}

// schemes are those of addresses in Redis.
var schemes = []string{"redis", "rediss", "redis+sentinel", "redis+cluster"}

const defaultPort = "6379"

// Add makes addresses that begin with address, like redis://cache.local:6379 or
// redis://cache.local?db=2, lead to backend, which stays the caller's to close. It
// does no I/O. Codes: ErrInvalid, ErrConflict (it leads somewhere already).
func (s *Servers) Add(address string, backend *Backend) error {
	parsed, err := url.Parse(address)
	if err != nil {
		return addressError("address", "is not a valid URI") // what the parser says may repeat a password
	}
	server, name, err := readAddress(parsed)
	if err == nil && name != "" {
		err = addressError("address", "is to name a server, and not a queue")
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backends[server] != nil {
		return &driver.Error{Code: driver.ErrConflict, Op: "add", Field: "address", Detail: server + " leads somewhere already"}
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
		return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "is not one of the servers that may be used"}
	}
	return backend.OpenQueue(ctx, name)
}

func addressError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}

// readAddress returns the server that an address leads to, written in one way only,
// and the name of the queue. It refuses what an address of these schemes cannot
// have.
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
		err = addressError("scheme", "is none of "+strings.Join(schemes, ", "))
	case address.Opaque != "" || address.Hostname() == "":
		err = addressError("host", "is missing: redis://host:port/name")
	case address.User != nil:
		err = addressError("user", "does not belong in an address: the server's client has one")
	case address.Fragment != "":
		err = addressError("fragment", "an address has none; a # in a name is written %23")
	case err != nil || len(parameters) > 0:
		err = addressError("query", "an address has one parameter at most, db; a question mark in a name is written %3F")
	case notNumber != nil:
		err = addressError("db", "is not the number of a database")
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
