package diskbox

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
)

const urlScheme = "disk"

func init() { driver.RegisterURL(readURL, urlScheme) }

// readURL reads a URL of mailbox.OpenURL. URLs with the same directory share one
// backend, since a directory can be open only once.
func readURL(address *url.URL) (driver.URLTarget, error) {
	name, err := queueOf(address)
	if err != nil {
		return driver.URLTarget{}, err
	}
	dir, err := plainDirectory(filepath.Clean(address.Path))
	if err != nil {
		return driver.URLTarget{}, err
	}
	return driver.URLTarget{Queue: name, Key: dir, Open: openDirectory(dir, nil)}, nil
}

// openDirectory returns the function that opens dir.
func openDirectory(dir string, options *Options) func(context.Context) (driver.Backend, error) {
	return func(ctx context.Context) (driver.Backend, error) {
		backend, err := Open(ctx, dir, options)
		if err != nil {
			return nil, err // not a driver.Backend with a nil pointer in it
		}
		return backend, nil
	}
}

// maxDirectories is how many directories a URLOpener has open at once. Each is a store
// with memory and goroutines of its own, and addresses may come from a client.
const maxDirectories = 16

// URLOpener returns a registry.Scheme: open, a function, safe for concurrent use, that
// opens the queue that an address like disk:///var/lib/shop?queue=orders names. Addresses
// may come from a client, so only the directories in within, which are absolute, and
// directories inside them are opened, with options. A directory is opened with the first
// of its queues, shared by all of them, and closed with the last. An address that names a
// host, a user, or a parameter other than queue is refused. open blocks while a directory
// is opened; cancelling its context abandons that. Its codes are ErrInvalid, ErrForbidden
// (the directory is not within those allowed), ErrFull (too many directories are open),
// ErrClosed, and those of Open.
//
// A directory can be open only once, so addresses of a directory in share use its backend,
// which the caller closes. closeAll closes the other directories and all queues, and open
// returns ErrClosed afterwards. closeAll blocks until that is done, and may be called again.
//
// URLOpener itself opens nothing. Codes: ErrInvalid, ErrForbidden (a directory in share is
// not within), ErrConflict (it is there twice), ErrFull.
func URLOpener(within []string, options *Options, share map[string]*Backend) (
	open func(ctx context.Context, address *url.URL) (driver.Queue, error), closeAll func() error, err error,
) {
	directories := &opening.Pool{Max: maxDirectories} // by directory
	for given, backend := range share {
		dir, err := allowed(within, given)
		if err == nil {
			err = directories.Share(dir, backend)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	open = func(ctx context.Context, address *url.URL) (driver.Queue, error) {
		name, err := queueOf(address)
		if err != nil {
			return nil, err
		}
		dir, err := allowed(within, address.Path)
		if err != nil {
			return nil, err
		}
		return directories.OpenQueue(ctx, dir, name, openDirectory(dir, options))
	}
	return open, directories.Close, nil
}

// queueOf returns the name of the queue in an address, and refuses parts that an address
// of this scheme cannot have.
func queueOf(address *url.URL) (string, error) {
	invalid := func(field, detail string) (string, error) {
		return "", &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
	}
	switch {
	case address.Scheme != urlScheme:
		return invalid("scheme", "is not "+urlScheme)
	case address.Opaque != "":
		return invalid("address", "has no //; want disk:///DIRECTORY?queue=QUEUE, with an absolute directory")
	case address.User != nil:
		return invalid("user", "a directory has no users; want disk:///DIRECTORY?queue=QUEUE")
	case address.Host != "":
		return invalid("host", "a directory is on this machine; want three slashes, disk:///DIRECTORY?queue=QUEUE")
	case address.Fragment != "":
		return invalid("fragment", "is not allowed in an address; write # in a name as %23")
	}
	parameters, err := opening.ReadParameters(address, "queue")
	if err != nil {
		return "", err
	}
	if parameters.Get("queue") == "" {
		return invalid("query", "parameter queue is missing; want disk:///DIRECTORY?queue=QUEUE")
	}
	return parameters.Get("queue"), driver.CheckName(parameters.Get("queue"))
}

// plainDirectory returns dir with all its symbolic links resolved, so that one directory
// has one name.
func plainDirectory(dir string) (string, error) {
	if !filepath.IsAbs(dir) || dir != filepath.Clean(dir) || strings.ContainsRune(dir, 0) {
		return "", &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "dir",
			Detail: "is not a plain absolute path; want disk:///DIRECTORY?queue=QUEUE, without . and .. and a / at the end",
		}
	}
	found, err := followLinks(dir)
	if err != nil {
		return "", &driver.Error{Code: driver.ErrUnavailable, Op: "open", Field: "dir", Err: err}
	}
	return found, nil
}

// allowed is plainDirectory, and refuses a directory that is not within those allowed.
func allowed(within []string, dir string) (string, error) {
	where, err := plainDirectory(dir)
	switch {
	case errors.Is(err, driver.ErrInvalid):
		return "", err
	case err != nil:
		where = dir // the error says what exists, so it is only for directories that are allowed
	}
	for _, base := range within {
		base, unreadable := followLinks(filepath.Clean(base))
		if unreadable != nil {
			continue
		}
		if inside, outside := filepath.Rel(base, where); outside == nil && filepath.IsLocal(inside) {
			return where, err
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
