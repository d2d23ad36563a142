package remotebox_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// A token where the name of its file belongs is a common mistake.
func TestURLErrorHasNoTokenGivenAsFile(t *testing.T) {
	t.Setenv("MAILBOX_TOKEN", "")
	for _, test := range []struct{ parameter, variable string }{{"SECRET", ""}, {"", "SECRET"}} {
		t.Setenv("MAILBOX_TOKEN_FILE", test.variable)
		_, err := driver.ReadURL(&url.URL{
			Scheme: "mailbox", Host: "127.0.0.1:9411", Path: "/orders", RawQuery: url.Values{"token_file": {test.parameter}}.Encode(),
		})
		if err == nil || strings.Contains(err.Error(), "SECRET") || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%+v: error is %v", test, err)
		}
	}
}
