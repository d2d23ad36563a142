package opening

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

func TestReadParametersRefusesUnknownAndRepeated(t *testing.T) {
	for query, want := range map[string]string{
		"":                       "",
		"db=1&addr=a&addr=b":     "",
		"db=1&db=2":              "parameter db is given 2 times",
		"dv=1":                   `unknown parameter "dv"; want db, addr`,
		"token=SECRET":           `unknown parameter "token"`,
		"db=%zz&password=SECRET": "cannot be read",
		"a;password=SECRET":      "cannot be read",
	} {
		_, err := ReadParameters(&url.URL{RawQuery: query}, "db", "addr...")
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", query, err)
		case want != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%q: got %v, want %q", query, err, want)
		}
	}
}
