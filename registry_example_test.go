package mailbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
)

// A registry finds mailboxes by name or by address, and keeps a bounded number
// of them open.
func ExampleRegistry() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	registry := mailbox.NewRegistry(&mailbox.RegistryOptions{
		Fallback: mailbox.Schemes{
			ByScheme: map[string]mailbox.Scheme{"memory": membox.NewURLOpener(backend).OpenURL},
			Default:  backend,
		},
		CacheMax: 100,
	})
	defer registry.Close()

	for _, id := range []string{"kitchen", "memory://kitchen", "smoke://kitchen"} {
		kitchen, err := mailbox.Open[string](ctx, registry, id, nil)
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
func ExamplePrefix() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	tenant := func(name string) *mailbox.Registry {
		return mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: mailbox.NewPrefix(backend, "tenant-"+name+":")})
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

// A tool that tells people something when it is done.
type kettle struct{ mailboxes mailbox.Resolver }

func (k kettle) boil(ctx context.Context) error {
	queue, err := k.mailboxes.Resolve(ctx, "notifications")
	if err != nil {
		return err
	}
	_, err = mailbox.New[string]("notifications", queue, nil).Send(ctx, "water is hot")
	return err
}

// Tools get the resolver from the code that makes them.
func ExampleResolver() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: backend})
	defer registry.Close()

	tools := []interface{ boil(context.Context) error }{kettle{mailboxes: registry}}
	for _, tool := range tools {
		if err := tool.boil(ctx); err != nil {
			fmt.Println(err)
		}
	}
	notifications, err := mailbox.Open[string](ctx, backend, "notifications", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := notifications.Receive(ctx)
	fmt.Println(messages[0].Body, err)
	// Output: water is hot <nil>
}

// An identifier that leads nowhere may be no error to the caller.
func ExampleResolveOptional() {
	registry := mailbox.NewRegistry(nil)
	_, found, err := mailbox.ResolveOptional(context.Background(), registry, "audit")
	fmt.Println(found, err)
	// Output: false <nil>
}
