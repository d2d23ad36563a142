package driver_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// registered counts the runs of TestRegisterURLOnceForEachScheme, because registrations are
// permanent.
var registered int

func TestRegisterURLOnceForEachScheme(t *testing.T) {
	read := func(*url.URL) (driver.URLTarget, error) { return driver.URLTarget{Queue: "q"}, nil }
	registered++
	test := fmt.Sprint("test", registered)
	driver.RegisterURL(read, test, test+"+more")
	for _, scheme := range []string{test, "Upper", ""} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("scheme %q was registered", scheme)
				}
			}()
			driver.RegisterURL(read, scheme)
		}()
	}
	schemes := driver.URLSchemes()
	if !slices.Contains(schemes, test) || !slices.Contains(schemes, test+"+more") || !slices.IsSorted(schemes) {
		t.Errorf("the schemes are %q", schemes)
	}
	if target, err := driver.ReadURL(&url.URL{Scheme: test}); err != nil || target.Queue != "q" {
		t.Errorf("got %v, %v", target, err)
	}
	if _, err := driver.ReadURL(&url.URL{Scheme: "other"}); !errors.Is(err, driver.ErrUnresolved) {
		t.Errorf("an unknown scheme: %v", err)
	}
}
