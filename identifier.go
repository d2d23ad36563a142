package mailbox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// unresolved is the error for an identifier that names nothing.
func unresolved(id, detail string, cause error) error {
	e := &Error{Code: ErrUnresolved, Op: opResolve, Queue: printable(id), Detail: detail, Err: cause}
	if inner, ok := errors.AsType[*Error](cause); ok {
		e.Field = inner.Field
	}
	return e
}

// identifierProblem says why id cannot be an identifier at all.
func identifierProblem(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > driver.MaxReplyToBytes:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(id), driver.MaxReplyToBytes)
	case !utf8.ValidString(id):
		return "is not valid UTF-8"
	}
	return ""
}

// printable returns an identifier for errors and logs: it comes from the sender of a
// message, and may contain a password.
func printable(id string) string {
	const longest = 256
	id = withoutPassword(id)
	if len(id) > longest {
		id = strings.ToValidUTF8(id[:longest], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, id)
}

// withoutPassword is an identifier without the password, if it has one.
func withoutPassword(id string) string {
	scheme, _, isURI := strings.Cut(id, "://")
	if !isURI {
		return id
	}
	address, err := url.Parse(id)
	switch {
	case err != nil:
		return scheme + "://…" // any part of it may be the password
	case address.User != nil:
		return address.Redacted()
	}
	return id
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
