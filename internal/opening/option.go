// Package opening has what the backends of this module share when they are opened: the checks
// of their options and addresses, and a pool of those that are open.
package opening

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// CheckOption returns ErrInvalid, naming the field and its limit, for a negative
// option of a backend. 0 stands for its default.
func CheckOption(field string, value int64) error {
	if value >= 0 {
		return nil
	}
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: fmt.Sprintf("%d is negative; want at least 1, or 0 for the default", value)}
}

// ReadParameters returns the query parameters of a URL. It refuses names that are not
// in known, and names that are given more than once, unless they end in "..." in known.
// Codes: ErrInvalid.
func ReadParameters(address *url.URL, known ...string) (url.Values, error) {
	invalid := func(detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "query", Detail: detail}
	}
	parameters, err := url.ParseQuery(address.RawQuery)
	if err != nil {
		return nil, invalid("cannot be read; want NAME=VALUE&NAME=VALUE, with % as %25 and ; as %3B") // the parser repeats values
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		repeatable := slices.Contains(known, name+"...")
		switch {
		case !repeatable && !slices.Contains(known, name):
			return nil, invalid(fmt.Sprintf("unknown parameter %.40q; want %s", name, strings.ReplaceAll(strings.Join(known, ", "), "...", "")))
		case !repeatable && len(parameters[name]) > 1:
			return nil, invalid(fmt.Sprintf("parameter %s is given %d times; give it once", name, len(parameters[name])))
		}
	}
	return parameters, nil
}
