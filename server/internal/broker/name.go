package broker

import (
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// tenantMark begins the backend's names of topics that belong to a tenant, and
// ends the tenant in them. Names of tenants cannot contain it.
const tenantMark = "~"

// backendName is what the backend calls a topic: "~tenant~topic". A topic of no
// tenant keeps its own name, unless that begins like the name of a tenant's
// topic: then it is written as that of the tenant without a name, "~~~topic". So
// no two topics share a name, and no tenant can spell another's.
func backendName(tenant, topic string) (string, error) {
	if err := driver.CheckName(topic); err != nil {
		return "", err
	}
	if tenant == "" && !strings.HasPrefix(topic, tenantMark) {
		return topic, nil
	}
	name := tenantMark + tenant + tenantMark + topic
	if len(name) > driver.MaxNameBytes {
		limit := driver.MaxNameBytes - len(name) + len(topic)
		return "", &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "name",
			Detail: fmt.Sprintf("has %d bytes, at most %d are allowed beside the name of the tenant", len(topic), limit),
		}
	}
	return name, nil
}

// topicName is the reverse of backendName. ok is false for the topics of other
// tenants.
func topicName(tenant, name string) (topic string, ok bool) {
	if tenant == "" && !strings.HasPrefix(name, tenantMark) {
		return name, true
	}
	return strings.CutPrefix(name, tenantMark+tenant+tenantMark)
}

// keyOf is the reverse of backendName for topics of any tenant. ok is false for
// queues that are not topics.
func keyOf(name string) (key topicKey, ok bool) {
	rest, marked := strings.CutPrefix(name, tenantMark)
	if !marked {
		return topicKey{name: name}, true
	}
	tenant, topic, ok := strings.Cut(rest, tenantMark)
	return topicKey{tenant, topic}, ok
}

// Reserved returns a name for a queue of the daemon's own in a backend. No topic of
// any tenant has such a name: those that begin with a tilde have a second one. what
// has none.
func Reserved(what string) string { return tenantMark + what }

func isReserved(name string) bool {
	rest, marked := strings.CutPrefix(name, tenantMark)
	return marked && !strings.Contains(rest, tenantMark)
}

// BackendName returns the name of the queue that holds a topic, for who looks
// into a backend directly. The error is ErrInvalid: the topic cannot be named so.
func (b *Broker) BackendName(tenant, topic string) (string, error) { return backendName(tenant, topic) }
