package broker

import (
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// tenantMark begins the backend's names of queues that belong to a tenant, and
// ends the tenant in them. Names of tenants cannot contain it.
const tenantMark = "~"

// backendName is what the backend calls a queue: "~tenant~queue". A queue of no
// tenant keeps its own name, unless that begins like the name of a tenant's
// queue: then it is written as that of the tenant without a name, "~~~queue". So
// no two queues share a name, and no tenant can spell another's.
func backendName(tenant, queue string) (string, error) {
	if err := driver.CheckName(queue); err != nil {
		return "", err
	}
	if tenant == "" && !strings.HasPrefix(queue, tenantMark) {
		return queue, nil
	}
	name := tenantMark + tenant + tenantMark + queue
	if len(name) > driver.MaxNameBytes {
		limit := driver.MaxNameBytes - len(name) + len(queue)
		return "", &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "name",
			Detail: fmt.Sprintf("has %d bytes, at most %d are allowed beside the name of the tenant", len(queue), limit),
		}
	}
	return name, nil
}

// queueName is the reverse of backendName. ok is false for the queues of other
// tenants.
func queueName(tenant, name string) (queue string, ok bool) {
	if tenant == "" && !strings.HasPrefix(name, tenantMark) {
		return name, true
	}
	return strings.CutPrefix(name, tenantMark+tenant+tenantMark)
}

// keyOf is the reverse of backendName for queues of any tenant. ok is false for
// queues that are not queues.
func keyOf(name string) (key queueKey, ok bool) {
	rest, marked := strings.CutPrefix(name, tenantMark)
	if !marked {
		return queueKey{name: name}, true
	}
	tenant, queue, ok := strings.Cut(rest, tenantMark)
	return queueKey{tenant, queue}, ok
}

// Reserved returns a name for a queue of the daemon's own in a backend. No queue of
// any tenant has such a name: those that begin with a tilde have a second one. what
// has none.
func Reserved(what string) string { return tenantMark + what }

func isReserved(name string) bool {
	rest, marked := strings.CutPrefix(name, tenantMark)
	return marked && !strings.Contains(rest, tenantMark)
}

// BackendName returns the name of the queue that holds a queue, for who looks
// into a backend directly. The error is ErrInvalid: the queue cannot be named so.
func (b *Broker) BackendName(tenant, queue string) (string, error) { return backendName(tenant, queue) }
