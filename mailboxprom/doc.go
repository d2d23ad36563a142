// Package mailboxprom exports what Mailbox does as Prometheus metrics.
//
// Mailbox itself depends on no metrics library: it calls hooks. [Metrics] provides them:
//
//	metrics, err := mailboxprom.New(prometheus.DefaultRegisterer, nil)
//	orders, err := mailbox.Open(ctx, backend, "orders", &mailbox.Options[Order]{Hooks: metrics.MailboxHooks()})
//	metrics.Watch(ctx, orders, nil)
//	loop := worker.New(orders, handle, &worker.Options[Order]{Hooks: metrics.WorkerHooks()})
//
// # What is measured
//
// All names begin with mailbox_, or with the namespace of [Options]. A metric that
// mailboxd has too has the same name there; docs/metrics.md in the repository lists both.
//
// Watched queues, from the backend and so for all processes together:
// queue_depth{queue,state}, inflight{queue}, dlq_depth{queue}, saturation{queue}, and
// watch_failed{queue} if the backend does not answer.
//
// Mailboxes, as this process uses them: enqueued_total, deduplicated_total,
// rejected_total{reason} and enqueue_latency_seconds; receives_total{result},
// delivered_total, redelivered_total, poisoned_total, wait_seconds and
// dequeue_latency_seconds; settled_total{outcome}, settle_failed_total{reason},
// ack_commit_latency_seconds{outcome}, held_seconds, attempts, extended_total,
// visibility_timeout_total and dlq_total{reason}; replies_total{result} and
// reply_latency_seconds. All of them have the label queue.
//
// Loops: handlers_running{loop}, handlers_reporting{loop},
// handler_progress_age_seconds{loop}, handler_seconds{loop,result},
// worker_settled_total{loop,result}, worker_backend_failures_total{loop,op} and
// stuck_handlers_total{loop}.
//
// Consumers of dead letters: dlq_consumer_depth, dlq_letter_age_seconds,
// dlq_handler_seconds, dlq_handled_total{result}, dlq_duplicates_total, all by consumer,
// and dlq_redriven_total{queue}.
//
// Registries: resolved_total{source}, of which the part with source "cached" is the
// hit rate, resolve_latency_seconds, resolver_opened_total{result} and
// resolver_evicted_total{reason}.
//
// dlq_total counts the messages that this process dead-letters. Messages that a backend
// dead-letters because they were delivered too often or grew too old show in dlq_depth,
// and in dlq_total of mailboxd.
//
// # Labels are bounded
//
// Each value of a label is a time series that lives as long as the process. The first
// 200 queue names are labels of their own, and as many loops and consumers;
// all others are counted as "other". Message ids and reply addresses are never labels.
//
// Dashboards for Grafana and alerts for Prometheus are in the folder deploy. They expect the
// default namespace.
package mailboxprom
