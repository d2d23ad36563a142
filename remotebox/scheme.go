package remotebox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// MaxDaemons is how many daemons a Daemons is connected to at once. Addresses come
// from others, and each is a connection.
const MaxDaemons = 64

// Daemons opens queues by address, like mailbox://host:port/name: its method
// OpenURI is a mailbox.Scheme. A server can keep the token that it is
// shown, and addresses come from senders of requests, so it connects only to the
// daemons that it was given a token for.
//
// A daemon is connected to with the first of its queues, shared by all of them,
// and left with the last. Make one with NewDaemons. It is safe for concurrent
// use.
type Daemons struct {
	tokens  map[string]string
	options *Options

	mu     sync.Mutex // guards the fields below
	open   map[string]*daemon
	closed bool
}

// A daemon is one that is connected to.
type daemon struct {
	backend *Backend
	queues  int
}

// NewDaemons returns daemons of which none is connected to. tokens has the token
// for each daemon that may be, by host:port. It does no I/O.
func NewDaemons(tokens map[string]string, options *Options) *Daemons {
	return &Daemons{tokens: tokens, options: options, open: make(map[string]*daemon)}
}

// OpenURI opens the queue that an address like mailbox://host:port/name names. A
// slash in the name is written as it is, other characters that an address cannot
// have are escaped. It blocks until the daemon has answered. An address with a
// user, a query or a fragment, or without a host or a name, is refused. Codes:
// ErrInvalid, ErrForbidden (there is no token for the daemon), ErrFull (too many
// daemons), ErrClosed, and those of Backend.OpenQueue.
func (d *Daemons) OpenURI(ctx context.Context, address *url.URL) (driver.Queue, error) {
	name, err := queueOf(address)
	if err != nil {
		return nil, err
	}
	host := address.Host
	backend, err := d.enter(host, name)
	if err != nil {
		return nil, err
	}
	opened, err := backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, errors.Join(err, d.leave(host))
	}
	return &queueOfDaemon{Queue: opened, leave: func() error { return d.leave(host) }}, nil
}

// queueOf reads the name of the queue from an address, and refuses what an
// address of this scheme cannot have.
func queueOf(address *url.URL) (string, error) {
	invalid := func(field, detail string) (string, error) {
		return "", &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
	}
	switch {
	case address.Scheme != "mailbox":
		return invalid("scheme", "is not mailbox")
	case address.Opaque != "":
		return invalid("address", "wants two slashes: mailbox://host:port/name")
	case address.User != nil:
		return invalid("user", "a token is not part of an address")
	case address.Hostname() == "" || address.Port() == "":
		return invalid("host", "wants host and port: mailbox://host:port/name")
	case address.RawQuery != "" || address.ForceQuery:
		return invalid("query", "an address has none; a question mark in a name is written %3F")
	case address.Fragment != "":
		return invalid("fragment", "an address has none; a # in a name is written %23")
	}
	name := strings.TrimPrefix(address.Path, "/")
	return name, driver.CheckName(name)
}

// enter begins the use of a daemon by one queue.
func (d *Daemons) enter(host, name string) (*Backend, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	token, known := d.tokens[host]
	opened := d.open[host]
	switch {
	case d.closed:
		return nil, closedError("open", name)
	case !known:
		return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "there is no token for this daemon"}
	case opened == nil && len(d.open) >= MaxDaemons:
		return nil, &driver.Error{
			Code: driver.ErrFull, Op: "open", Field: "host", RetryAfter: time.Second,
			Detail: fmt.Sprintf("%d daemons are connected to", len(d.open)),
		}
	case opened == nil:
		opened = &daemon{backend: New([]string{host}, token, d.options)}
		d.open[host] = opened
	}
	opened.queues++
	return opened.backend, nil
}

// leave ends the use of a daemon by one queue.
func (d *Daemons) leave(host string) error {
	d.mu.Lock()
	opened := d.open[host]
	if opened == nil { // Close was here
		d.mu.Unlock()
		return nil
	}
	if opened.queues--; opened.queues > 0 {
		d.mu.Unlock()
		return nil
	}
	delete(d.open, host)
	d.mu.Unlock()
	return opened.backend.Close()
}

// Close leaves all daemons, and so closes all their queues. Nothing can be opened
// from then on. It blocks until that is done. Closing twice is fine.
func (d *Daemons) Close() error {
	d.mu.Lock()
	d.closed = true
	open := d.open
	d.open = make(map[string]*daemon)
	d.mu.Unlock()
	var err error
	for _, opened := range open {
		err = errors.Join(err, opened.backend.Close())
	}
	return err
}

// queueOfDaemon is a queue whose daemon is left with the last of them.
type queueOfDaemon struct {
	driver.Queue
	leave func() error
	done  atomic.Bool
}

func (q *queueOfDaemon) Close() error {
	err := q.Queue.Close()
	if q.done.Swap(true) {
		return err
	}
	return errors.Join(err, q.leave())
}
