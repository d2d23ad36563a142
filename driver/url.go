package driver

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// A Backend is an Opener that can be closed, with all of its queues.
type Backend interface {
	Opener
	// Close closes the queues and releases what the backend holds. It may block.
	// Closing twice is fine.
	Close() error
}

// A URLTarget is what a URL of trusted configuration names: a queue, and the
// backend that has it.
type URLTarget struct {
	// Queue is the name of the queue.
	Queue string
	// Key identifies the backend in this process: targets with the same scheme and
	// key share one. It may contain secrets, and is never printed.
	Key string
	// Open opens the backend. Closing it releases everything that Open made; a
	// failed Open leaves nothing behind. Its errors contain no secrets.
	Open func(ctx context.Context) (Backend, error)
}

// urlReaders are the registered readers by scheme.
var urlReaders struct {
	sync.RWMutex
	byScheme map[string]func(address *url.URL) (URLTarget, error)
}

// RegisterURL makes read the reader of URLs of the schemes, for mailbox.OpenURL.
// Backends call it when they are imported. It panics if a scheme is registered
// already, is not in lower case, or read is nil, as a program with such an import
// is wrong.
//
// read opens no connection and creates nothing. It refuses the parts that the scheme does
// not have, with ErrInvalid, the Field, and what to write instead; no secret of the URL is
// in its errors.
//
// These are URLs of trusted configuration. Addresses that come with messages are
// opened by registry.Schemes, which does not know what is registered here.
func RegisterURL(read func(address *url.URL) (URLTarget, error), schemes ...string) {
	urlReaders.Lock()
	defer urlReaders.Unlock()
	if urlReaders.byScheme == nil {
		urlReaders.byScheme = make(map[string]func(address *url.URL) (URLTarget, error))
	}
	for _, scheme := range schemes {
		if read == nil || scheme == "" || scheme != strings.ToLower(scheme) || urlReaders.byScheme[scheme] != nil {
			panic(fmt.Sprintf("driver: RegisterURL(%q): the scheme is registered already or not in lower case, or read is nil", scheme)) // runs before main
		}
		urlReaders.byScheme[scheme] = read
	}
}

// URLSchemes returns the registered schemes, in order.
func URLSchemes() []string {
	urlReaders.RLock()
	defer urlReaders.RUnlock()
	return slices.Sorted(maps.Keys(urlReaders.byScheme))
}

// ReadURL reads a URL of a registered scheme. Codes: ErrUnresolved (the scheme is
// not registered), and those of the reader.
func ReadURL(address *url.URL) (URLTarget, error) {
	urlReaders.RLock()
	read := urlReaders.byScheme[address.Scheme]
	urlReaders.RUnlock()
	if read == nil {
		return URLTarget{}, &Error{Code: ErrUnresolved, Op: "open", Field: "scheme", Detail: fmt.Sprintf("%q is not registered", address.Scheme)}
	}
	return read(address)
}
