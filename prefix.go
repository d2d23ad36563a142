package mailbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// A Prefix is an opener that puts a prefix before every name, so that who opens
// queues through it, a tenant, can reach those that begin with it and no
// others. Make one with NewPrefix, and hand it out in place of the backend, or
// as the fallback of a Registry that is the tenant's own.
//
// Names are narrow here: segments of ASCII letters and digits, "-", "_" and ".",
// joined by ":", but not "." and ".." alone, and not those of reply slots. So there
// is nothing in them that a path, a URI, or a normalisation of look-alike characters
// somewhere below could make something else of. The backend's name has "~" for each
// ":" of a name, so every prefix ends with a character that nothing behind it has,
// and two different prefixes never lead to the same queue: "a:" with "b:c" is
// "a:b~c", and "a:b:" with "c" is "a:b:c".
type Prefix struct {
	opener  driver.Opener
	prefix  string
	problem string // why the prefix cannot be one
}

var _ driver.Opener = (*Prefix)(nil)

const (
	// prefixSeparators are what a prefix ends with, and what nothing behind it has.
	prefixSeparators = ":/"
	// segmentSeparator joins the segments of a name, and segmentMark stands for it
	// behind a prefix.
	segmentSeparator, segmentMark = ":", "~"
)

// NewPrefix returns an opener of the queues of backend whose names begin with
// prefix, which ends with ":" or "/", and otherwise has the characters that
// names have, and these. It does no I/O. A prefix that cannot be one is
// reported whenever a queue is opened.
func NewPrefix(backend driver.Opener, prefix string) *Prefix {
	return &Prefix{opener: backend, prefix: prefix, problem: prefixProblem(backend, prefix)}
}

// OpenQueue opens the queue called name within the prefix. It blocks, and
// fails, as the backend does. Codes: ErrInvalid (the name or the prefix), those
// of the backend.
func (p *Prefix) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if p.problem != "" {
		return nil, &Error{Code: ErrInvalid, Op: opOpen, Queue: printable(name), Field: "prefix", Detail: p.problem}
	}
	if problem := p.nameProblem(name); problem != "" {
		return nil, &Error{Code: ErrInvalid, Op: opOpen, Queue: printable(name), Field: "name", Detail: problem}
	}
	queue, err := p.opener.OpenQueue(ctx, p.backendName(name))
	if err != nil {
		return nil, err
	}
	return &prefixQueue{Queue: queue, prefix: p, name: name}, nil
}

// backendName returns what the backend calls the queue called name.
func (p *Prefix) backendName(name string) string {
	return p.prefix + strings.ReplaceAll(name, segmentSeparator, segmentMark)
}

// prefixQueue is a queue whose messages stay within the prefix.
type prefixQueue struct {
	driver.Queue
	prefix *Prefix
	name   string
}

// Move takes the name of a queue within the prefix. It refuses an empty one: which
// queue a message goes back to is an attribute, and a sender can write any name there.
func (q *prefixQueue) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if problem := q.prefix.nameProblem(to); problem != "" {
		return 0, &Error{Code: ErrInvalid, Op: opMove, Queue: printable(q.name), Field: "to", Detail: problem}
	}
	return q.Queue.Move(ctx, q.prefix.backendName(to), limit)
}

func prefixProblem(backend driver.Opener, prefix string) string {
	switch {
	case backend == nil:
		return "has no backend behind it"
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

func (p *Prefix) nameProblem(name string) string {
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
		return "is that of a reply slot"
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
