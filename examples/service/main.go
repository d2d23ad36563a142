// Service is a worker ready to deploy: a loop that makes drinks, with retries, dead
// letters, health checks and metrics, on queues on disk.
//
//	go run ./examples/service -dir cafe -orders 20
//	curl 127.0.0.1:8080/readyz
//	curl 127.0.0.1:8081/metrics
//
// Some drinks fail now and then, and some always. Stop it with Ctrl-C, or kill
// it, and start it again: no order is lost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/mailboxprom"
	"github.com/mailboxmq/mailbox/worker"
)

// Order is what the mailbox carries.
type Order struct {
	Drink string `json:"drink"`
	Table int    `json:"table"`
}

// settings are the flags.
type settings struct {
	dir     string
	health  string
	metrics string
	orders  int
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", "cafe", "where the queues are")
	flag.StringVar(&s.health, "health", "127.0.0.1:8080", "where health is served; empty for nowhere")
	flag.StringVar(&s.metrics, "metrics", "127.0.0.1:8081", "where metrics are served; empty for nowhere")
	flag.IntVar(&s.orders, "orders", 0, "how many orders to send before serving")
	flag.Parse()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(context.Background(), s, logger); err != nil {
		logger.Error("service failed", slog.Any("err", err))
		os.Exit(1)
	}
}

// run serves orders until a signal comes.
func run(ctx context.Context, s settings, logger *slog.Logger) (err error) {
	disk, err := diskbox.Open(ctx, s.dir, &diskbox.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	registry := prometheus.NewRegistry()
	metrics, err := mailboxprom.New(registry, nil)
	if err != nil {
		return err
	}
	orders, err := mailbox.Open(ctx, disk, "orders", &mailbox.Options[Order]{Hooks: metrics.MailboxHooks(), Logger: logger})
	if err != nil {
		return err
	}
	metrics.Watch(ctx, orders, nil)
	drinks := []string{"tea", "espresso", "cocoa", "matcha", "mud"}
	for i := range s.orders {
		if _, err := orders.Send(ctx, Order{Drink: drinks[i%len(drinks)], Table: 1 + i%9}); err != nil {
			return err
		}
	}
	members := newService(orders, metrics, logger)
	if s.metrics != "" {
		members = append(members, &page{s.metrics, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})})
	}
	return worker.NewGroup(&worker.GroupOptions{HealthAddr: s.health, Stuck: metrics.Stuck, Logger: logger}, members...).Run(ctx)
}

// The two kinds of failures: one is temporary, the other is not.
var (
	errMachine = errors.New("the machine is cold")
	errNoDrink = errors.New("not a drink")
)

// brew makes a drink. Machines are cold at first, and mud is not a drink.
func brew(ctx context.Context, order *mailbox.Message[Order]) error {
	switch {
	case order.Body.Drink == "mud":
		return fmt.Errorf("table %d: %w", order.Body.Table, errNoDrink)
	case order.Body.Drink == "matcha" && order.Deliveries == 1:
		return errMachine
	}
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done(): // the service stops, or the lease was lost
		return context.Cause(ctx)
	}
}

// newService returns the group: the loop, and the consumer of its dead letters.
func newService(orders *mailbox.Mailbox[Order], metrics *mailboxprom.Metrics, logger *slog.Logger) []worker.Member {
	hooks := metrics.WorkerHooks(worker.Hooks{Settled: func(_ context.Context, event worker.SettledEvent) {
		logger.Info("order", slog.String("id", event.MessageID), slog.String("result", string(event.Result)))
	}})
	policy := &deadletter.Policy[Order]{
		MaxDeliveries: 5,
		Always:        []deadletter.Matcher{deadletter.Is(errNoDrink)},
		Never:         []deadletter.Matcher{deadletter.Is(mailbox.ErrUnavailable)},
	}
	loop := worker.New(orders, brew, &worker.Options[Order]{
		Concurrency: 4,
		Timeout:     time.Minute,
		Backoff:     worker.ExponentialBackoff(time.Second, time.Minute),
		DeadLetters: policy,
		Hooks:       hooks,
		Logger:      logger,
	})
	alert := func(_ context.Context, letter deadletter.Message[Order]) (deadletter.Action, error) {
		logger.Warn("please talk to table "+fmt.Sprint(letter.Body.Table),
			slog.String("drink", letter.Body.Drink), slog.String("err", letter.LastError))
		return deadletter.Keep, nil // for a person to redrive or discard
	}
	alerts := deadletter.NewConsumer(policy.Queue(orders), alert, &deadletter.ConsumerOptions{
		Name: "alerts", Poll: 5 * time.Second, Hooks: metrics.DeadLetterHooks(), Logger: logger,
	})
	return []worker.Member{loop, alerts}
}
