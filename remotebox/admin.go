package remotebox

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/maxhold"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// ConfigureQueue creates the queue or changes its configuration. It blocks until
// the daemon has answered. Codes: ErrInvalid, ErrUnsupported, ErrForbidden,
// ErrUnavailable, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	// A small MaxHold would be a multiple to the daemon; see maxhold.Read.
	if err := config.Validate(); err != nil {
		return err
	}
	o := operation{name: "configure", numbered: true, repeatable: true}
	o.call = b.newCall(oap.OpConfigure, func(dst []byte, t oap.Target) []byte {
		return oap.AppendConfigure(dst, t.Ticket, name, &config)
	})
	return b.roundTrip(ctx, &o)
}

// QueueConfig returns the configuration in force. It blocks until the daemon has
// answered. Codes: ErrNotFound, ErrForbidden, ErrUnavailable, ErrClosed.
func (b *Backend) QueueConfig(ctx context.Context, name string) (config driver.Config, err error) {
	c := b.newCall(oap.OpConfig, func(dst []byte, _ oap.Target) []byte { return oap.AppendName(dst, name) })
	o := operation{name: "configure", call: c, repeatable: true}
	if err := b.roundTrip(ctx, &o); err != nil {
		return config, err
	}
	defer b.free(c)
	if config, err = oap.ParseConfig(c.payload); err != nil {
		return config, o.unknown(err.Error())
	}
	config.MaxHold = maxhold.Read(int64(config.MaxHold))
	return config, nil
}

// Queues lists the names of the queues that the token covers, in order, a page
// at a time.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return pages(ctx, b, &listing{
		name: "list queues", code: oap.OpQueues, fill: func(dst []byte, _ oap.Target) []byte { return dst },
	}, oap.ParseQueueNames)
}

// DeleteQueue removes a queue with everything in it. It blocks until the daemon
// has answered. Codes: ErrNotFound, ErrForbidden, ErrUnavailable, ErrClosed.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	o := operation{name: "delete", numbered: true}
	o.call = b.newCall(oap.OpDelete, func(dst []byte, t oap.Target) []byte { return oap.AppendDelete(dst, t.Ticket, name) })
	return b.roundTrip(ctx, &o)
}
