package telemetry

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox"
)

// Other is the label value of every name beyond the limit.
const Other = "other"

// DefaultMaxQueues is the default limit on distinct queue names in a label.
const DefaultMaxQueues = 200

// names bounds the values of a label: the first names are kept, all later ones become
// Other. Each value is a time series that lives as long as the process, and queue names
// may come from outside.
type names struct {
	most  int64
	known sync.Map // of string to struct{}
	count atomic.Int64
}

// bound returns name, or Other if the limit is reached.
func (n *names) bound(name string) string {
	if _, known := n.known.Load(name); known {
		return name
	}
	if n.count.Load() >= n.most {
		return Other
	}
	if n.count.Add(1) > n.most { // another goroutine took the last one
		n.count.Add(-1)
		return Other
	}
	if _, known := n.known.LoadOrStore(name, struct{}{}); known {
		n.count.Add(-1)
	}
	return name
}

// reasons maps error codes to label values. The first code that matches wins.
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

// reason returns the label value for an error.
func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.code) {
			return r.word
		}
	}
	return Other
}
