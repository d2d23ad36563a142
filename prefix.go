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
// Names are narrow here: ASCII letters and digits, "-", "_" and ".", but not "."
// and ".." alone. So there is nothing in them that a path, a URI, or a
// normalisation of look-alike characters somewhere below could make something
// else of. And as every prefix ends with a character that no name has, two
// different prefixes never lead to the same queue: not "a:" and "a:b:", and not
// "tenant-1:" and "tenant-10:".
type Prefix struct {
	opener  driver.Opener
	prefix  string
	problem string // why the prefix cannot be one
}

var _ driver.Opener = (*Prefix)(nil)

// prefixSeparators are what a prefix ends with, and no name has in it.
const prefixSeparators = ":/"

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
	return p.opener.OpenQueue(ctx, p.prefix+name)
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
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return fmt.Sprintf("byte %d is not a letter, a digit, \"-\", \"_\" or \".\"", i)
		}
	}
	return ""
}

func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' ||
		b == '-' || b == '_' || b == '.'
}
