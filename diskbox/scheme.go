package diskbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// MaxDirectories is how many directories a Directories has open at once. Each is a store
// with memory and goroutines of its own, and addresses may come from a client.
const MaxDirectories = 16

// Directories opens queues by address, like disk:///var/lib/shop?queue=orders:
// its method OpenURI is a mailbox.Scheme. Addresses may come from a client, so only
// directories within those given to NewDirectories are opened.
//
// A directory is opened with the first of its queues, shared by all of them,
// and closed with the last. Make one with NewDirectories. It is safe for
// concurrent use.
type Directories struct {
	within  []string
	options *Options

	// turn is held while a directory is opened or closed, and guards the fields
	// below. It is a channel because that takes I/O, and waiting for it has to
	// end with a context.
	turn   chan struct{}
	open   map[string]*directory
	closed bool
}

// A directory is an open directory.
type directory struct {
	backend *Backend
	queues  int
	shared  bool // by Share: not ours to close
}

// NewDirectories returns directories of which none is open. Those within any of
// the directories in within, which are absolute, and these themselves, can be
// opened, with options. It does no I/O.
func NewDirectories(within []string, options *Options) *Directories {
	return &Directories{
		within: within, options: options,
		turn: make(chan struct{}, 1), open: make(map[string]*directory),
	}
}

// Share makes addresses of dir use backend, which has it open already: a directory can be
// open only once. The backend stays the caller's to close.
// Codes: ErrInvalid (dir is not within), ErrConflict (it is open).
func (d *Directories) Share(dir string, backend *Backend) error {
	dir, err := d.allowed(dir)
	if err != nil {
		return err
	}
	d.turn <- struct{}{}
	defer d.endTurn()
	if d.open[dir] != nil {
		return &driver.Error{Code: driver.ErrConflict, Op: "share", Field: "dir", Detail: "is open"}
	}
	d.open[dir] = &directory{backend: backend, shared: true}
	return nil
}

// OpenURI opens the queue of an address such as disk:///dir?queue=name. It blocks while
// its directory is opened; cancelling ctx abandons it. An
// address that names a host, a user, or a parameter other than queue is
// refused. Codes: ErrInvalid, ErrForbidden (the directory is not within those
// allowed), ErrFull (too many directories are open), ErrClosed, and those of
// Open.
func (d *Directories) OpenURI(ctx context.Context, address *url.URL) (driver.Queue, error) {
	name, err := queueOf(address)
	if err != nil {
		return nil, err
	}
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	dir, err := d.allowed(address.Path)
	if err != nil {
		return nil, err
	}
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer d.endTurn()
	if d.closed {
		return nil, &driver.Error{Code: driver.ErrClosed, Op: "open", Queue: name}
	}
	opened, err := d.enterInTurn(ctx, dir)
	if err != nil {
		return nil, err
	}
	queue, err := opened.backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, errors.Join(err, d.leaveInTurn(dir))
	}
	return &queueOfDirectory{Queue: queue, leave: func() error { return d.leave(dir) }}, nil
}

// Close closes all open directories and their queues, except shared ones. Later calls of
// OpenURI return ErrClosed. It blocks until that is done. Closing twice is fine.
func (d *Directories) Close() error {
	d.turn <- struct{}{}
	defer d.endTurn()
	d.closed = true
	var err error
	for dir, opened := range d.open {
		if !opened.shared {
			err = errors.Join(err, opened.backend.Close())
		}
		delete(d.open, dir)
	}
	return err
}

func (d *Directories) endTurn() { <-d.turn }

// enterInTurn opens a directory for one queue, or uses the open one.
func (d *Directories) enterInTurn(ctx context.Context, dir string) (*directory, error) {
	opened := d.open[dir]
	if opened == nil {
		if len(d.open) >= MaxDirectories {
			return nil, &driver.Error{
				Code: driver.ErrFull, Op: "open", Field: "dir",
				Detail: fmt.Sprintf("%d directories are open", len(d.open)), RetryAfter: time.Second,
			}
		}
		backend, err := Open(ctx, dir, d.options)
		if err != nil {
			return nil, err
		}
		opened = &directory{backend: backend}
		d.open[dir] = opened
	}
	opened.queues++
	return opened, nil
}

// leave releases a directory for one queue, and closes it after the last.
func (d *Directories) leave(dir string) error {
	d.turn <- struct{}{}
	defer d.endTurn()
	return d.leaveInTurn(dir)
}

func (d *Directories) leaveInTurn(dir string) error {
	opened := d.open[dir]
	if opened == nil { // Close was here
		return nil
	}
	opened.queues--
	if opened.queues > 0 || opened.shared {
		return nil
	}
	delete(d.open, dir)
	return opened.backend.Close()
}

// queueOf returns the name of the queue in an address, and refuses parts that an address
// of this scheme cannot have.
func queueOf(address *url.URL) (string, error) {
	invalid := func(field, detail string) (string, error) {
		return "", &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
	}
	parameters, err := url.ParseQuery(address.RawQuery)
	names := parameters["queue"]
	switch {
	case address.Scheme != "disk":
		return invalid("scheme", "is not disk")
	case address.Opaque != "":
		return invalid("address", "wants three slashes: disk:///dir?queue=name")
	case address.User != nil:
		return invalid("user", "a directory has no users")
	case address.Host != "":
		return invalid("host", "a directory is on this machine; an absolute one is written disk:///dir")
	case address.Fragment != "":
		return invalid("fragment", "an address has none; a # in a name is written %23")
	case err != nil || len(names) != 1 || len(parameters) != 1:
		return invalid("query", "wants one parameter, queue: disk:///dir?queue=name")
	}
	return names[0], nil
}

// allowed resolves all symbolic links of dir, and refuses a directory that is not within
// those allowed.
func (d *Directories) allowed(dir string) (string, error) {
	if !filepath.IsAbs(dir) || dir != filepath.Clean(dir) || strings.ContainsRune(dir, 0) {
		return "", &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "dir", Detail: "is not a plain absolute path"}
	}
	where, err := followLinks(dir)
	if err != nil {
		return "", &driver.Error{Code: driver.ErrUnavailable, Op: "open", Field: "dir", Err: err}
	}
	for _, base := range d.within {
		base, err := followLinks(filepath.Clean(base))
		if err != nil {
			continue // a directory that does not exist contains nothing
		}
		if inside, err := filepath.Rel(base, where); err == nil && filepath.IsLocal(inside) {
			return where, nil
		}
	}
	return "", &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "dir", Detail: "is not within the directories that may be opened"}
}

// followLinks resolves the symbolic links of the part of a path that exists.
func followLinks(path string) (string, error) {
	rest := ""
	for {
		found, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(found, rest), nil
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || parent == path {
			return "", err
		}
		rest = filepath.Join(filepath.Base(path), rest)
		path = parent
	}
}

// queueOfDirectory is a queue that closes its directory with the last queue.
type queueOfDirectory struct {
	driver.Queue
	leave func() error
	done  atomic.Bool
}

func (q *queueOfDirectory) Close() error {
	err := q.Queue.Close()
	if q.done.Swap(true) {
		return err
	}
	return errors.Join(err, q.leave())
}
