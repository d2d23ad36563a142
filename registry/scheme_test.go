package registry_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
)

func TestRES3SchemeChoosesTheBackendAndGetsTheWholeAddress(t *testing.T) {
	var asked string
	scheme := func(ctx context.Context, address *url.URL) (driver.Queue, error) {
		asked = address.Scheme + " " + address.Hostname() + " " + address.Port() + " " + address.Path + " " + address.RawQuery
		return mailboxtest.Null{}.OpenQueue(ctx, "q")
	}
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{}}
	for _, name := range []string{"redis", "rediss", "redis+sentinel", "redis+cluster", "sqs", "mailbox"} {
		schemes.ByScheme[name] = scheme
	}
	for id, want := range map[string]string{
		"redis://cache:6379/replies?db=2":        "redis cache 6379 /replies db=2",
		"rediss://cache:6380/replies":            "rediss cache 6380 /replies ",
		"redis+sentinel://a:26379/main/replies":  "redis+sentinel a 26379 /main/replies ",
		"redis+cluster://node:7000/replies":      "redis+cluster node 7000 /replies ",
		"sqs://eu-central-1/replies":             "sqs eu-central-1  /replies ",
		"mailbox://broker.example:9700/replies":  "mailbox broker.example 9700 /replies ",
		"REDIS://cache/replies":                  "redis cache  /replies ",
		"mailbox://[::1]:9700/a%2Fb?token=x%20y": "mailbox ::1 9700 /a/b token=x%20y",
	} {
		asked = ""
		_, err := schemes.OpenQueue(t.Context(), id)
		wantError(t, err, nil)
		wantEqual(t, id, asked, want)
	}
}

func TestRES3UnknownSchemesAndPlainNames(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(backend)}}
	for _, id := range []string{
		"gopher://x", "redis://cache/x", "://x", "memory//x", "plain", "responses:7", "memory:x",
		"ｍemory://x", "mem\u043ery://x", " memory://x", "memory\x00://x", "http://[bad",
	} {
		_, err := schemes.OpenQueue(t.Context(), id)
		if !errors.Is(err, mailbox.ErrUnresolved) {
			t.Errorf("%q: error is %v", id, err)
		}
	}
	schemes.Default = backend
	for _, id := range []string{"plain", "responses:7", "memory:x"} {
		_, err := schemes.OpenQueue(t.Context(), id)
		wantError(t, err, nil)
	}
	if _, err := schemes.OpenQueue(t.Context(), "gopher://x"); !errors.Is(err, mailbox.ErrUnresolved) {
		t.Errorf("an unknown scheme went to the default: %v", err)
	}
}

func TestRES3SameNameIsTheSameMemoryMailbox(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(backend)}}
	for id, name := range map[string]string{
		"memory://replies": "replies", "memory:///replies": "replies", "memory:///responses:7": "responses:7",
		"memory:///a/b": "a/b", "memory:///a%3Fb%23c": "a?b#c", "memory://%C3%BC": "ü", "memory://Replies": "Replies",
	} {
		queue, err := schemes.OpenQueue(t.Context(), id)
		wantError(t, err, nil)
		sendTo(t, queue, id)
		same, err := backend.OpenQueue(t.Context(), name)
		wantError(t, err, nil)
		removed, err := same.Purge(t.Context())
		wantError(t, err, nil)
		wantEqual(t, id+": messages", removed, 1)
	}
}

func TestRES3MemoryRefusesWhatItCannotHonour(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(backend)}}
	for id, field := range map[string]string{
		"memory://host/name":     "host",
		"memory://host/":         "host",
		"memory://name:6379":     "port",
		"memory://name:":         "port",
		"memory://user@name":     "user",
		"memory://user:pw@name":  "user",
		"memory://name?db=0":     "query",
		"memory://name?":         "query",
		"memory://name#part":     "fragment",
		"memory://":              "name",
		"memory:///":             "name",
		"memory:///a%7Bb%7D":     "name",
		"memory:///line%0Abreak": "name",
	} {
		_, err := schemes.OpenQueue(t.Context(), id)
		if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Code != mailbox.ErrInvalid || e.Field != field {
			t.Errorf("%s: error is %v, want one about %s", id, err, field)
		}
	}
	for _, address := range []*url.URL{{Scheme: "memory", Opaque: "name"}, {Scheme: "other", Host: "name"}} {
		_, err := membox.URLOpener(backend)(t.Context(), address)
		wantError(t, err, mailbox.ErrInvalid)
	}
	for name := range backend.Queues(t.Context()) {
		t.Errorf("queue %q was made all the same", name)
	}
}

