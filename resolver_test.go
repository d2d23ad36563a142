package mailbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
)

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
	queues := registry.New(&registry.Options{Fallback: backend})
	defer queues.Close()

	tools := []interface{ boil(context.Context) error }{kettle{mailboxes: queues}}
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
	queues := registry.New(nil)
	_, found, err := mailbox.ResolveOptional(context.Background(), queues, "audit")
	fmt.Println(found, err)
	// Output: false <nil>
}

func TestRES1MailboxNameHasNoPassword(t *testing.T) {
	const address = "redis://user:secret@cache:6379/replies"
	queues := registry.New(nil)
	defer queues.Close()
	wantError(t, queues.Register(address, newFake()), nil)
	var told []string
	hooks := mailbox.Hooks{Sent: func(_ context.Context, e mailbox.SentEvent) { told = append(told, e.Queue) }}
	box, err := mailbox.Open(t.Context(), queues, address, &mailbox.Options[string]{Hooks: hooks})
	wantError(t, err, nil)
	mustSend(t, box, "tea")
	_, err = box.Send(t.Context(), "tea", mailbox.WithDelay(-1))
	wantError(t, err, mailbox.ErrInvalid)
	told = append(told, box.Name(), err.Error())

	requests, _ := onMemory(t, &mailbox.Options[string]{Resolver: queues})
	_, err = requests.Send(t.Context(), "tea?", mailbox.WithReplyTo(address))
	wantError(t, err, nil)
	replies, err := mailbox.ReplyMailbox[string](t.Context(), mustReceive(t, requests, 1)[0], nil)
	wantError(t, err, nil)
	_, err = replies.Send(t.Context(), "tea", mailbox.WithDelay(-1))
	wantError(t, err, mailbox.ErrInvalid)
	told = append(told, replies.Name(), err.Error())
	for _, text := range told {
		if strings.Contains(text, "secret") || !strings.Contains(text, "cache:6379/replies") {
			t.Errorf("told is %q", text)
		}
	}
}
