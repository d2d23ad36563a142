package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/identifier"
)

// A prefixOpener puts a prefix before every name.
type prefixOpener struct {
	opener  driver.Opener
	prefix  string
	problem string // why the prefix is invalid
}

const (
	// prefixSeparators are the last characters of prefixes; names do not contain them.
	prefixSeparators = ":/"
	// segmentSeparator joins the segments of a name, and segmentMark replaces it in the
	// backend.
	segmentSeparator, segmentMark = ":", "~"
)

// NewPrefix returns an opener of the queues of backend whose names begin with prefix. The
// prefix ends with ":" or "/", and consists of the characters of names and these two. It
// does no I/O. OpenQueue returns an error if the prefix is invalid. Pass the opener to a
// tenant instead of the backend, or as the fallback of a Registry for the tenant, so that
// it can open only queues whose names begin with the prefix.
//
// Names are restricted: segments of ASCII letters and digits, "-", "_" and ".", joined by
// ":", but not "." and ".." alone, and not those of reply slots. So no path, URI or
// Unicode normalisation in a backend can change their meaning. In the backend, each ":" of
// a name is a "~". The last character of a prefix therefore never occurs after it, and
// two different prefixes never lead to the same queue: "a:" with "b:c" is "a:b~c", and
// "a:b:" with "c" is "a:b:c".
//
// OpenQueue blocks, and fails, as the backend does. Codes: ErrInvalid (the name or the
// prefix), those of the backend.
func NewPrefix(backend driver.Opener, prefix string) driver.Opener {
	return &prefixOpener{opener: backend, prefix: prefix, problem: prefixProblem(backend, prefix)}
}

// OpenQueue opens the queue called name within the prefix.
func (p *prefixOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if p.problem != "" {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: "open", Queue: identifier.Printable(name), Field: "prefix", Detail: p.problem}
	}
	if problem := p.nameProblem(name); problem != "" {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: "open", Queue: identifier.Printable(name), Field: "name", Detail: problem}
	}
	queue, err := p.opener.OpenQueue(ctx, p.backendName(name))
	if err != nil {
		return nil, err
	}
	return &prefixQueue{Queue: queue, prefix: p, name: name}, nil
}

// backendName returns the name in the backend of the queue called name.
func (p *prefixOpener) backendName(name string) string {
	return p.prefix + strings.ReplaceAll(name, segmentSeparator, segmentMark)
}

// prefixQueue is a queue whose messages stay within the prefix.
type prefixQueue struct {
	driver.Queue
	prefix *prefixOpener
	name   string
}

// Move takes the name of a queue within the prefix. It refuses an empty name: the queue
// that a message would return to is in an attribute, which a sender can set to any name.
func (q *prefixQueue) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if problem := q.prefix.nameProblem(to); problem != "" {
		return 0, &driver.Error{Code: driver.ErrInvalid, Op: "move", Queue: identifier.Printable(q.name), Field: "to", Detail: problem}
	}
	return q.Queue.Move(ctx, q.prefix.backendName(to), limit)
}

func prefixProblem(backend driver.Opener, prefix string) string {
	switch {
	case backend == nil:
		return "has no backend"
	case len(prefix) < 2 || len(prefix) >= driver.MaxNameBytes:
		return fmt.Sprintf("has %d bytes, and needs 2…%d", len(prefix), driver.MaxNameBytes-1)
	case !strings.Contains(prefixSeparators, prefix[len(prefix)-1:]):
		return fmt.Sprintf("does not end with one of %q", prefixSeparators)
	}
	for i := range len(prefix) {
		if !isNameByte(prefix[i]) && !strings.Contains(prefixSeparators, prefix[i:i+1]) {
			return fmt.Sprintf("byte %d is not allowed", i)
		}
	}
	return ""
}

func (p *prefixOpener) nameProblem(name string) string {
	longest := driver.MaxNameBytes - len(p.prefix)
	switch {
	case name == "":
		return "is empty"
	case len(name) > longest:
		return fmt.Sprintf("has %d bytes, at most %d are allowed here", len(name), longest)
	case name == "." || name == "..":
		return "is a step in a path"
	}
	if _, isSlot := driver.SlotID(name); isSlot {
		return "is the address of a reply slot"
	}
	for segment := range strings.SplitSeq(name, segmentSeparator) {
		if segment == "" {
			return "has an empty segment"
		}
	}
	for i := range len(name) {
		if !isNameByte(name[i]) && name[i:i+1] != segmentSeparator {
			return fmt.Sprintf("byte %d is not a letter, a digit, \"-\", \"_\", \".\" or \":\"", i)
		}
	}
	return ""
}

func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' ||
		b == '-' || b == '_' || b == '.'
}
