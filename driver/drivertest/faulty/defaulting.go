package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var defaulters = []Saboteur{
	{
		Name: "has-no-default-limit", Breaks: "DLQ-1",
		What: "A queue that is made without a delivery limit has none.",
		Wrap: perOpener(func(b *box) backend {
			return &changesNew{b, func(config *driver.Config) { orElse(&config.MaxDeliveries, driver.Off) }}
		}),
	},
	{
		Name: "has-another-default-limit", Breaks: "DLQ-1",
		What: "A queue that is made without a delivery limit has one of 10.",
		Wrap: perOpener(func(b *box) backend {
			return &changesNew{b, func(config *driver.Config) { orElse(&config.MaxDeliveries, 10) }}
		}),
	},
	{
		Name: "has-no-default-limit-when-opened", Breaks: "DLQ-1",
		What: "A queue that is made by opening it has no delivery limit.",
		Wrap: perOpener(func(b *box) backend { return opensWithoutLimit{b} }),
	},
	{
		Name: "does-not-bound-dead-letters", Breaks: "DLQ-1",
		What: "Dead letters of a queue that is made without a bound have none.",
		Wrap: perOpener(func(b *box) backend {
			return &changesNew{b, func(config *driver.Config) { orElse(&config.MaxDead, driver.Off) }}
		}),
	},
	{
		Name: "takes-off-for-unset", Breaks: "DLQ-1",
		What: "A setting that is turned off gets its default.",
		Wrap: perOpener(func(b *box) backend { return takesOffForUnset{b} }),
	},
	{
		Name: "resets-what-is-unset", Breaks: "DLQ-1",
		What: "What a configuration leaves unset goes back to its default.",
		Wrap: perOpener(func(b *box) backend { return resetsUnset{b} }),
	},
	{
		Name: "reads-off-as-unset", Breaks: "DLQ-1",
		What: "A setting that is off is read back as one that is unset.",
		Wrap: perOpener(func(b *box) backend { return readsOffAsUnset{b} }),
	},
	{
		Name: "ignores-that-the-window-is-off", Breaks: "DUP-1",
		What: "A dedup window that is off is the default one.",
		Wrap: perOpener(func(b *box) backend { return ignoresWindowOff{b} }),
	},
}

func orElse(value *int, otherwise int) {
	if *value == 0 {
		*value = otherwise
	}
}

// changesNew changes the configurations of queues that are not there yet.
type changesNew struct {
	*box
	change func(*driver.Config)
}

func (b *changesNew) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if b.inForce(ctx, name) == nil {
		b.change(&config)
	}
	return b.box.ConfigureQueue(ctx, name, config)
}

type opensWithoutLimit struct{ *box }

func (b opensWithoutLimit) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if b.inForce(ctx, name) == nil && driver.CheckName(name) == nil {
		if err := b.box.ConfigureQueue(ctx, name, driver.Config{MaxDeliveries: driver.Off}); err != nil {
			return nil, err
		}
	}
	return b.box.OpenQueue(ctx, name)
}

type takesOffForUnset struct{ *box }

func (b takesOffForUnset) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return b.box.ConfigureQueue(ctx, name, config.Stored())
}

type resetsUnset struct{ *box }

func (b resetsUnset) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.Validate() == nil {
		config = config.Resolve(nil, driver.Config{})
	}
	return b.box.ConfigureQueue(ctx, name, config)
}

type readsOffAsUnset struct{ *box }

func (b readsOffAsUnset) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.box.QueueConfig(ctx, name)
	return config.Stored(), err
}

type ignoresWindowOff struct{ *box }

func (b ignoresWindowOff) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.DedupWindow == driver.Off {
		config.DedupWindow = driver.DefaultDedupWindow
	}
	return b.box.ConfigureQueue(ctx, name, config)
}