func TestRES3DiskOpensDirectoriesAndRefusesTheRest(t *testing.T) {
	base := t.TempDir()
	outside := t.TempDir()
	schemes, closeAll := diskSchemes(t, base, nil)
	defer closeAll()
	if err := os.Symlink(outside, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	for id, code := range map[string]mailbox.Code{
		"disk://" + base + "/shop":                       mailbox.ErrInvalid, // no queue
		"disk://" + base + "/shop?queue=":                mailbox.ErrInvalid,
		"disk://" + base + "/shop?queue=a&queue=b":       mailbox.ErrInvalid,
		"disk://" + base + "/shop?queue=a&sync=none":     mailbox.ErrInvalid,
		"disk://host" + base + "/shop?queue=a":           mailbox.ErrInvalid,
		"disk://host:80" + base + "/shop?queue=a":        mailbox.ErrInvalid,
		"disk://user@" + base + "/shop?queue=a":          mailbox.ErrInvalid,
		"disk://" + base + "/shop?queue=a#b":             mailbox.ErrInvalid,
		"disk://" + base + "/../x?queue=a":               mailbox.ErrInvalid,
		"disk://" + base + "/%2e%2e/x?queue=a":           mailbox.ErrInvalid,
		"disk://" + base + "/a%00b?queue=a":              mailbox.ErrInvalid,
		"disk://" + outside + "?queue=a":                 mailbox.ErrForbidden,
		"disk://" + base + "-not?queue=a":                mailbox.ErrForbidden,
		"disk://" + base + "/link?queue=a":               mailbox.ErrForbidden,
		"disk://" + base + "/link/deeper/down?queue=a":   mailbox.ErrForbidden,
		"disk:///?queue=a":                               mailbox.ErrForbidden,
		"disk://" + base + "/shop?queue=a%7Bb%7D":        mailbox.ErrInvalid,
		"disk://" + filepath.Dir(base) + "?queue=orders": mailbox.ErrForbidden,
	} {
		_, err := schemes.OpenQueue(t.Context(), id)
		if !errors.Is(err, code) {
			t.Errorf("%s: error is %v, want %v", id, err, code)
		}
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) != 1 {
		t.Errorf("refused addresses left %v, %v", entries, err)
	}
}

func TestRES3DirectoriesAreSharedAndClosedWithTheirLastQueue(t *testing.T) {
	base := t.TempDir()
	schemes, closeFirst := diskSchemes(t, base, nil)
	queues := registry.New(&registry.Options{CacheMax: 1, Fallback: schemes})
	address := "disk://" + base + "/shop?queue="
	first, second := mustResolve(t, queues, address+"orders"), mustResolve(t, queues, address+"bills")
	for range 3 { // each evicts the other, and opens the directory again
		sendTo(t, first, "tea")
		sendTo(t, second, "3.50")
	}
	stats, err := first.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "orders", stats.Ready, 3)
	for _, step := range []struct {
		from driver.Queue
		to   string
	}{{first, "bills"}, {second, "orders"}} {
		moved, err := step.from.Move(t.Context(), step.to, 1) // through two wrappers
		wantError(t, err, nil)
		wantEqual(t, "moved to "+step.to, moved, 1)
	}
	wantError(t, queues.Close(), nil)

	// It is closed now, so it can be opened directly.
	own, err := diskbox.Open(t.Context(), filepath.Join(base, "shop"), nil)
	wantError(t, err, nil)
	_, err = schemes.OpenQueue(t.Context(), address+"orders")
	wantError(t, err, mailbox.ErrConflict)
	wantError(t, closeFirst(), nil)
	shop, link := filepath.Join(base, "shop"), filepath.Join(base, "link")
	wantError(t, os.Symlink(shop, link), nil)
	for dir, want := range map[string]mailbox.Code{link: mailbox.ErrConflict, filepath.Dir(base): mailbox.ErrForbidden, "shop": mailbox.ErrInvalid} {
		_, _, err := diskbox.URLOpener([]string{base}, nil, map[string]*diskbox.Backend{shop: own, dir: own})
		wantError(t, err, want)
	}
	schemes, closeAll := diskSchemes(t, base, map[string]*diskbox.Backend{shop: own})
	shared, err := schemes.OpenQueue(t.Context(), address+"orders")
	wantError(t, err, nil)
	stats, err = shared.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "orders", stats.Ready, 3)
	wantError(t, shared.Close(), nil)
	wantError(t, shared.Close(), nil)
	wantError(t, closeAll(), nil)
	wantError(t, closeAll(), nil)
	wantError(t, own.Ping(t.Context()), nil) // what is shared stays open
	_, err = schemes.OpenQueue(t.Context(), address+"orders")
	wantError(t, err, mailbox.ErrClosed)
	wantError(t, own.Close(), nil)
}

// diskSchemes returns schemes that open directories within base, and what closes them.
func diskSchemes(t *testing.T, base string, share map[string]*diskbox.Backend) (registry.Schemes, func() error) {
	t.Helper()
	open, closeAll, err := diskbox.URLOpener([]string{base}, nil, share)
	wantError(t, err, nil)
	return registry.Schemes{ByScheme: map[string]registry.Scheme{"disk": open}}, closeAll
}

func TestSchemesErrorsHaveNoMisplacedPassword(t *testing.T) {
	for _, address := range []string{
		"redis://user:SECRET@host/orders",
		"redis://user:1/SECRET@host/orders",
		"redis://user:1?SECRET@host/orders",
		"redis://user:1#SECRET@host/orders",
		"redis:user:SECRET@host/orders?://",
	} {
		_, err := registry.Schemes{}.OpenQueue(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: error is %v", address, err)
		}
	}
}

func TestDiskAddressesTellNothingOfOtherDirectories(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open, closeAll, err := diskbox.URLOpener([]string{t.TempDir()}, nil, nil)
	wantError(t, err, nil)
	defer closeAll()
	for _, path := range []string{"file", "file/below", "none", "none/below"} {
		_, err := open(t.Context(), &url.URL{Scheme: "disk", Path: filepath.Join(outside, path), RawQuery: "queue=orders"})
		wantError(t, err, mailbox.ErrForbidden)
	}
}
