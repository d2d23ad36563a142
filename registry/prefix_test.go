package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
)

// nameRecorder remembers the names that reach it.
type nameRecorder struct{ names []string }

func (r *nameRecorder) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	r.names = append(r.names, name)
	return mailboxtest.Null{}.OpenQueue(ctx, "q")
}

// escapes are identifiers by which a tenant may try to leave its prefix.
var escapes = []string{
	"", ".", "..", "../x", "..\\x", "/x", "//x", "a/b", "a\\b", "./x", "%2e%2e/x", "..%2fx",
	":x", "x:", "::", "x::y", "x~y", "~x",
	"memory://tenant-a:x", "redis://host/tenant-a:x", "disk:///etc?queue=x", "mailbox://host/x", "//host/x", "reply:x",
	"tenant-a\uff1ax",  // fullwidth colon
	"tenant\u2010a:x",  // hyphen look-alike
	"t\u0435nant-a:x",  // Cyrillic e
	"x\u2236y",         // ratio sign
	"\u202etenant-a:x", // right-to-left override
	"a\u0301", "\u00e9", "ﬁ", "x\u200by", "\ufeffx",
	"x\x00y", "x\ny", "x\ty", " x", "x ", "x y", "{x}", "x{tag}", "*", "x?y", "x#y", "x@y", "$(x)", "\xff",
	strings.Repeat("x", 300), strings.Repeat("x", 5000),
}

func TestRES4TenantCannotOpenQueuesOutsidePrefix(t *testing.T) {
	recorder := new(nameRecorder)
	tenant := registry.NewPrefix(recorder, "tenant-b:")
	queues := registry.New(&registry.Options{Fallback: tenant})
	for _, name := range escapes {
		if _, err := tenant.OpenQueue(t.Context(), name); !errors.Is(err, mailbox.ErrInvalid) {
			t.Errorf("%q: error is %v", name, err)
		}
		if _, err := queues.Resolve(t.Context(), name); !errors.Is(err, mailbox.ErrUnresolved) {
			t.Errorf("%q through a registry: error is %v", name, err)
		}
	}
	if len(recorder.names) > 0 {
		t.Errorf("the backend was asked for %q", recorder.names)
	}
	for _, name := range []string{"x", "replies-7", "a.b_c", "...", "01JD2Q", "user:42:inbox", "tenant-a:x", strings.Repeat("x", driver.MaxNameBytes-len("tenant-b:"))} {
		_, err := tenant.OpenQueue(t.Context(), name)
		wantError(t, err, nil)
		wantEqual(t, "name", recorder.names[len(recorder.names)-1], "tenant-b:"+strings.ReplaceAll(name, ":", "~"))
	}
}

func TestRES4TenantCannotMoveMessagesOutsidePrefix(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	tenant := registry.NewPrefix(backend, "tenant-b:")
	queues := registry.New(&registry.Options{Fallback: tenant})
	defer queues.Close()
	victim, err := backend.OpenQueue(t.Context(), "tenant-a:x")
	wantError(t, err, nil)
	mustResolve(t, queues, "inner")
	queue := mustResolve(t, queues, "orders")
	_, err = queue.Send(t.Context(), []driver.Outgoing{{
		Body: []byte("tea"), Attributes: map[string]string{driver.AttributeDeadSource: "tenant-a:x"},
	}})
	wantError(t, err, nil)
	for _, to := range escapes { // the first is "": where the message says that it died
		if moved, err := queue.Move(t.Context(), to, 0); moved != 0 || !errors.Is(err, mailbox.ErrInvalid) {
			t.Errorf("to %q: moved %d, error is %v", to, moved, err)
		}
	}
	_, err = queue.Move(t.Context(), "tenant-a:x", 0)
	wantError(t, err, mailbox.ErrNotFound)
	stats, err := victim.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "stats of the other tenant", stats, driver.Stats{})
	moved, err := queue.Move(t.Context(), "inner", 0)
	wantError(t, err, nil)
	wantEqual(t, "messages moved within the prefix", moved, 1)
}

func TestRES4NestedPrefixesDoNotOverlap(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	prefixes := []string{"a:", "a:b:", "a:b:c:", "a/", "a/b/", "a/b:", "a:b/", "tenant-1:", "tenant-10:", "a-b:", "a-b/"}
	names := []string{"x", "b", "b-x", "b.x", "b_x", "b:x", "b:c:x", "0", "0:x", "1:x", "c-x", "b-", "b_", "b.", "b:"}
	owner := make(map[string]string)
	for _, prefix := range prefixes {
		recorder := new(nameRecorder)
		for _, name := range names {
			_, _ = registry.NewPrefix(recorder, prefix).OpenQueue(t.Context(), name)
		}
		if len(recorder.names) == 0 {
			t.Errorf("prefix %q opens nothing", prefix)
		}
		for _, full := range recorder.names {
			if other, taken := owner[full]; taken && other != prefix {
				t.Errorf("%q is reached through %q and through %q", full, prefix, other)
			}
			owner[full] = prefix
		}
	}
}

func TestRES4OpenRefusesInvalidPrefix(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	for _, prefix := range []string{"", ":", "tenant", "tenant-", "tenant a:", "tenänt:", "a{b}:", "x\n:", strings.Repeat("x", 300) + ":"} {
		_, err := registry.NewPrefix(backend, prefix).OpenQueue(t.Context(), "x")
		if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Code != mailbox.ErrInvalid || e.Field != "prefix" {
			t.Errorf("prefix %q: error is %v", prefix, err)
		}
	}
	_, err := registry.NewPrefix(nil, "tenant:").OpenQueue(t.Context(), "x")
	wantError(t, err, mailbox.ErrInvalid)
}

func TestRES4TenantsOfOneBackendAreSeparate(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	a := registry.New(&registry.Options{Fallback: registry.NewPrefix(backend, "tenant-a:")})
	b := registry.New(&registry.Options{Fallback: registry.NewPrefix(backend, "tenant-b:")})
	defer a.Close()
	defer b.Close()
	sendTo(t, mustResolve(t, a, "replies"), "for a")
	stats, err := mustResolve(t, b, "replies").Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "what b sees", stats, mailbox.Stats{})
}

// FuzzPrefix looks for a name that opens a queue outside the prefix.
func FuzzPrefix(f *testing.F) {
	for _, name := range escapes {
		f.Add("tenant-b:", name)
	}
	f.Add("a/", "b:c")
	f.Fuzz(func(t *testing.T, prefix, name string) {
		recorder := new(nameRecorder)
		if _, err := registry.NewPrefix(recorder, prefix).OpenQueue(t.Context(), name); err != nil {
			if !errors.Is(err, mailbox.ErrInvalid) {
				t.Errorf("prefix %q, name %q: error is %v", prefix, name, err)
			}
			return
		}
		full := recorder.names[0]
		rest, inside := strings.CutPrefix(full, prefix)
		switch {
		case !inside || rest != strings.ReplaceAll(name, ":", "~") || name == "" || strings.Contains(name, "~"):
			t.Errorf("prefix %q, name %q opened %q", prefix, name, full)
		case strings.ContainsAny(rest, ":/\\%{}") || rest == "." || rest == "..":
			t.Errorf("prefix %q, name %q goes somewhere", prefix, name)
		case driver.CheckName(full) != nil:
			t.Errorf("prefix %q, name %q: %v", prefix, name, driver.CheckName(full))
		}
	})
}
