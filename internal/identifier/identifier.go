// Package identifier has the rules for identifiers of queues, which are names or URIs, and
// writes them into errors without their secrets.
package identifier

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// Unresolved returns the error for an identifier that names no queue.
func Unresolved(id, detail string, cause error) error {
	e := &driver.Error{Code: driver.ErrUnresolved, Op: "resolve", Queue: Printable(id), Detail: detail, Err: cause}
	if inner, ok := errors.AsType[*driver.Error](cause); ok {
		e.Field = inner.Field
	}
	return e
}

// Problem returns why id is not a valid identifier, or "".
func Problem(id string) string {
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

// Printable returns an identifier as errors and logs contain it: shortened, without
// control characters, and without its password.
func Printable(id string) string {
	const longest = 256
	id = WithoutPassword(id)
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

// WithoutPassword returns an identifier without its password.
func WithoutPassword(id string) string {
	if !strings.Contains(id, "://") {
		return id
	}
	scheme, rest, _ := strings.Cut(id, ":")
	address, err := url.Parse(id)
	switch {
	case err != nil || address.Opaque != "":
		return scheme + "://…" // any part may be the password
	case strings.Contains(address.Host, ":") && HasLateAt(strings.TrimPrefix(rest, "//")):
		return scheme + "://…" // USER:PASSWORD@, where the parser took the password for port and path
	case address.User != nil:
		return address.Redacted()
	}
	return id
}

// HasLateAt returns whether there is an @ behind the host in rest, a URL without
// SCHEME://. A password with a /, ? or # that is not escaped looks so.
func HasLateAt(rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@")
}
