package console_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// BenchmarkPagesOfLargeQueue measures pages of a queue with 1,000,000 messages, of which 100,000 are
// delayed and 1,000 dead.
func BenchmarkPagesOfLargeQueue(b *testing.B) {
	const messages = 1_000_000
	d := open(b)
	d.console = console.New(console.Options{Broker: d.broker}) // with the limits of a daemon
	c := d.caller("")
	var middle, last string
	for n := 0; n < messages; {
		batch := make([]broker.Outgoing, 250)
		for i := range batch {
			batch[i].Body = fmt.Appendf(nil, `{"order":%d,"total":129.90}`, n)
			batch[i].Attributes = map[string]string{"customer": fmt.Sprint("c-", n%1000)}
			if n%10 == 0 {
				batch[i].Delay = 1e15
			}
			n++
		}
		sent, err := c.Send(b.Context(), "orders", batch)
		if err != nil {
			b.Fatal(err)
		}
		if n == messages/2 {
			middle = sent[249].ID
		}
		last = sent[249].ID
	}
	for range 4 {
		got, err := c.Receive(b.Context(), "orders", driver.ReceiveRequest{Max: 250, Visibility: 1e12})
		if err != nil {
			b.Fatal(err)
		}
		var dead []broker.DeadLetterRequest
		for _, m := range got {
			dead = append(dead, broker.DeadLetterRequest{Receipt: m.Receipt, Reason: driver.ReasonFatal, Error: "boom"})
		}
		if err := c.DeadLetter(b.Context(), "orders", dead); err != nil {
			b.Fatal(err)
		}
	}
	reader := d.logIn(d.mint("", nil))
	for _, page := range []string{
		"", "queues", "queue?name=orders", "queue?name=orders&state=delayed", "queue?name=orders&state=dead", "queue?name=orders&attribute=customer%3Dnone", "queue?name=orders&attribute=customer%3Dc-777",
		"queue?name=orders&older=99h", "queue?name=orders&text=nowhere", "queue?name=orders&text=nowhere&look=100000", "queue?name=orders&group=none", "queue?name=orders&priority=3", "queue?name=orders&id=" + middle, "message?queue=orders&id=" + middle, "message?queue=orders&id=" + last, "message?queue=orders&id=01ARZ3NDEKTSV4RRFFQ69G5FAV", "dead?queue=orders",
	} {
		b.Run(page, func(b *testing.B) {
			size := 0
			began := processorTime(b)
			for b.Loop() {
				size = len(reader.get(page).body)
			}
			b.ReportMetric(float64(processorTime(b)-began)/1e6/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(size), "B/page")
		})
	}
}

// processorTime is the user and system time of the process in nanoseconds, which a busy machine does not
// make longer.
func processorTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
