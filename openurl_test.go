package mailbox_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
)

// testScheme is registered for these tests. Its URLs are readTestURL's.
const testScheme = "openurl-test"

// readTestURL reads the URLs of testScheme. A test sets it before it opens one.
var readTestURL func(address *url.URL) (driver.URLTarget, error)

func init() {
	driver.RegisterURL(func(address *url.URL) (driver.URLTarget, error) { return readTestURL(address) }, testScheme)
}

func openURL(t *testing.T, address string) *mailbox.Mailbox[string] {
	t.Helper()
	m, err := mailbox.OpenURL[string](t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOpenURLSharesOneBackendUntilLastClose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	link := filepath.Join(filepath.Dir(dir), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	first := openURL(t, "disk://"+dir+"?queue=orders")
	second := openURL(t, "disk://"+link+"?queue=orders") // a directory can be open only once
	other := openURL(t, "disk://"+dir+"?queue=bills")
	wantEqual(t, "name", other.Name(), "bills")
	_, err := first.Send(t.Context(), "tea")
	wantError(t, err, nil)
	wantError(t, first.Close(), nil)
	wantError(t, first.Close(), nil)
	_, err = first.Send(t.Context(), "tea")
	wantError(t, err, mailbox.ErrClosed)
	messages, err := second.Receive(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", len(messages), 1)
	wantError(t, messages[0].Ack(t.Context()), nil)
	wantError(t, errors.Join(second.Close(), other.Close()), nil)

	own, err := diskbox.Open(t.Context(), dir, nil) // which is free again
	wantError(t, err, nil)
	_, err = mailbox.OpenURL[string](t.Context(), "disk://"+dir+"?queue=orders", nil)
	wantError(t, err, mailbox.ErrConflict)
	wantError(t, own.Close(), nil)
}

func TestOpenURLMemoryQueuesLastUntilLastClose(t *testing.T) {
	orders, again := openURL(t, "memory://orders"), openURL(t, "memory://orders")
	_, err := orders.Send(t.Context(), "tea")
	wantError(t, err, nil)
	stats, err := again.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", stats.Ready, 1)
	wantError(t, errors.Join(orders.Close(), again.Close()), nil)
	empty := openURL(t, "memory://orders")
	stats, err = empty.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", stats.Ready, 0)
	wantError(t, empty.Close(), nil)
}

// countedBackend is a memory backend that counts those that are open.
type countedBackend struct {
	*membox.Backend
	open *atomic.Int32
}

func (b countedBackend) Close() error {
	b.open.Add(-1)
	return b.Backend.Close()
}

func TestOpenURLFailureLeavesNothingOpen(t *testing.T) {
	var open atomic.Int32
	readTestURL = func(address *url.URL) (driver.URLTarget, error) {
		return driver.URLTarget{Queue: address.Path, Open: func(context.Context) (driver.Backend, error) {
			if address.Host == "broken" {
				return nil, errors.New("broken")
			}
			open.Add(1)
			return countedBackend{membox.New(nil), &open}, nil
		}}, nil
	}
	_, err := mailbox.OpenURL[string](t.Context(), testScheme+"://broken/orders", nil)
	wantError(t, err, mailbox.ErrUnavailable)
	_, err = mailbox.OpenURL[string](t.Context(), testScheme+"://host", nil) // the queue has no name
	wantError(t, err, mailbox.ErrInvalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mailbox.OpenURL[string](ended, "disk://"+t.TempDir()+"?queue=orders", nil); err != context.Canceled {
		t.Errorf("error is %v, want that of the context, unwrapped", err)
	}
	wantEqual(t, "open backends", open.Load(), 0)
	readTestURL = nil
}

func TestOpenURLParallelUsersShareOneBackend(t *testing.T) {
	dir := t.TempDir()
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 5 {
				m, err := mailbox.OpenURL[string](t.Context(), "disk://"+dir+"?queue=orders", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := m.Send(t.Context(), "tea"); err != nil {
					t.Error(err)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	m := openURL(t, "disk://"+dir+"?queue=orders")
	stats, err := m.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", stats.Ready, 40)
	wantError(t, m.Close(), nil)
}

func TestOpenURLFollowsRecreatedQueue(t *testing.T) {
	backend := membox.New(nil)
	readTestURL = func(*url.URL) (driver.URLTarget, error) {
		return driver.URLTarget{Queue: "orders", Open: func(context.Context) (driver.Backend, error) { return backend, nil }}, nil
	}
	m := openURL(t, testScheme+"://host/orders")
	wantError(t, backend.DeleteQueue(t.Context(), "orders"), nil)
	_, err := m.Receive(t.Context())
	wantError(t, err, mailbox.ErrNotFound)
	wantError(t, backend.ConfigureQueue(t.Context(), "orders", driver.Config{}), nil)
	_, _ = m.Receive(t.Context()) // finds the new queue
	_, err = m.Send(t.Context(), "tea")
	wantError(t, err, nil)
	wantError(t, m.Close(), nil)
	wantError(t, backend.Ping(t.Context()), mailbox.ErrClosed)
	readTestURL = nil
}

func TestOpenURLErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	for address, want := range map[string]string{
		"orders":                         "has no SCHEME://; want a URL like memory://QUEUE",
		"":                               "has no SCHEME://",
		"memory:orders":                  "has no SCHEME://",
		"://x":                           "has no SCHEME://",
		"gopher://x":                     `"gopher" is not registered; import the package of a backend that has it (registered: disk, memory, `,
		"redis://127.0.0.1:1/orders":     `"redis" is not registered; add import _ "github.com/mailboxmq/mailbox/redisbox" (registered: `,
		"mailboxs://h/orders":            `add import _ "github.com/mailboxmq/mailbox/remotebox"`,
		"http://[bad":                    "cannot be read; want SCHEME://HOST:PORT/QUEUE",
		"memory://":                      "name: is empty",
		"memory://a?b=c":                 "write ? in a name as %3F",
		"memory://host/orders":           "write a name with a slash as memory:///a/b",
		"disk://shop?queue=orders":       "want three slashes, disk:///DIRECTORY?queue=QUEUE",
		"disk://" + dir:                  "parameter queue is missing",
		"disk://" + dir + "?quue=orders": `unknown parameter "quue"; want queue`,
		"disk://" + dir + "?queue=a{b":   "contains a brace",
	} {
		_, err := mailbox.OpenURL[string](t.Context(), address, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", address, err, want)
		}
	}
}

func TestOpenURLErrorsHaveNoPassword(t *testing.T) {
	readTestURL = func(address *url.URL) (driver.URLTarget, error) {
		return driver.URLTarget{Queue: "orders", Key: address.User.String(), Open: func(context.Context) (driver.Backend, error) {
			return nil, &driver.Error{Code: driver.ErrUnavailable, Detail: "no answer"}
		}}, nil
	}
	for _, address := range []string{
		"://user:SECRET@host/orders",
		"://user:SECRET@host:port/orders",
		"://user:x@SECRET@host/orders",
		"://user:x@SECRET/y@host/orders",
		"://user:1/SECRET@host/orders",
		"://user:1?SECRET@host/orders",
		"://user:1#SECRET@host/orders",
		"://:SECRET@host/%zz",
		"://host/orders?password=SECRET",
		"://host/orders#SECRET",
		"://host/orders?password=%zzSECRET",
	} {
		for _, scheme := range []string{testScheme, "memory", "disk", "redis", "unknown"} {
			_, err := mailbox.OpenURL[string](t.Context(), scheme+address, nil)
			if err == nil || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s%s: error is %v", scheme, address, err)
			}
		}
	}
	readTestURL = nil
}

// An address that came with a message opens nothing but what the program has given to
// Schemes, whatever packages it imports.
func TestSchemesNeverUseRegisteredOpeners(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	asked := false
	readTestURL = func(*url.URL) (driver.URLTarget, error) {
		asked = true
		return driver.URLTarget{Queue: "orders", Open: func(context.Context) (driver.Backend, error) { return membox.New(nil), nil }}, nil
	}
	backend := membox.New(nil)
	defer backend.Close()
	openDisk, closeDisk, err := diskbox.URLOpener([]string{t.TempDir()}, nil, nil)
	wantError(t, err, nil)
	defer closeDisk()
	for _, schemes := range []registry.Schemes{
		{},
		{Default: backend},
		{ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(backend)}},
		{ByScheme: map[string]registry.Scheme{"disk": openDisk}, Default: backend},
	} {
		queues := registry.New(&registry.Options{Fallback: schemes})
		for _, address := range []string{testScheme + "://host/orders", "disk://" + dir + "?queue=orders"} {
			if _, err := schemes.OpenQueue(t.Context(), address); err == nil {
				t.Errorf("%v opened %s", schemes, address)
			}
			if _, err := queues.Resolve(t.Context(), address); err == nil {
				t.Errorf("a registry with %v opened %s", schemes, address)
			}
		}
		wantError(t, queues.Close(), nil)
	}
	if _, err := os.Stat(dir); asked || err == nil {
		t.Errorf("a registered opener was asked (%v), or made %s (%v)", asked, dir, err)
	}
	readTestURL = nil
}
