package sqsbox_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/sqsbox"
)

func TestAddressOpensQueueInItsRegion(t *testing.T) {
	backend, err := sqsbox.Open(t.Context(), &stub{queues: []string{"orders", "tenant-_2Fa"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	opener, err := sqsbox.URLOpener(map[string]*sqsbox.Backend{"eu-central-1": backend})
	if err != nil {
		t.Fatal(err)
	}
	twice := map[string]*sqsbox.Backend{"eu-central-1": backend, "EU-central-1": backend}
	if _, err := sqsbox.URLOpener(twice); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("the same region twice: got %v, want ErrConflict", err)
	}
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{"sqs": opener}}
	for address, want := range map[string]error{
		"sqs://eu-central-1/orders":         nil,
		"sqs://EU-CENTRAL-1/orders":         nil,
		"sqs://eu-central-1/tenant/a":       nil,
		"sqs://eu-central-1/nowhere":        driver.ErrNotFound,
		"sqs://eu-central-1/":               driver.ErrInvalid,
		"sqs://us-east-1/orders":            driver.ErrForbidden,
		"sqs:///orders":                     driver.ErrInvalid,
		"sqs://eu-central-1:443/orders":     driver.ErrInvalid,
		"sqs://key:secret@eu-central-1/a":   driver.ErrInvalid,
		"sqs://eu-central-1/orders?x=y":     driver.ErrInvalid,
		"sqs://eu-central-1/orders#section": driver.ErrInvalid,
	} {
		queue, err := schemes.OpenQueue(t.Context(), address)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: got %v, want %v", address, err, want)
		}
		if queue != nil {
			if err := queue.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := opener(t.Context(), &url.URL{Scheme: "redis", Host: "eu-central-1", Path: "/orders"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an address of another scheme: got %v", err)
	}
	for _, region := range []string{"", "a/b", "host:80", "user@region"} {
		if _, err := sqsbox.URLOpener(map[string]*sqsbox.Backend{region: backend}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("region %q: got %v, want ErrInvalid", region, err)
		}
	}
}
