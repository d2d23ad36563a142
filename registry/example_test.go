package registry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
)

// A registry finds mailboxes by name or by address, and keeps a bounded number
// of them open.
func ExampleRegistry() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	queues := registry.New(&registry.Options{
		Fallback: registry.Schemes{
			ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(backend)},
			Default:  backend,
		},
		CacheMax: 100,
	})
	defer queues.Close()

	for _, id := range []string{"kitchen", "memory://kitchen", "smoke://kitchen"} {
		kitchen, err := mailbox.Open[string](ctx, queues, id, nil)
		if err != nil {
			fmt.Println(err)
			continue
		}
		if _, err := kitchen.Send(ctx, "tea"); err != nil {
			fmt.Println(err)
		}
		stats, err := kitchen.Stats(ctx)
		fmt.Println(id, stats.Ready, err)
	}
	// Output:
	// kitchen 1 <nil>
	// memory://kitchen 2 <nil>
	// mailbox: resolve smoke://kitchen: unresolved identifier: mailbox: resolve smoke://kitchen: unresolved identifier: scheme "smoke" is none of ["memory"]: invalid argument
}

// Tenants share a backend, and each sees only the queues within its prefix.
func ExampleNewPrefix() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	tenant := func(name string) *registry.Registry {
		return registry.New(&registry.Options{Fallback: registry.NewPrefix(backend, "tenant-"+name+":")})
	}
	a, b := tenant("a"), tenant("b")
	defer a.Close()
	defer b.Close()

	replies, err := mailbox.Open[string](ctx, a, "replies", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := replies.Send(ctx, "for a"); err != nil {
		fmt.Println(err)
	}
	for _, id := range []string{"../tenant-a:replies", "memory://tenant-a"} {
		_, err := b.Resolve(ctx, id)
		fmt.Println(id, errors.Is(err, mailbox.ErrUnresolved))
	}
	if _, err := b.Resolve(ctx, "tenant-a:replies"); err != nil { // a name with a segment, of tenant b
		fmt.Println(err)
	}
	for name := range backend.Queues(ctx) {
		fmt.Println(name)
	}
	// Output:
	// ../tenant-a:replies true
	// memory://tenant-a true
	// tenant-a:replies
	// tenant-b:tenant-a~replies
}
