package history_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/membox"
)

func ExampleCheck() {
	ctx := context.Background()
	backend := membox.New(nil)
	opened, _ := backend.OpenQueue(ctx, "orders")
	recorder := history.NewRecorder("")
	queue := recorder.Queue(opened)
	_, _ = queue.Send(ctx, []driver.Outgoing{{Body: []byte("hello")}})
	deliveries, _ := queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	_ = queue.Ack(ctx, []driver.Receipt{deliveries[0].Receipt})

	final, _ := history.Observe(ctx, queue)
	report := history.Check(recorder.History(), final, history.Terms{Traits: queue.Traits()})
	fmt.Println(report.Messages, report.Deliveries, report.Err())
	// Output: 1 1 <nil>
}
