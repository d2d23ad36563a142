package diskbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
)

// What was sent before a restart is received after it.
func Example() {
	ctx := context.Background()
	temporary, err := os.MkdirTemp("", "diskbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	dir := filepath.Join(temporary, "queues")

	for start := range 2 {
		backend, err := diskbox.Open(ctx, dir, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		orders, err := mailbox.Open[string](ctx, backend, "orders", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		if start == 0 {
			_, err = orders.Send(ctx, "tea")
		} else {
			var got []*mailbox.Message[string]
			got, err = orders.Receive(ctx, mailbox.WithVisibility(time.Minute))
			for _, message := range got {
				fmt.Println(message.Body)
				err = message.Ack(ctx)
			}
		}
		if err != nil {
			fmt.Println(err)
		}
		if err := backend.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// tea
}
