package sqsbox

import (
	"context"
	"net/url"
	"strings"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// Regions opens queues by address, like sqs://eu-central-1/orders: its method OpenURI
// is a mailbox.Scheme. Addresses come from the senders of requests, so only regions that
// were added can be opened, through open backends and with the credentials of their
// clients. The zero value has no regions. It is safe for concurrent use.
type Regions struct {
	mu       sync.Mutex // guards backends
	backends map[string]*Backend
}

const scheme = "sqs"

// Add makes addresses that name region, like eu-central-1, open queues of backend, which
// the caller closes. It does no I/O. Codes: ErrInvalid, ErrConflict (the region was
// added before).
func (r *Regions) Add(region string, backend *Backend) error {
	region = strings.ToLower(region)
	if host := (&url.URL{Host: region}).Hostname(); region == "" || host != region || strings.ContainsAny(region, "/?#@ ") {
		return addressError("region", "is not the name of a region, like eu-central-1")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backends[region] != nil {
		return &driver.Error{Code: driver.ErrConflict, Op: "add", Field: "region", Detail: region + " was added before"}
	}
	if r.backends == nil {
		r.backends = make(map[string]*Backend)
	}
	r.backends[region] = backend
	return nil
}

// OpenURI opens the queue that an address like sqs://region/queue names. It blocks as
// OpenQueue does. An address with a user, a port or parameters is refused. Codes:
// ErrInvalid, ErrForbidden (its region was not added), and those of OpenQueue.
func (r *Regions) OpenURI(ctx context.Context, address *url.URL) (driver.Queue, error) {
	region, name, err := readAddress(address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	backend := r.backends[region]
	r.mu.Unlock()
	if backend == nil {
		return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "is not one of the regions that were added"}
	}
	return backend.OpenQueue(ctx, name)
}

func addressError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}

// readAddress returns the region and the queue that an address names.
func readAddress(address *url.URL) (region, name string, err error) {
	switch {
	case address.Scheme != scheme:
		err = addressError("scheme", "is not "+scheme)
	case address.Opaque != "" || address.Hostname() == "":
		err = addressError("host", "is missing: sqs://region/queue")
	case address.Port() != "":
		err = addressError("host", "has a port; want sqs://region/queue")
	case address.User != nil:
		err = addressError("user", "is not allowed in an address: the client of the region has the credentials")
	case address.RawQuery != "" || address.ForceQuery:
		err = addressError("query", "is not allowed in an address; write a question mark in a name as %3F")
	case address.Fragment != "":
		err = addressError("fragment", "is not allowed in an address; write a # in a name as %23")
	}
	if err != nil {
		return "", "", err
	}
	return strings.ToLower(address.Hostname()), strings.TrimPrefix(address.Path, "/"), nil
}
