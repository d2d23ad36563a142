package telemetry

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox"
)

// Other is the value of a label when too many others are in use.
const Other = "other"

// DefaultMaxTopics is how many names a label tells apart unless told otherwise.
const DefaultMaxTopics = 200

// names bounds the values of a label: the first that are seen are kept, and all later
// ones are Other. Every value is a time series for ever, and names of queues may come
// from outside.
type names struct {
	most  int64
	known sync.Map // of string to struct{}
	count atomic.Int64
}

func (n *names) bound(name string) string {
	if _, known := n.known.Load(name); known {
		return name
	}
	if n.count.Load() >= n.most {
		return Other
	}
	if n.count.Add(1) > n.most { // somebody else was faster
		n.count.Add(-1)
		return Other
	}
	if _, known := n.known.LoadOrStore(name, struct{}{}); known {
		n.count.Add(-1)
	}
	return name
}

// reasons are the words for errors in labels, in the order in which they are tried.
var reasons = []struct {
	code mailbox.Code
	word string
}{
	{mailbox.ErrFull, "saturated"},
	{mailbox.ErrTooLarge, "oversize"},
	{mailbox.ErrConflict, "duplicate"},
	{mailbox.ErrEncoding, "schema"},
	{mailbox.ErrInvalid, "invalid"},
	{mailbox.ErrReceiptExpired, "expired"},
	{mailbox.ErrSettled, "settled"},
	{mailbox.ErrNotFound, "not_found"},
	{mailbox.ErrUnsupported, "unsupported"},
	{mailbox.ErrClosed, "closed"},
	{mailbox.ErrUnavailable, "unavailable"},
}

// reason is the word for an error.
func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.code) {
			return r.word
		}
	}
	return Other
}
