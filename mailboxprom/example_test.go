package mailboxprom_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mailboxprom"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// A worker with metrics, and what Prometheus scrapes.
func Example() {
	ctx := context.Background()
	registry := prometheus.NewRegistry()
	metrics, err := mailboxprom.New(registry, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	orders, err := mailbox.Open(ctx, membox.New(nil), "orders", &mailbox.Options[string]{Hooks: metrics.MailboxHooks()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	metrics.Watch(ctx, orders, nil)
	loop := worker.New(orders, func(context.Context, *mailbox.Message[string]) error { return nil },
		&worker.Options[string]{Hooks: metrics.WorkerHooks()})

	_, _ = orders.SendAll(ctx, []string{"tea", "milk", "sugar"})
	_, _ = loop.RunOnce(ctx)

	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "mailbox_queue_depth") || strings.HasPrefix(line, "mailbox_worker_settled_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// mailbox_queue_depth{queue="orders",state="delayed"} 0
	// mailbox_queue_depth{queue="orders",state="ready"} 2
	// mailbox_worker_settled_total{loop="orders",result="acked"} 1
}
